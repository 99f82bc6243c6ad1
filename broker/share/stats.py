"""The counters of share groups."""

from collections import Counter
from collections.abc import Iterable, Sequence

from broker.runtime.histogram import CountedHistogram
from broker.share.requests import Acknowledgement


class ShareFetchStats:
    """What is counted of the fetches of one group, while the group has sessions here."""

    __slots__ = ("acquire_times", "fetch_ratios")

    def __init__(self) -> None:
        self.acquire_times = CountedHistogram()
        """Milliseconds until there was a partition to acquire from (Kafka: TopicPartitionsAcquireTimeMs)."""
        self.fetch_ratios = CountedHistogram()
        """Of a hundred partitions that were asked for, those whose window was not full (Kafka:
        RequestTopicPartitionsFetchRatio)."""


class ShareGroupStats:
    """What the share partitions of a broker have in common."""

    __slots__ = (
        "acknowledgements", "acknowledges", "dead_letter_requests", "dead_letters", "failed_acknowledges",
        "failed_dead_letter_requests", "failed_fetches", "fetches", "load_times", "of_groups",
    )  # fmt: skip

    def __init__(self) -> None:
        self.acknowledgements: Counter[int] = Counter()
        """Records by what members have said of them (Kafka: RecordAcknowledgementsPerSec)."""
        self.fetches: Counter[str] = Counter()
        """Share fetches by topic (Kafka: TotalShareFetchRequestsPerSec)."""
        self.failed_fetches: Counter[str] = Counter()
        """Those with an error for a partition of the topic (Kafka: FailedShareFetchRequestsPerSec)."""
        self.acknowledges: Counter[str] = Counter()
        """Requests that acknowledge, by topic (Kafka: TotalShareAcknowledgementRequestsPerSec)."""
        self.failed_acknowledges: Counter[str] = Counter()
        """Those with an error for a partition of the topic (Kafka: FailedShareAcknowledgementRequestsPerSec)."""
        self.load_times = CountedHistogram()
        """Milliseconds until the state of a share partition was read (Kafka: PartitionLoadTimeMs)."""
        self.of_groups: dict[str, ShareFetchStats] = {}
        """By group."""
        self.dead_letters: Counter[str] = Counter()
        """Records in dead letter queues by group (Kafka: DeadLetterQueueRecordCount)."""
        self.dead_letter_requests: Counter[str] = Counter()
        """Batches of them (Kafka: DeadLetterQueueTotalProduceRequestsPerSec)."""
        self.failed_dead_letter_requests: Counter[str] = Counter()
        """Records that could not be copied, by batches (Kafka: DeadLetterQueueFailedProduceRequestsPerSec)."""

    def of_group(self, group_id: str) -> ShareFetchStats:
        """Where the fetches of a group are counted."""
        found = self.of_groups.get(group_id)
        if found is None:
            found = self.of_groups[group_id] = ShareFetchStats()
        return found

    def rotate(self) -> None:
        """A period is over."""
        self.load_times.rotate()
        for stats in self.of_groups.values():
            stats.acquire_times.rotate()
            stats.fetch_ratios.rotate()

    def fetched(self, topics: Iterable[str]) -> None:
        """Count a share fetch of these topics."""
        self.fetches.update(set(topics))

    def acknowledged(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Count what a member has said."""
        for one in acknowledgements:
            if len(one.types) == 1:
                self.acknowledgements[one.types[0]] += one.last_offset - one.first_offset + 1
            else:
                self.acknowledgements.update(one.types)
