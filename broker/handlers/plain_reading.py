"""One pass over what a plain fetch names, within its limits, into an answer in bytes."""

from enum import Enum, auto

from broker.replication.fetch import Isolation
from broker.replication.partition import NO_EPOCH, Partition
from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.fetch_layout import Entry, PlainAnswer, PlainFetch
from storage.errors import LogDirFailed


class Outcome(Enum):
    """What has become of a request."""

    ANSWERED = auto()
    TOO_LITTLE = auto()
    """It is plain, and has to wait."""
    NOT_PLAIN = auto()
    """The general way must answer."""


class PlainReading:
    """What the partitions of a request give; nothing is done or counted before `finish`."""

    __slots__ = ("_is_committed", "_most_bytes", "_request", "_served", "answer", "size")

    def __init__(self, request: PlainFetch, version: int, *, most_bytes: int) -> None:
        self._request = request
        self._is_committed = request.isolation_level == Isolation.READ_COMMITTED
        self._most_bytes = most_bytes
        self._served: list[tuple[Partition, int, int]] = []
        """Partitions, how often each counts as fetched, and bytes of records."""
        self.answer = PlainAnswer(version, len(request.topics), is_committed=self._is_committed)
        self.size = 0
        """Bytes of records."""

    def read(self, partition: Partition | None, entry: Entry, fetch_offset: int) -> bool:
        """Read a partition. False: what it gives is not plain. Raises StorageError, which is not either."""
        index, leader_epoch, _, last_fetched_epoch, most_bytes, tags = entry
        if (
            partition is None
            or partition.leader != partition.node_id
            or (leader_epoch > NO_EPOCH and leader_epoch != partition.leader_epoch)
            or last_fetched_epoch > NO_EPOCH
            or most_bytes < 0
            or tags
        ):
            return False
        log = partition.log
        size = self.size
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        try:
            found = log.read(
                fetch_offset,
                max_bytes=min(most_bytes, max(self._most_bytes - size, 0)),
                upper_bound_offset=last_stable_offset if self._is_committed else high_watermark,
                at_least_one_batch=not size,
                in_memory_only=True,
            )
            if self._is_committed and log.aborted_transactions(fetch_offset, found):
                return False
        except LogDirFailed as error:
            # The disk may not say it twice.
            partition.disk_failed(error)
            return False
        self.answer.add(index, high_watermark, last_stable_offset, log.log_start_offset, found.region)
        self._served.append((partition, 1, found.size))
        self.size = size + found.size
        return True

    def nothing_of(self, partition: Partition, index: int, fetch_offset: int) -> bytes | None:
        """What `read` has written, if that was that there is nothing yet from ``fetch_offset`` on; else None."""
        log = partition.log
        if fetch_offset < (log.last_stable_offset if self._is_committed else log.high_watermark):
            return None
        return self.answer.encode_nothing(index, log.high_watermark, log.last_stable_offset, log.log_start_offset)

    def count_quiet(self, partition: Partition, times: int) -> None:
        """So many partitions of a topic, ``partition`` one of them, gave nothing and were not read. They are counted
        at this one: what is told is told by topic."""
        self._served.append((partition, times, 0))

    def finish(self, context: RequestContext, *, is_last: bool) -> Outcome:
        """Answer, if that is enough or, with ``is_last``, whatever it is."""
        request = self._request
        if self.size < min(request.min_bytes, self._most_bytes) and request.max_wait_ms > 0 and not is_last:
            return Outcome.TOO_LITTLE
        for partition, times, size in self._served:
            stats = partition.stats
            stats.fetches += times
            stats.fetched_bytes += size
        kind = context.slot.kind
        if kind is not None:
            kind.errors[ErrorCode.NONE] += 1 + request.partitions
        context.slot.fill(self.answer.finish(context.correlation_id))
        return Outcome.ANSWERED
