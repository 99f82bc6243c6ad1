"""ListOffsets for one partition: the offset of a timestamp, or of a special timestamp (earliest, latest, …)."""

from enum import IntEnum
from typing import NamedTuple

from broker.replication.isolation import FetchIsolation
from broker.replication.partition import Partition
from broker.request.faults import OffsetNotAvailable
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

    Raises:
        StorageError: the log cannot be read.
        OffsetNotAvailable: a consumer asks a new leader, whose high watermark may lie below what consumers have seen of
            the leader before (KIP-207). Once its followers have fetched, the high watermark is behind that.
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
            _check_available(partition, isolation)
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
        _check_available(partition, isolation)
        return NOT_FOUND
    return FoundOffset(found.offset, found.timestamp, found.leader_epoch)


def _check_available(partition: Partition, isolation: FetchIsolation) -> None:
    """Raise OffsetNotAvailable to a consumer, while the high watermark is below the start of the leader's epoch."""
    followers = partition.followers
    if followers is None or isolation is FetchIsolation.LOG_END:
        return
    if partition.log.high_watermark < followers.epoch_start_offset:
        raise OffsetNotAvailable(
            f"the high watermark {partition.log.high_watermark} of {partition.topic_partition} has not reached "
            f"{followers.epoch_start_offset}, where the leader epoch {partition.leader_epoch} begins"
        )
