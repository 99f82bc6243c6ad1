"""How the coordinators' own topics frame a record: a number before the key, which says what it is, and one before the
value, its version.

key     type      i16; what the record is about, and how the rest of the key reads
        fields    not flexible
value   version   i16
        fields    of the type; no value at all is a tombstone: what the key names is gone
"""

import struct as binary
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from protocol.codec import decoder, encode
from protocol.primitives import Buffer, Malformed
from protocol.schema import describe

_NUMBER: Final = binary.Struct(">h")


class DecodedRecord(NamedTuple):
    """Key and value of one record, as the messages they are."""

    key: Any
    value: Any | None
    version: int | None
    """Of the value; None for a tombstone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownRecord:
    """A record of a type, or with a value of a version, that is not known here: to be left alone, never tombstoned."""

    type: int
    raw_key: bytes
    raw_value: bytes | None


def by_type(classes: Iterable[type[Any]]) -> dict[int, type[Any]]:
    """Declared keys or values by the type that they are declared with."""
    return {describe(cls).key: cls for cls in classes}


def encode_key(key: object) -> bytes:
    """Return the key of a record."""
    return _NUMBER.pack(describe(type(key)).key) + encode(key, 0)


def encode_value(value: object, version: int) -> bytes:
    """Return the value of a record; what ``version`` has no field for is left out."""
    return _NUMBER.pack(version) + encode(value, version)


def decode_record(
    key_types: Mapping[int, type[Any]], value_types: Mapping[int, type[Any]], key: Buffer, value: Buffer | None
) -> DecodedRecord | UnknownRecord:
    """Read a record whose key and value are among these.

    Raises `Malformed` for bytes that end too early, and for bytes left over.
    """
    number = _number(key, "key")
    if number not in key_types:
        return _unknown(number, key, value)
    decoded_key = _decode_behind_number(key_types[number], 0, key)
    if value is None:
        return DecodedRecord(decoded_key, None, None)
    version = _number(value, "value")
    value_type = value_types[number]
    if not 0 <= version <= describe(value_type).versions[1]:
        return _unknown(number, key, value)
    return DecodedRecord(decoded_key, _decode_behind_number(value_type, version, value), version)


def _number(buffer: Buffer, what: str) -> int:
    if len(buffer) < _NUMBER.size:
        raise Malformed(f"the {what} of a coordinator's record has {len(buffer)} bytes and no room for its number")
    number: int = _NUMBER.unpack_from(buffer)[0]
    return number


def _unknown(number: int, key: Buffer, value: Buffer | None) -> UnknownRecord:
    return UnknownRecord(type=number, raw_key=bytes(key), raw_value=None if value is None else bytes(value))


def _decode_behind_number(cls: type[Any], version: int, buffer: Buffer) -> Any:
    decoded, end = decoder(cls, version)(buffer, _NUMBER.size)
    if end != len(buffer):
        raise Malformed(f"{len(buffer) - end} bytes are left over behind a {cls.__name__} of version {version}")
    return decoded
