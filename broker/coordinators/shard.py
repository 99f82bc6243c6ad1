"""The interface of a shard (Kafka's CoordinatorShard), and what the runtime needs to make shards of a topic."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from broker.coordinators.result import CoordinatorResult, Record
from protocol.errors import ErrorCode

Decode = Callable[[bytes, bytes | None], Any]
"""Makes a record out of key and value. Raises `Malformed`."""

Encode = Callable[[Record], tuple[bytes, bytes | None]]
"""Gives key and value of a record."""

Submit = Callable[[CoordinatorResult[Any]], None]


class Shard(Protocol):
    """The state machine of one partition: what groups' and transactions' shards have in common."""

    def replay(self, record: Any, *, producer_id: int = -1, offset: int = -1) -> None:
        """Apply an acknowledged record. A record with a producer id belongs to a transaction that is still open.

        ``offset`` is where the record is in the log, -1 where that is not said: while a compacted topic is loaded.
        """

    def replay_marker(self, producer_id: int, *, commits: bool) -> None:
        """Apply the marker that ends the producer's open transaction."""

    def loaded(self) -> None:
        """All records of the log have been replayed: timers may start, and requests are served from now on."""

    def unload(self, code: ErrorCode) -> None:
        """The shard gets no more requests: parked requests are answered with ``code``, and all timers are cancelled."""


ShardT = TypeVar("ShardT", bound=Shard)


class ShardType(NamedTuple, Generic[ShardT]):
    """How shards of a topic are made, and how their records are decoded and encoded."""

    make_shard: Callable[[Submit], ShardT]
    """Makes a shard. Its timers call the argument with results that are to be written."""
    decode: Decode
    encode: Encode[Any]
    is_compacted: bool = True
    """Whether the last record of a key supersedes all before it. Else a shard gets every record, in their order."""


class ShardLoadingStats:
    """How far loading has come: figures of all partitions that are loaded together."""

    __slots__ = (
        "batches", "began_ms", "bytes", "partitions_loaded", "partitions_total", "passed_over", "records", "took_ms",
    )  # fmt: skip

    def __init__(self, began_ms: int = 0) -> None:
        self.began_ms = began_ms
        """Milliseconds of the monotonic clock."""
        self.took_ms = 0
        """Milliseconds until the last loaded partition was loaded."""
        self.partitions_total = 0
        self.partitions_loaded = 0
        self.batches = 0
        self.records = 0
        self.bytes = 0
        self.passed_over = 0
        """Unreadable records, and batches of which no record could be read."""
