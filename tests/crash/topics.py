"""The topics of a crash run, and the content of their records: the producer, its sequence number, and padding."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MIB: Final = 1 << 20
A_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that is there for the whole run."""

    name: str
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)
    most_value_bytes: int = 4_000
    is_trimmed: bool = False
    """Somebody deletes records from its beginning (DeleteRecords)."""
    retention_bytes: int | None = None
    """Whole segments go once it is larger."""

    @property
    def keeps_everything(self) -> bool:
        """Whether a consumer may begin at offset 0 at any time."""
        return not self.is_trimmed and self.retention_bytes is None


ROLLING: Final = Topic(name="rolling", partitions=3, configs={"segment.bytes": str(MIB)})
RECOMPRESSED: Final = Topic(name="recompressed", partitions=2, configs={"compression.type": "lz4"})
FLUSHED: Final = Topic(name="flushed", partitions=2, configs={"flush.messages": "1"})
TRIMMED: Final = Topic(
    name="trimmed", partitions=2, configs={"segment.bytes": str(MIB), "segment.ms": "1000"}, is_trimmed=True
)
LARGE: Final = Topic(
    name="large",
    partitions=1,
    # Above 4 MiB a batch is written by a thread of its own, which takes long enough to be killed in the middle.
    configs={"segment.bytes": str(16 * MIB), "max.message.bytes": str(16 * MIB), "retention.bytes": str(32 * MIB)},
    most_value_bytes=300_000,
    retention_bytes=32 * MIB,
)
TOPICS: Final = {topic.name: topic for topic in (ROLLING, RECOMPRESSED, FLUSHED, TRIMMED, LARGE)}


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


PLACES: Final = tuple(Place(topic.name, index) for topic in TOPICS.values() for index in range(topic.partitions))


class Identity(NamedTuple):
    """A record: who has sent it, and his how many-th it is."""

    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer} #{self.number}"


class Stands(NamedTuple):
    """Somebody was told by the broker that this record stands there."""

    place: Place
    offset: int
    identity: Identity


OFFSET_UNKNOWN: Final = -1
"""What librdkafka says where the broker answered that it had the batch already, and no more knows where."""

_FILLING: Final = random.Random(0).randbytes(1 << 16) + bytes(1 << 16)  # a half of it can be compressed
_SPREAD: Final = 2_654_435_761


def value_of(identity: Identity, most_bytes: int) -> bytes:
    """The record's value: the identity, and a filling of up to ``most_bytes`` that follows from it."""
    number = identity.number
    size = number * _SPREAD % most_bytes
    begin = number * 97 % (1 << 16)
    filling = _FILLING[begin : begin + (1 << 16)] * (size // (1 << 16) + 1)
    return b"%s %d %s" % (identity.producer.encode(), number, filling[:size])


def identity_in(value: bytes | None, most_bytes: int) -> Identity | None:
    """Whose record this is; None if the value is not what its producer sent."""
    try:
        producer, number, _ = (value or b"").split(b" ", 2)
        identity = Identity(producer.decode(), int(number))
    except ValueError:
        return None
    return identity if value == value_of(identity, most_bytes) else None
