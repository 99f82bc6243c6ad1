"""Sealing: brings all that a log has into files that nobody writes to any more."""

from broker.replication.partition import Partition


def seal(partition: Partition, now_ms: int) -> None:
    """Begin a new segment behind the partition's records, and flush what is before it. The files of a broker for tests
    are flushed by doing nothing, so that this holds nobody. Raises `StorageError`."""
    partition.log.roll(now_ms)
    target = partition.begin_flush()
    if target is not None:
        target.perform()
        partition.complete_flush(target)
