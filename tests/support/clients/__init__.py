"""One way to speak to a broker through three stock clients, each in its default configuration but for the address.

A test says what is produced and what must come back; the client under it makes the requests it always makes. Every
call opens a producer or consumer of its own and closes it, as a short script would. These consumers `assign`; for
those that subscribe and share a topic with others see `members.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from tests.support.clients.members import GroupConsumer, Membership, Tell

CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 60.0

COORDINATOR_NOT_YET = {14, 15, 16}
"""Loading, not available, not the coordinator: what a broker answers that has just started. Ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a test sends. `timestamp_ms` None: the client's clock; `partition` None: the client's partitioner."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """What the broker answered for one record."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What came back. `is_log_append_time`: the broker set the time stamp, not the producer."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    is_log_append_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    cluster_id: str
    controller_id: int
    brokers: tuple[tuple[int, str, int], ...]


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class Committed(NamedTuple):
    """What a group has committed for a partition: the next offset to read, and a remark of whoever committed it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """A group as an administrator sees it; `state` in Kafka's words, Dead where there is no such group."""

    state: str
    assignments: tuple[frozenset[Place], ...]
    """Of each member, in no order."""


class RequestFailed(Exception):
    """The broker refused; `code` is Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code


class Client(Protocol):
    name: str

    def __init__(self, bootstrap: str) -> None: ...

    def create_topic(
        self, topic: str, *, partitions: int = 1, replication: int = 1, configs: Mapping[str, str] | None = None
    ) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def topics(self) -> set[str]: ...

    def topic_configs(self, topic: str) -> dict[str, str]: ...

    def alter_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        """Give a topic these configs. aiokafka takes away its other ones, as the old AlterConfigs does."""
        ...

    def cluster(self) -> Cluster: ...

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool | None = None,
        most_bytes: int | None = None,
    ) -> list[Produced]:
        """Send all, wait for all answers, in the order of `records`.

        `idempotent` None is the client's own default; `most_bytes` raises the client's limit for one request.
        Raises RequestFailed with the broker's error code.
        """
        ...

    def partitions(self, topic: str) -> list[int]: ...

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """The first and the next offset of every partition."""
        ...

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset at or after a time; None if there is none."""
        ...

    def consume(self, topic: str, *, partition: int, offset: int, count: int) -> list[Received]:
        """`count` records of one partition from an offset on."""
        ...

    def consume_all(self, topic: str) -> list[Received]:
        """Everything between the first and the next offsets, in the order in which it arrived."""
        ...

    def commit(self, group: str, offsets: Mapping[Place, Committed]) -> None:
        """Commit for a group without being in it. Raises RequestFailed with the broker's error code."""
        ...

    def committed(self, group: str, places: Iterable[Place]) -> dict[Place, Committed]:
        """What stands for these partitions; those without an offset are left out."""
        ...

    def describe_group(self, group: str) -> GroupSeen: ...

    def group_consumer(self, membership: Membership, tell: Tell) -> GroupConsumer:
        """A consumer that subscribes. It belongs to the thread that has called this."""
        ...


def connect(name: str, bootstrap: str) -> Client:
    """The client of this name; its library is imported only now."""
    module = importlib.import_module(f"tests.support.clients.{name.replace('-', '_')}_client")
    return cast("type[Client]", module.StockClient)(bootstrap)


def values(received: Iterable[Received]) -> list[bytes | None]:
    return [record.value for record in received]
