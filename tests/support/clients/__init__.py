"""One interface to a broker for three stock clients, each in its default configuration but for the address.

A test states what is produced and what must come back; the client makes its usual requests. Every
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
"""The error codes of a coordinator that is not ready yet, as just after a start: loading, not available, not the
coordinator. Requests are repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record that a test sends. `timestamp_ms` None: the client's clock; `partition` None: the client's
    partitioner."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """The broker's answer for one record."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A consumed record. `is_log_append_time`: the broker set the timestamp, not the producer."""

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
    """The committed offset of a group for a partition, with its metadata."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """A group as an administrator sees it; `state` in Kafka's words, Dead where there is no such group."""

    state: str
    assignments: tuple[frozenset[Place], ...]
    """The assignment of each member, in no order."""


class Login(NamedTuple):
    """How a client authenticates by SASL."""

    mechanism: str
    user: str = ""
    password: str = ""
    token: str = ""
    """A token of OAUTHBEARER, which says itself who the user is."""


class Tls(NamedTuple):
    """What a client needs for TLS: the paths of PEM files."""

    authority: str
    """The certificate that vouches for the broker's."""
    certificate: str = ""
    """The client's own, with its key; empty: the client has none."""
    key: str = ""


def security_protocol(login: Login | None, tls: Tls | None) -> str:
    """The name of what stands between a client and the listener."""
    return ("SASL_" if login else "") + ("SSL" if tls else "PLAINTEXT")


class RequestFailed(Exception):
    """The broker refused a request; `code` is Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code


class Client(Protocol):
    name: str

    def __init__(self, bootstrap: str, login: Login | None = None, tls: Tls | None = None) -> None: ...

    def create_topic(
        self, topic: str, *, partitions: int = 1, replication: int = 1, configs: Mapping[str, str] | None = None
    ) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def topics(self) -> set[str]: ...

    def topic_configs(self, topic: str) -> dict[str, str]: ...

    def alter_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set these configs of a topic. With aiokafka the topic loses its other configs, as with the old
        AlterConfigs."""
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
        """Send all records, wait for all answers, and return them in the order of `records`.

        `idempotent` None is the client's own default; `most_bytes` raises the client's limit for one request. Raises
        RequestFailed with the broker's error code.
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
        """Consume `count` records of one partition from an offset on."""
        ...

    def consume_all(self, topic: str) -> list[Received]:
        """Consume all records between the start and end offsets, in the order in which they arrive."""
        ...

    def commit(self, group: str, offsets: Mapping[Place, Committed]) -> None:
        """Commit for a group without being a member. Raises RequestFailed with the broker's error code."""
        ...

    def committed(self, group: str, places: Iterable[Place]) -> dict[Place, Committed]:
        """The group's committed offsets for these partitions; partitions without an offset are left out."""
        ...

    def describe_group(self, group: str) -> GroupSeen: ...

    def group_consumer(self, membership: Membership, tell: Tell) -> GroupConsumer:
        """A consumer that subscribes. It may be used only by the thread that has called this."""
        ...


def connect(name: str, bootstrap: str, login: Login | None = None, tls: Tls | None = None) -> Client:
    """The client of this name. Its library is imported by this call. ``login``: the listener has SASL; ``tls``: TLS."""
    module = importlib.import_module(f"tests.support.clients.{name.replace('-', '_')}_client")
    return cast("type[Client]", module.StockClient)(bootstrap, login, tls)


def values(received: Iterable[Received]) -> list[bytes | None]:
    return [record.value for record in received]
