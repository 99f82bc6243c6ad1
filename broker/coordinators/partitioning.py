"""Which partition of a coordinators' topic a key belongs to: Kafka's hash, so that Kafka's tools agree."""

import sys
from functools import lru_cache
from typing import Final

_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_BITS: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000

_KEPT: Final = 4_096
_LONGEST_KEPT: Final = 128
"""The hashes of so many keys are cached, if a key has no more characters than that: clients choose the keys."""


def java_hash(text: str) -> int:
    """What Java's ``String.hashCode`` gives: over UTF-16 code units, as a signed number of 32 bits."""
    value = 0
    for unit in memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H"):
        value = 31 * value + unit & _BITS
    return (value ^ _SIGN) - _SIGN


_kept_hash = lru_cache(_KEPT)(java_hash)


def partition_of(key: str, partitions: int) -> int:
    """The partition of a group id or a transactional id in a topic of so many partitions."""
    # The same groups commit again and again: hashing costs 3 us for an id of 36 characters (bench: commits).
    value = _kept_hash(key) if len(key) <= _LONGEST_KEPT else java_hash(key)
    # In Java the absolute value of the least number is that number; Kafka takes 0 for it.
    return 0 if value == -_SIGN else abs(value) % partitions
