"""The counters of share groups."""

from collections import Counter
from collections.abc import Iterable, Sequence

from broker.runtime.histogram import Histogram
from broker.share.share_partition import SharePartitionStats
from broker.share.window import Acknowledgement


class ShareGroupStats:
    """What the share partitions of a broker have in common."""

    __slots__ = (
        "acknowledgements", "dead_letter_requests", "dead_letters", "expired_locks_gone", "failed_dead_letter_requests",
        "fetches", "load_times",
    )  # fmt: skip

    def __init__(self) -> None:
        self.acknowledgements: Counter[int] = Counter()
        """Records by what members have said of them (Kafka: RecordAcknowledgementsPerSec)."""
        self.fetches: Counter[str] = Counter()
        """Share fetches by topic (Kafka: TotalShareFetchRequestsPerSec)."""
        self.load_times = Histogram()
        """How long the state of a share partition took to read, in microseconds (Kafka: PartitionLoadTimeMs)."""
        self.dead_letters: Counter[str] = Counter()
        """Records in dead letter queues by group (Kafka: DeadLetterQueueRecordCount)."""
        self.dead_letter_requests: Counter[str] = Counter()
        """Batches of them (Kafka: DeadLetterQueueTotalProduceRequestsPerSec)."""
        self.failed_dead_letter_requests: Counter[str] = Counter()
        """Records that could not be copied, by batches (Kafka: DeadLetterQueueFailedProduceRequestsPerSec)."""
        self.expired_locks_gone = 0
        """Records whose lock has expired, of share partitions that are no longer in memory."""

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

    def gone(self, stats: SharePartitionStats) -> None:
        """Keep the counters of a share partition that is forgotten: sums must not shrink."""
        self.expired_locks_gone += stats.expired_locks
