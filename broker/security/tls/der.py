"""DER, the bytes that certificates are made of: a value is a tag, a length and a content, which may be values again."""

from collections.abc import Iterator
from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_IDENTIFIER: Final = 0x06

_LONG_FORM: Final = 0x80
_SEVEN_BITS: Final = 0x7F
_MOST_LENGTH_BYTES: Final = 4
_LONG_TAG: Final = 0x1F
_IDS_BELOW_FIRST: Final = 40
_LARGEST_FIRST: Final = 2


class MalformedDer(Exception):
    """Bytes that are no DER, or not of the form that is expected."""


class Value(NamedTuple):
    """One value."""

    tag: int
    content: bytes
    encoded: bytes
    """Tag and length included."""


def values(data: bytes) -> Iterator[Value]:
    """The values that stand behind each other in ``data``. Raises `MalformedDer`."""
    position = 0
    while position < len(data):
        start = position
        try:
            tag, length = data[position], data[position + 1]
            position += 2
            if length & _LONG_FORM:
                size = length & _SEVEN_BITS
                length = int.from_bytes(data[position : position + size])
                position += size
            else:
                size = 1
        except IndexError:
            raise MalformedDer("a value ends before its length") from None
        if not 0 < size <= _MOST_LENGTH_BYTES or tag & _LONG_TAG == _LONG_TAG or position + length > len(data):
            raise MalformedDer(f"a value with tag {tag} has {length} bytes, and {len(data) - position} are there")
        yield Value(tag, data[position : position + length], data[start : position + length])
        position += length


def contents(data: bytes, tag: int) -> list[Value]:
    """The values in the one value that ``data`` begins with, which has this tag. Raises `MalformedDer`."""
    outer = next(values(data), None)
    if outer is None or outer.tag != tag:
        raise MalformedDer(f"tag {outer.tag if outer else 'none'} where {tag} is due")
    return list(values(outer.content))


def object_identifier(content: bytes) -> str:
    """An object identifier with its dots. Raises `MalformedDer`."""
    if not content or content[-1] & _LONG_FORM:
        raise MalformedDer("an object identifier has no end")
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & _SEVEN_BITS
        if not byte & _LONG_FORM:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // _IDS_BELOW_FIRST, _LARGEST_FIRST)
    return ".".join(map(str, (first, numbers[0] - first * _IDS_BELOW_FIRST, *numbers[1:])))
