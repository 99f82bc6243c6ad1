"""What a plain fetch reads, and whether that is an answer."""

from collections.abc import Callable, Iterable
from enum import Enum, auto

from broker.replication.partition import NO_EPOCH, Partition
from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.fetch_layout import Entry, PlainAnswer, PlainFetch
from storage.errors import LogDirFailed

Find = Callable[[str, int], Partition | None]
"""A partition, by topic and index."""

Served = list[tuple[Partition, int]]
"""Partitions that are in an answer, and bytes of records of each."""


class Outcome(Enum):
    """What has become of a request."""

    ANSWERED = auto()
    TOO_LITTLE = auto()
    """It is plain, and has to wait."""
    NOT_PLAIN = auto()
    """The general way must answer."""


def read_partitions(
    find: Find,
    topic: str,
    entries: Iterable[Entry],
    next_offset: Callable[[], int],
    answer: PlainAnswer,
    served: Served,
    size: int,
    most_bytes: int,
    is_committed: bool,
) -> int:
    """Read partitions of a topic, each from its own offset, into ``answer``, which has ``size`` bytes of records.

    Returns the size then; -1 if what one of them gives is not plain. Raises StorageError, which is not either.
    (One call for a topic, and by position: a function of its own for each partition is felt in fetch-64kb.)
    """
    add = answer.add
    for index, leader_epoch, _, last_fetched_epoch, partition_most_bytes, tags in entries:
        fetch_offset = next_offset()
        partition = find(topic, index)
        if (
            partition is None
            or partition.leader != partition.node_id
            or (leader_epoch > NO_EPOCH and leader_epoch != partition.leader_epoch)
            or last_fetched_epoch > NO_EPOCH
            or partition_most_bytes < 0
            or tags
        ):
            return -1
        log = partition.log
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        try:
            found = log.read(
                fetch_offset,
                max_bytes=min(partition_most_bytes, max(most_bytes - size, 0)),
                upper_bound_offset=last_stable_offset if is_committed else high_watermark,
                at_least_one_batch=not size,
                in_memory_only=True,
            )
            if is_committed and log.aborted_transactions(fetch_offset, found):
                return -1
        except LogDirFailed as error:
            # The disk may not say it twice.
            partition.disk_failed(error)
            return -1
        add(index, high_watermark, last_stable_offset, log.log_start_offset, found.region)
        served.append((partition, found.size))
        size += found.size
    return size


def nothing_of(
    partition: Partition, index: int, fetch_offset: int, answer: PlainAnswer, *, is_committed: bool
) -> bytes | None:
    """What `read_partitions` has written into ``answer``, if that was that there is nothing from ``fetch_offset`` on,
    and so it will be until the partition changes; else None."""
    log = partition.log
    if fetch_offset < (log.last_stable_offset if is_committed else log.high_watermark):
        return None
    return answer.encode_nothing(index, log.high_watermark, log.last_stable_offset, log.log_start_offset)


def finish(
    request: PlainFetch, context: RequestContext, answer: PlainAnswer, served: Served, size: int, most_bytes: int
) -> Outcome:
    """Answer, if ``size`` bytes of records are enough or ``request`` will not wait."""
    if size < min(request.min_bytes, most_bytes) and request.max_wait_ms > 0:
        # How much there is of some bytes, the general way alone adds up.
        return Outcome.TOO_LITTLE if request.min_bytes <= 1 else Outcome.NOT_PLAIN
    for partition, partition_size in served:
        stats = partition.stats
        stats.fetches += 1
        stats.fetched_bytes += partition_size
    slot = context.slot
    kind = slot.kind
    if kind is not None:
        kind.errors[ErrorCode.NONE] += 1 + request.partitions
    slot.fill(answer.finish(context.correlation_id))
    return Outcome.ANSWERED
