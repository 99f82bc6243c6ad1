"""The orders in which maps of Java and of Kafka are iterated: Kafka's answers have them where Kafka keeps a list in a
map, and tools compare.

A HashMap is a table of buckets, a power of two. A key's bucket is the lower bits of its hash code, mixed with the upper
half. Iteration goes by bucket, and in a bucket by insertion, which a larger table keeps. Not followed: buckets of eight
and more keys, which become trees, and tables that stay large after removals.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from broker.coordinators.partitioning import java_hash

DEFAULT_CAPACITY: Final = 16

_BITS: Final = 0xFFFF_FFFF
_LONG_BITS: Final = (1 << 64) - 1
_FIBONACCI: Final = -7046029254386353131
"""Knuth's multiplier: 2**64 by the golden ratio."""

K = TypeVar("K")


def capacity_for(expected: int) -> int:
    """The first table of a map that is made for so many keys: `new HashMap(expected)`."""
    return 1 << max(expected - 1, 0).bit_length()


def capacity_of_copy(size: int) -> int:
    """The table of a copy of a map with so many keys: `new HashMap(map)`."""
    return capacity_for(int(size / 0.75 + 1.0))


def hash_map_order(keys: Iterable[K], hash_of: Callable[[K], int], capacity: int = DEFAULT_CAPACITY) -> list[K]:
    """``keys``, which are inserted in their order into a map with a first table of ``capacity`` buckets, as they come
    out of it. ``hash_of`` is their ``hashCode``. The table doubles where more than three quarters of it are taken."""
    inserted = list(keys)
    while len(inserted) > capacity * 3 // 4:
        capacity *= 2

    def bucket(key: K) -> int:
        hashed = hash_of(key) & _BITS
        return (hashed ^ hashed >> 16) & capacity - 1

    return sorted(inserted, key=bucket)


def concurrent_map_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """``keys`` as they come out of a ConcurrentHashMap, whose table doubles where three quarters of it are taken."""
    inserted = list(keys)
    capacity = DEFAULT_CAPACITY
    while len(inserted) >= capacity * 3 // 4:
        capacity *= 2
    return hash_map_order(inserted, hash_of, capacity)


def timeline_map_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """``keys``, which are inserted in their order, as they come out of Kafka's TimelineHashMap: by the upper bits of
    the hash code times a constant, and of those with the same bits the last inserted first."""
    inserted = list(keys)
    inserted.reverse()
    bits = 1
    while len(inserted) * 3 > 4 << bits:
        bits += 1

    def slot(key: K) -> int:
        return (hash_of(key) * _FIBONACCI & _LONG_BITS) >> (64 - bits)

    return sorted(inserted, key=slot)


def as_in_hash_map(items: Iterable[K], name_of: Callable[[K], str]) -> list[K]:
    """Items with different names in the order in which a HashMap by their names has them."""
    named = {name_of(item): item for item in items}
    return [named[name] for name in hash_map_order(named, java_hash)]


def as_in_timeline_map(items: Iterable[K], name_of: Callable[[K], str]) -> list[K]:
    """Items with different names in the order in which a TimelineHashMap by their names has them."""
    named = {name_of(item): item for item in items}
    return [named[name] for name in timeline_map_order(named, java_hash)]


def hash_of_partition(topic: str, partition: int) -> int:
    """The ``hashCode`` of a TopicPartition."""
    return 31 * (31 + partition) + java_hash(topic)


def hash_of_map(entries: Mapping[str, str | None]) -> int:
    """The ``hashCode`` of a map from texts to texts."""
    return sum(java_hash(key) ^ (0 if value is None else java_hash(value)) for key, value in entries.items())
