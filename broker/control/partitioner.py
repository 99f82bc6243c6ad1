"""Which partition a record goes to: that which the Java client chooses for its key (murmur2)."""

from typing import Final

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_SHIFT: Final = 24
_32_BITS: Final = 0xFFFF_FFFF
_POSITIVE: Final = 0x7FFF_FFFF


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key among so many."""
    return (murmur2(key) & _POSITIVE) % partitions


def murmur2(data: bytes) -> int:
    """The hash of 32 bits by which Kafka's clients spread keys (Austin Appleby's MurmurHash2)."""
    result = _SEED ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _FACTOR & _32_BITS
        word = (word ^ word >> _SHIFT) * _FACTOR & _32_BITS
        result = result * _FACTOR & _32_BITS ^ word
    if rest := data[whole:]:
        result = (result ^ int.from_bytes(rest, "little")) * _FACTOR & _32_BITS
    result = (result ^ result >> 13) * _FACTOR & _32_BITS
    return result ^ result >> 15
