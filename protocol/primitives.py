"""What messages are made of below the level of fields: chunks, varints, and the refusal of what cannot be read.

A uvarint is little-endian in groups of seven bits; bit 7 of a byte says that another follows. On the wire it has
32 bits at most, so five bytes.
"""

from typing import Final, Protocol, TypeAlias


class Malformed(ValueError):
    """What a peer sent, or a file holds, cannot be read as what it should be."""


class Unencodable(ValueError):
    """A message of ours holds what its version has no bytes for: null, a wrong type, a number out of range."""


class SizedRegion(Protocol):
    """Anything with a length in bytes that is passed through to the socket untouched, e.g. part of a file."""

    def __len__(self) -> int: ...


Chunk: TypeAlias = bytes | bytearray | memoryview | SizedRegion
"""A piece of an encoded message."""

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What messages are decoded from: bytes of format ``B``."""


def received(records: Chunk | None) -> memoryview:
    """The bytes of a field with records, as a decoded message has them; empty for null."""
    if records is None:
        return memoryview(b"")
    assert isinstance(records, (bytes, bytearray, memoryview)), "only an answer to be sent has a region of a file"
    return memoryview(records)


LONGEST_UVARINT: Final = 5

MOST_ELEMENTS: Final = 100_000
"""What all arrays and sections of tagged fields of one message may hold together. Kafka has no such bound: there 50 MB
of short topic names end a broker with 512 MB of heap. Each element costs microseconds and a hundred bytes or more, so
this bounds the time that one request takes from all others (docs/decisions/bad-input.md)."""


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the number at ``position`` and the position behind it.

    Raises `Malformed` for a sixth byte and `IndexError` where the buffer ends too early.
    """
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    number = byte & 0x7F
    for shift in range(7, 7 * LONGEST_UVARINT, 7):
        byte = buffer[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise Malformed(f"a uvarint ending at byte {position} goes on after {LONGEST_UVARINT} bytes")


def too_many_elements(what: str, count: int) -> Malformed:
    """The refusal of ``count`` elements more."""
    return Malformed(f"{what} has {count} elements; a message holds {MOST_ELEMENTS} in all")


def encode_uvarint(number: int) -> bytes:
    """Return the bytes of ``number``, which must not be negative."""
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def skip_tagged_fields(buffer: Buffer, position: int) -> int:
    """Return the position behind a section of tagged fields of which none is known here.

    Order and uniqueness of the tags are not looked at, as Kafka does not.
    """
    count, position = read_uvarint(buffer, position)
    if count > MOST_ELEMENTS:
        raise too_many_elements("a section of tagged fields", count)
    return skip_counted_fields(buffer, position, count)


def skip_counted_fields(buffer: Buffer, position: int, count: int) -> int:
    """The same behind the number of fields."""
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if size > len(buffer) - position:
            raise Malformed(
                f"a tagged field of {size} bytes at byte {position} has {len(buffer) - position} bytes left"
            )
        position += size
    return position
