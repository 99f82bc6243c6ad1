"""How the coordinators' own topics frame a record: a number before the key, which says what it is, and one before the
value, its version.

key     type      i16; what the record is about, and how the rest of the key reads
        fields    not flexible
value   version   i16
        fields    of the type; no value at all is a tombstone: what the key names is gone
"""

import struct as binary
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from protocol.codec import Writer, decoder, writer
from protocol.primitives import Buffer, Malformed
from protocol.schema import describe

R = TypeVar("R")

_NUMBER: Final = binary.Struct(">h")


class UnknownRecord(NamedTuple):
    """A record of a type, or with a value of a version, that is not known here: to be left alone, never tombstoned."""

    type: int
    raw_key: bytes
    raw_value: bytes | None


def by_type(classes: Iterable[type[Any]]) -> dict[int, type[Any]]:
    """Declared keys or values by the type that they are declared with."""
    return {describe(cls).key: cls for cls in classes}


def encode_key(key: object) -> bytes:
    """Return the key of a record."""
    cls = type(key)
    return _encode(key, _keys.get(cls) or _keys.setdefault(cls, (_NUMBER.pack(describe(cls).key), writer(cls, 0))))


def encode_value(value: object, version: int) -> bytes:
    """Return the value of a record; what ``version`` has no field for is left out."""
    kind = type(value), version
    return _encode(value, _values.get(kind) or _values.setdefault(kind, (_NUMBER.pack(version), writer(*kind))))


def _encode(message: object, known: tuple[bytes, Writer]) -> bytes:
    number, write = known
    return bytes(write(message, bytearray(number), []))


_keys: Final[dict[type[Any], tuple[bytes, Writer]]] = {}
_values: Final[dict[tuple[type[Any], int], tuple[bytes, Writer]]] = {}


def decode_record(
    made: Callable[[Any, Any, int | None], R],
    key_types: Mapping[int, type[Any]],
    value_types: Mapping[int, type[Any]],
    key: Buffer,
    value: Buffer | None,
) -> R | UnknownRecord:
    """Read a record whose key and value are among these; ``made`` is given both, and the value's version.

    Raises `Malformed` for bytes that end too early, and for bytes left over.
    """
    number = _number(key, "key")
    key_type = key_types.get(number)
    if key_type is None:
        return _unknown(number, key, value)
    decoded_key, end = decoder(key_type, 0)(key, _NUMBER.size)
    if end != len(key):
        raise _left_over(key_type, 0, key, end)
    if value is None:
        return made(decoded_key, None, None)
    version = _number(value, "value")
    value_type = value_types[number]
    if not 0 <= version <= describe(value_type).versions[1]:
        return _unknown(number, key, value)
    decoded_value, end = decoder(value_type, version)(value, _NUMBER.size)
    if end != len(value):
        raise _left_over(value_type, version, value, end)
    return made(decoded_key, decoded_value, version)


def _number(buffer: Buffer, what: str) -> int:
    if len(buffer) < _NUMBER.size:
        raise Malformed(f"the {what} of a coordinator's record has {len(buffer)} bytes and no room for its number")
    number: int = _NUMBER.unpack_from(buffer)[0]
    return number


def _unknown(number: int, key: Buffer, value: Buffer | None) -> UnknownRecord:
    return UnknownRecord(type=number, raw_key=bytes(key), raw_value=None if value is None else bytes(value))


def _left_over(cls: type[Any], version: int, buffer: Buffer, end: int) -> Malformed:
    return Malformed(f"{len(buffer) - end} bytes are left over behind a {cls.__name__} of version {version}")
