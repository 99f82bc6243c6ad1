"""What the coordinators of a topic are made of, to whoever runs them."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from broker.coordinators.result import CoordinatorResult, Record
from protocol.errors import ErrorCode

Decode = Callable[[bytes, bytes | None], Any]
"""A record out of key and value. Raises `Malformed`."""

Encode = Callable[[Record], tuple[bytes, bytes | None]]
"""Key and value of a record."""

Submit = Callable[[CoordinatorResult[Any]], None]


class Shard(Protocol):
    """The state machine of one partition, as far as every coordinator's is alike."""

    def replay(self, record: Any, *, producer_id: int = -1) -> None:
        """Take in a record that stands; one with a producer id belongs to a transaction that is still open."""

    def replay_marker(self, producer_id: int, *, commits: bool) -> None:
        """The transaction that this producer has open ends here."""

    def loaded(self) -> None:
        """Everything that stood in the log has been replayed: from now on time counts, and requests come."""

    def unload(self, code: ErrorCode) -> None:
        """It is not asked any more: whoever waits is told ``code``, and nothing rings."""


ShardT = TypeVar("ShardT", bound=Shard)


class ShardType(NamedTuple, Generic[ShardT]):
    """What the coordinators of a topic are made of."""

    make_shard: Callable[[Submit], ShardT]
    """Told what its alarms call where they want something written."""
    decode: Decode
    encode: Encode[Any]


class LoadingStats:
    """How far it has come with the partitions that are loaded together."""

    __slots__ = (
        "batches", "began_ms", "bytes", "partitions_loaded", "partitions_total", "passed_over", "records", "took_ms",
    )  # fmt: skip

    def __init__(self, began_ms: int = 0) -> None:
        self.began_ms = began_ms
        """On the clock that never goes back."""
        self.took_ms = 0
        """Up to the last partition that is loaded."""
        self.partitions_total = 0
        self.partitions_loaded = 0
        self.batches = 0
        self.records = 0
        self.bytes = 0
        self.passed_over = 0
        """Records that could not be read, and batches of which nothing could."""
