"""ListOffsets for one partition: the offset of a timestamp, or of a special timestamp (earliest, latest, …)."""

from enum import IntEnum
from typing import NamedTuple

from broker.replication.isolation import FetchIsolation
from broker.replication.partition import Partition
from storage.errors import LogDirFailed
from storage.sentinels import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP


class Named(IntEnum):
    """The special timestamps, which are negative (KIP-79, KIP-734, KIP-405, KIP-1023, KIP-1075)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class FoundOffset(NamedTuple):
    """An offset, the time stamp of its record and the record's leader epoch; each is -1 where there is none."""

    offset: int = NO_OFFSET
    timestamp_ms: int = NO_TIMESTAMP
    leader_epoch: int = NO_EPOCH


NOT_FOUND = FoundOffset()


def find_offset(partition: Partition, timestamp_ms: int, isolation: FetchIsolation) -> FoundOffset:
    """The first offset whose record is not older than ``timestamp_ms``, or the offset for a `Named` value.

    Raises StorageError where the log cannot be read.
    """
    try:
        return _find_offset(partition, timestamp_ms, isolation)
    except LogDirFailed as error:
        partition.disk_failed(error)
        raise


def _find_offset(partition: Partition, timestamp_ms: int, isolation: FetchIsolation) -> FoundOffset:
    log = partition.log
    end = partition.visible_end(isolation)
    match timestamp_ms:
        case Named.LATEST:
            return FoundOffset(end, NO_TIMESTAMP, partition.leader_epoch)
        case Named.EARLIEST | Named.EARLIEST_LOCAL:
            start = log.log_start_offset
            return FoundOffset(start, NO_TIMESTAMP, log.leader_epochs.epoch_at(start))
        case Named.LATEST_TIERED | Named.EARLIEST_PENDING_UPLOAD:
            return NOT_FOUND  # nothing is tiered here
        case Named.MAX_TIMESTAMP:
            found = log.offset_of_max_timestamp()
        case _:
            found = log.offset_for_timestamp(timestamp_ms, end)
    if found is None or found.offset >= end:
        return NOT_FOUND
    return FoundOffset(found.offset, found.timestamp, found.leader_epoch)
