"""The variable-length integers inside records: zigzag, seven bits a byte, least significant first.

0, -1, 1, -2, 2 ... are numbered 0, 1, 2, 3, 4 ...; a set top bit says that another byte follows. A varint has up to
five bytes and gives 32 bits, a varlong up to ten and 64; what a last byte has beyond these is dropped, as by Kafka.
"""

from typing import Final

VARINT_BYTES: Final = 5
VARLONG_BYTES: Final = 10
_SIGN_32: Final = 1 << 31
_SIGN_64: Final = 1 << 63

_SHORT: Final = tuple(
    bytes((number,)) if number < 0x80 else bytes((number & 0x7F | 0x80, number >> 7)) for number in range(2048)
)
"""The varints up to 1023: most lengths, offset deltas and timestamp deltas of records."""


def encode_signed(value: int) -> bytes:
    """Encode a number as a varint or varlong; the bytes of both are the same."""
    number = value << 1 if value >= 0 else ~(value << 1)
    if number < 2048:
        return _SHORT[number]
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def decode_signed(data: bytes, position: int, most_bytes: int) -> tuple[int, int]:
    """The number at `position` and the position behind it.

    Raises IndexError if the data end inside the number and OverflowError if it has more than `most_bytes`.
    """
    # Nearly all numbers in records have one byte or two.
    byte = data[position]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), position + 1
    number = byte & 0x7F | data[position + 1] << 7
    if number < 0x4000:
        return number >> 1 ^ -(number & 1), position + 2
    number = shift = 0
    for _ in range(most_bytes):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if most_bytes == VARINT_BYTES:
                number &= 0xFFFFFFFF
            else:
                number &= 0xFFFFFFFFFFFFFFFF
            return number >> 1 ^ -(number & 1), position
        shift += 7
    raise OverflowError(f"a number of more than {most_bytes} bytes")


def wrap_64(value: int) -> int:
    """`value` as a signed 64-bit integer: sums of timestamps wrap around, as for every other reader of the log."""
    return (value + _SIGN_64 & 0xFFFFFFFFFFFFFFFF) - _SIGN_64
