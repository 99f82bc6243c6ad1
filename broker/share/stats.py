"""The counters of share groups."""

from collections import Counter
from collections.abc import Iterable, Sequence

from broker.runtime.histogram import Histogram
from broker.share.window import Acknowledgement


class ShareGroupStats:
    """What the share partitions of a broker have in common."""

    __slots__ = (
        "acknowledgements", "acknowledges", "dead_letter_requests", "dead_letters", "failed_acknowledges",
        "failed_dead_letter_requests", "failed_fetches", "fetches", "load_times",
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
        self.load_times = Histogram()
        """How long the state of a share partition took to read, in microseconds (Kafka: PartitionLoadTimeMs)."""
        self.dead_letters: Counter[str] = Counter()
        """Records in dead letter queues by group (Kafka: DeadLetterQueueRecordCount)."""
        self.dead_letter_requests: Counter[str] = Counter()
        """Batches of them (Kafka: DeadLetterQueueTotalProduceRequestsPerSec)."""
        self.failed_dead_letter_requests: Counter[str] = Counter()
        """Records that could not be copied, by batches (Kafka: DeadLetterQueueFailedProduceRequestsPerSec)."""

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
