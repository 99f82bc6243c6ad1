"""The fast path's reading: partitions, straight into the bytes of an answer."""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

from broker.fetch.read_rules import FetchBudget, FetchRequirements, count_bytes_out, count_fetches, read_records
from broker.replication.partition import Partition
from broker.request.context import RequestContext
from protocol.fetch_layout import Entry, FetchAnswer
from storage.errors import LogDirFailed
from storage.sentinels import NO_EPOCH

Find = Callable[[str, int], Partition | None]
"""The partition of a topic and index; None if this node does not have it."""

Served = list[tuple[Partition, int]]
"""The partitions in an answer, and bytes of records of each."""


class Outcome(Enum):
    """What the fast path has done with a request."""

    ANSWERED = auto()
    MUST_WAIT = auto()
    """Nothing: the request has to wait for records, which the fast path can do."""
    SLOW_PATH = auto()
    """Nothing: the slow path must answer."""


# Looking up an attribute of an enumeration takes 50 ns in Python 3.11, and a fetch does it three times.
ANSWERED: Final = Outcome.ANSWERED
MUST_WAIT: Final = Outcome.MUST_WAIT
SLOW_PATH: Final = Outcome.SLOW_PATH


def read_partitions(
    find: Find,
    topic: str,
    entries: Iterable[Entry],
    next_offset: Callable[[], int],
    requirements: FetchRequirements,
    budget: FetchBudget,
    answer: FetchAnswer,
    served: Served,
) -> bool:
    """Read partitions of a topic, each from its own offset, into ``answer``.

    False where the slow path must read one of them. Raises Fault and StorageError, which mean the same.
    """
    add = answer.add
    only_leader = requirements.only_leader
    choice = requirements.replica_choice
    for index, leader_epoch, _, last_fetched_epoch, max_bytes, tags in entries:
        fetch_offset = next_offset()
        partition = find(topic, index)
        if (
            partition is None
            or not partition.is_readable_in(leader_epoch, only_leader)
            or last_fetched_epoch > NO_EPOCH
            or tags
            or (choice is not None and choice.preferred(partition, fetch_offset) is not None)
        ):
            return False
        try:
            found, aborted = read_records(partition, fetch_offset, max_bytes, requirements, budget, True)
        except LogDirFailed as error:
            # The disk may not fail a second time, for the slow path.
            partition.disk_failed(error)
            return False
        if aborted:
            return False
        log = partition.log
        add(index, log.high_watermark, log.last_stable_offset, log.log_start_offset, found.region)
        served.append((partition, found.size))
    return True


def encode_unchanged(partition: Partition, index: int, answer: FetchAnswer) -> bytes:
    """Encode a partition that has no records for its reader, as `read_partitions` has added it to ``answer``."""
    log = partition.log
    return answer.encode_nothing(index, log.high_watermark, log.last_stable_offset, log.log_start_offset)


def finish(
    requirements: FetchRequirements,
    context: RequestContext,
    answer: FetchAnswer,
    served: Served,
    size: int,
    partitions: int,
) -> Outcome:
    """Answer if ``size`` bytes of records are enough. ``partitions``: how many the request names."""
    if not requirements.is_enough(size):
        # Whether partitions have some bytes together, only the slow path adds up.
        return MUST_WAIT if requirements.min_bytes <= 1 else SLOW_PATH
    for partition, partition_size in served:
        count_fetches(partition, 1)
        count_bytes_out(partition, partition_size)
    slot = context.slot
    if slot.kind is not None:
        slot.kind.count_success(1 + partitions)
    slot.fill(answer.finish(context.correlation_id))
    return ANSWERED
