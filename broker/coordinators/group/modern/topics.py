"""Topics as groups see them, and the hash by which a group notices that its topics have changed (KIP-1101)."""

from __future__ import annotations

import struct as binary
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from xxhash import xxh3_64_intdigest

_MAGIC: Final = b"\0"
"""The version of the hash."""
_INT: Final = binary.Struct("<i")
_LONG: Final = binary.Struct("<Q")


class GroupTopic(NamedTuple):
    """A topic. A change of the topic makes another object."""

    name: str
    topic_id: bytes
    partitions: int
    racks: Sequence[tuple[str, ...]]
    """The racks of each partition's replicas, in alphabetical order; empty where no broker has a rack."""


class TopicsView(Protocol):
    """The topics of the cluster as they are now."""

    def of_name(self, name: str) -> GroupTopic | None:
        """The topic of this name."""

    def of_id(self, topic_id: bytes) -> GroupTopic | None:
        """The topic with this id."""

    def names(self) -> Iterator[str]:
        """The names of all topics. No topic may be created meanwhile."""

    @property
    def version(self) -> int:
        """The end of the metadata log: it grows with each change."""


class TopicHashes:
    """Computes hashes of topics, each once for each change of the topic. All groups share them."""

    def __init__(self, topics: TopicsView) -> None:
        self._topics = topics
        self._known: dict[str, tuple[GroupTopic, int]] = {}

    def forget(self, names: Iterable[str]) -> None:
        """Drop the hashes of topics that have changed or are gone."""
        for name in names:
            self._known.pop(name, None)

    def of_group(self, names: Iterable[str]) -> int:
        """The hash of all these topics together, as records have it (signed). Topics that do not exist do not count;
        without any topic it is 0."""
        hashes = [_LONG.pack(found) for name in sorted(names, key=_java_order) if (found := self._of(name)) is not None]
        return _signed(xxh3_64_intdigest(b"".join(hashes))) if hashes else 0

    def _of(self, name: str) -> int | None:
        topic = self._topics.of_name(name)
        if topic is None:
            return None
        known = self._known.get(name)
        if known is None or known[0] is not topic:
            known = self._known[name] = (topic, topic_hash(topic))
        return known[1]


def topic_hash(topic: GroupTopic) -> int:
    """The hash of a topic's id, name, partitions and racks, unsigned."""
    parts = [_MAGIC, topic.topic_id[7::-1], topic.topic_id[:7:-1], _string(topic.name), _INT.pack(topic.partitions)]
    for partition in range(topic.partitions):
        parts.append(_INT.pack(partition))
        racks = topic.racks[partition] if partition < len(topic.racks) else ()
        for rack in racks:
            parts += [_INT.pack(_length(rack)), _string(rack)]
    return xxh3_64_intdigest(b"".join(parts))


def _string(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _INT.pack(_length(text))


def _length(text: str) -> int:
    """In units of UTF-16, as Java counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _java_order(text: str) -> bytes:
    """Java compares strings by their units of UTF-16."""
    return text.encode("utf-16-be", "surrogatepass")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
