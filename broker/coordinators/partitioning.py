"""Which partition of a coordinators' topic holds what belongs to a key: Kafka's hash, so that Kafka's tools agree."""

import sys
from typing import Final

_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_BITS: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000


def java_hash(text: str) -> int:
    """What Java's ``String.hashCode`` gives: over UTF-16 code units, as a signed number of 32 bits."""
    value = 0
    for unit in memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H"):
        value = 31 * value + unit & _BITS
    return (value ^ _SIGN) - _SIGN


def partition_of(key: str, partitions: int) -> int:
    """The partition of a group id or a transactional id in a topic of so many partitions."""
    value = java_hash(key)
    # In Java the absolute value of the least number is that number; Kafka takes 0 for it.
    return 0 if value == -_SIGN else abs(value) % partitions
