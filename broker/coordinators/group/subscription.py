"""Which topics the members of a consumer group subscribe to: all that the coordinator reads of the members' metadata.

version     i16     of the rest; in every version the beginning is that of version 0
topics      i32 how many, then each: i16 length, UTF-8
user data   i32 length, -1 for none, then the bytes
…           partitions owned, generation and rack, from version 1, 2 and 3 on: the members' own affair
"""

import struct as binary
from collections.abc import Iterable
from typing import Final

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of groups whose members send subscriptions."""

_HEAD: Final = binary.Struct(">hi")
_LENGTH: Final = binary.Struct(">h")
_SIZE: Final = binary.Struct(">i")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that any member subscribes to; None if a subscription can't be read, since it may name any topic."""
    try:
        return frozenset(topic for subscription in subscriptions for topic in _topics(subscription))
    except (binary.error, ValueError):
        return None


def _topics(subscription: bytes) -> list[str]:
    version, count = _HEAD.unpack_from(subscription)
    if version < 0 or count < 0:
        raise ValueError(f"a subscription of version {version} with {count} topics")
    topics = []
    position = _HEAD.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(subscription, position)
        position += _LENGTH.size
        topics.append(str(_bytes(subscription, position, length), "utf-8", "replace"))
        position += length
    (size,) = _SIZE.unpack_from(subscription, position)
    if size != -1:
        _bytes(subscription, position + _SIZE.size, size)
    return topics


def _bytes(subscription: bytes, position: int, size: int) -> bytes:
    found = subscription[position : position + size] if size >= 0 else b""
    if len(found) != size:
        raise ValueError(f"{size} bytes are announced at {position} of a subscription of {len(subscription)}")
    return found
