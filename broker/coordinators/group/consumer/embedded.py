"""The embedded consumer protocol: what members of the classic protocol tell each other, and the coordinator has to read
and write while they live in a group of the newer protocol.

subscription   version i16, topics, user data; from version 1 owned partitions, 2 generation i32, 3 rack
assignment     version i16, partitions by topic, user data; the same in every version
topics         i32 how many, then each: i16 length, UTF-8
partitions     i32 how many topics, then each: its name as above, i32 how many partitions, i32 each
user data      i32 length, -1 for none, then the bytes
"""

from __future__ import annotations

import struct as binary
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

_SHORT: Final = binary.Struct(">h")
_INT: Final = binary.Struct(">i")
LAST_VERSION: Final = 3
"""Of both; a later version is read as this one."""
_NO_DATA: Final = -1


class Malformed(ValueError):
    """Bytes that are no subscription or assignment."""


class EmbeddedSubscription(NamedTuple):
    """A subscription, as far as the coordinator needs it."""

    version: int
    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]]
    """Partitions by topic that the member has; empty in version 0."""
    rack_id: str | None


class EmbeddedAssignment(NamedTuple):
    """An assignment."""

    partitions: Mapping[str, frozenset[int]]
    has_user_data: bool
    """An assignor of the users' own has added something, which the newer protocol can't carry."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._at = 0

    def number(self, kind: binary.Struct) -> int:
        try:
            (found,) = kind.unpack_from(self._data, self._at)
        except binary.error as error:
            raise Malformed(str(error)) from None
        self._at += kind.size
        return int(found)

    def many(self) -> int:
        count = self.number(_INT)
        if not 0 <= count <= len(self._data):
            raise Malformed(f"{count} entries in {len(self._data)} bytes")
        return count

    def text(self) -> str | None:
        size = self.number(_SHORT)
        return None if size < 0 else self._bytes(size).decode("utf-8", "replace")

    def data(self) -> bytes:
        size = self.number(_INT)
        return b"" if size == _NO_DATA else self._bytes(size)

    def partitions(self) -> dict[str, frozenset[int]]:
        found: dict[str, frozenset[int]] = {}
        for _ in range(self.many()):
            name = self.text() or ""
            found[name] = frozenset(self.number(_INT) for _ in range(self.many()))
        return found

    def _bytes(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if size < 0 or len(found) != size:
            raise Malformed(f"{size} bytes are announced at {self._at} of {len(self._data)}")
        self._at += size
        return found


def read_subscription(data: bytes) -> EmbeddedSubscription:
    """Raises `Malformed`."""
    reader = _Reader(data)
    version = min(_version(reader), LAST_VERSION)
    topics = frozenset(reader.text() or "" for _ in range(reader.many()))
    reader.data()
    owned = reader.partitions() if version >= 1 else {}
    if version >= 2:
        reader.number(_INT)
    rack_id = reader.text() if version >= 3 else None
    return EmbeddedSubscription(version, topics, owned, rack_id or None)


def read_assignment(data: bytes) -> EmbeddedAssignment:
    """The assignment; nothing at all is an assignment of nothing. Raises `Malformed`."""
    if not data:
        return EmbeddedAssignment({}, has_user_data=False)
    reader = _Reader(data)
    _version(reader)
    partitions = reader.partitions()
    return EmbeddedAssignment(partitions, has_user_data=bool(reader.data()))


def write_assignment(version: int, partitions: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    """The bytes of an assignment without user data."""
    topics = sorted(partitions)
    parts = [_SHORT.pack(version), _INT.pack(len(topics))]
    for name, indexes in topics:
        text, numbers = name.encode(), sorted(indexes)
        parts += [_SHORT.pack(len(text)), text, _INT.pack(len(numbers)), *map(_INT.pack, numbers)]
    return b"".join((*parts, _INT.pack(_NO_DATA)))


def _version(reader: _Reader) -> int:
    version = reader.number(_SHORT)
    if version < 0:
        raise Malformed(f"version {version}")
    return version
