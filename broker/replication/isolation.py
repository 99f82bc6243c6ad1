"""Up to where a reader may read a partition: by isolation level for consumers (KIP-98), to the end for replicas."""

from enum import Enum, IntEnum
from typing import Final


class IsolationLevel(IntEnum):
    """What a consumer asks to see, by the codes of the protocol."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchIsolation(Enum):
    """Where a reader's view of a partition ends (Kafka's ``FetchIsolation``)."""

    LOG_END = "log end offset"
    """The end for a replica, follower or observer: it must have records before they can count as replicated."""
    HIGH_WATERMARK = "high watermark"
    """The end for a consumer with READ_UNCOMMITTED."""
    TXN_COMMITTED = "last stable offset"
    """The end for a consumer with READ_COMMITTED, which also gets the aborted transactions of the range it reads."""


_OF_CONSUMERS: Final[dict[int, FetchIsolation]] = {
    IsolationLevel.READ_UNCOMMITTED: FetchIsolation.HIGH_WATERMARK,
    IsolationLevel.READ_COMMITTED: FetchIsolation.TXN_COMMITTED,
}


def consumer_isolation(isolation_level: int) -> FetchIsolation | None:
    """Where the view of a consumer with this isolation level ends; None for a code that the protocol does not have."""
    return _OF_CONSUMERS.get(isolation_level)
