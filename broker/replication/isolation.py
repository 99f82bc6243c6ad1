"""Isolation levels of consumers, and up to where each of them may read a partition (KIP-98)."""

from enum import IntEnum

from broker.replication.partition import Partition


class Isolation(IntEnum):
    """What a consumer may see, by the codes of the protocol (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def visible_end(partition: Partition, isolation: Isolation) -> int:
    """The first offset that a consumer of this isolation may not see yet."""
    log = partition.log
    return log.last_stable_offset if isolation is Isolation.READ_COMMITTED else log.high_watermark
