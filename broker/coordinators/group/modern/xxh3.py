"""XXH3, 64 bits, without a seed: the hash that Kafka stores of topics (KIP-1101).

A hash is computed when a topic of a group has changed, at a few MB/s: 1 ms for a topic of 1,000 partitions. The
algorithm is described in the specification of xxHash (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
"""

from __future__ import annotations

import struct as binary
from typing import Final

_MASK: Final = (1 << 64) - 1
_PRIME32_1: Final = 0x9E3779B1
_PRIME32_2: Final = 0x85EBCA77
_PRIME32_3: Final = 0xC2B2AE3D
_PRIME64_1: Final = 0x9E3779B185EBCA87
_PRIME64_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME64_3: Final = 0x165667B19E3779F9
_PRIME64_4: Final = 0x85EBCA77C2B2AE63
_PRIME64_5: Final = 0x27D4EB2F165667C5
_PRIME_MX1: Final = 0x165667919E3779F9
_PRIME_MX2: Final = 0x9FB21C651E98DF25

_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)

_STRIPE_BYTES: Final = 64
_STRIPES_A_BLOCK: Final = (len(_SECRET) + 1 - _STRIPE_BYTES) // 8
_BLOCK_BYTES: Final = _STRIPE_BYTES * _STRIPES_A_BLOCK

_u32: Final = binary.Struct("<I").unpack_from
_u64: Final = binary.Struct("<Q").unpack_from
_stripe: Final = binary.Struct("<8Q").unpack_from


def xxh3_64(data: bytes) -> int:
    """The hash of ``data``, unsigned."""
    length = len(data)
    if length <= 16:
        return _short(data, length)
    if length <= 128:
        return _middle(data, length)
    if length <= 240:
        return _longer(data, length)
    return _long(data, length)


def _short(data: bytes, length: int) -> int:
    if length > 8:
        low = _at(data, 0) ^ _at(_SECRET, 24) ^ _at(_SECRET, 32)
        high = _at(data, length - 8) ^ _at(_SECRET, 40) ^ _at(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((length + swapped + high + _folded(low, high)) & _MASK)
    if length >= 4:
        mixed: int = (_u32(data, length - 4)[0] + (_u32(data, 0)[0] << 32)) ^ _at(_SECRET, 8) ^ _at(_SECRET, 16)
        mixed ^= _rotated(mixed, 49) ^ _rotated(mixed, 24)
        mixed = mixed * _PRIME_MX2 & _MASK
        mixed ^= (mixed >> 35) + length
        mixed = mixed * _PRIME_MX2 & _MASK
        return mixed ^ (mixed >> 28)
    if length > 0:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
        return _avalanche_of_xxh64(combined ^ _u32(_SECRET, 0)[0] ^ _u32(_SECRET, 4)[0])
    return _avalanche_of_xxh64(_at(_SECRET, 56) ^ _at(_SECRET, 64))


def _middle(data: bytes, length: int) -> int:
    hashed = length * _PRIME64_1
    for pair in range((length - 1) // 32, -1, -1):
        hashed += _mixed(data, 16 * pair, 32 * pair)
        hashed += _mixed(data, length - 16 * (pair + 1), 32 * pair + 16)
    return _avalanche(hashed & _MASK)


def _longer(data: bytes, length: int) -> int:
    hashed = length * _PRIME64_1
    for number in range(8):
        hashed += _mixed(data, 16 * number, 16 * number)
    hashed = _avalanche(hashed & _MASK)
    for number in range(8, length // 16):
        hashed += _mixed(data, 16 * number, 16 * (number - 8) + 3)
    hashed += _mixed(data, length - 16, 136 - 17)
    return _avalanche(hashed & _MASK)


def _long(data: bytes, length: int) -> int:
    lanes = [
        _PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3, _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1
    ]  # fmt: skip
    for stripe in range((length - 1) // _STRIPE_BYTES):
        place = stripe % _STRIPES_A_BLOCK
        _accumulate(lanes, data, _STRIPE_BYTES * stripe, 8 * place)
        if (
            place == _STRIPES_A_BLOCK - 1
            and (stripe + 1) * _STRIPE_BYTES <= (length - 1) // _BLOCK_BYTES * _BLOCK_BYTES
        ):
            _scramble(lanes)
    _accumulate(lanes, data, length - _STRIPE_BYTES, len(_SECRET) - _STRIPE_BYTES - 7)
    hashed = length * _PRIME64_1
    for pair in range(4):
        hashed += _folded(
            lanes[2 * pair] ^ _at(_SECRET, 11 + 16 * pair), lanes[2 * pair + 1] ^ _at(_SECRET, 19 + 16 * pair)
        )
    return _avalanche(hashed & _MASK)


def _accumulate(lanes: list[int], data: bytes, position: int, secret: int) -> None:
    for lane, (value, key) in enumerate(zip(_stripe(data, position), _stripe(_SECRET, secret), strict=True)):
        keyed = value ^ key
        lanes[lane ^ 1] = (lanes[lane ^ 1] + value) & _MASK
        lanes[lane] = (lanes[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK


def _scramble(lanes: list[int]) -> None:
    for lane, key in enumerate(_stripe(_SECRET, len(_SECRET) - _STRIPE_BYTES)):
        mixed = lanes[lane] ^ (lanes[lane] >> 47) ^ key
        lanes[lane] = mixed * _PRIME32_1 & _MASK


def _mixed(data: bytes, position: int, secret: int) -> int:
    return _folded(_at(data, position) ^ _at(_SECRET, secret), _at(data, position + 8) ^ _at(_SECRET, secret + 8))


def _folded(one: int, other: int) -> int:
    product = one * other
    return (product & _MASK) ^ (product >> 64)


def _rotated(number: int, by: int) -> int:
    return (number << by | number >> (64 - by)) & _MASK


def _avalanche(hashed: int) -> int:
    hashed = (hashed ^ (hashed >> 37)) * _PRIME_MX1 & _MASK
    return hashed ^ (hashed >> 32)


def _avalanche_of_xxh64(hashed: int) -> int:
    hashed = (hashed ^ (hashed >> 33)) * _PRIME64_2 & _MASK
    hashed = (hashed ^ (hashed >> 29)) * _PRIME64_3 & _MASK
    return hashed ^ (hashed >> 32)


def _at(data: bytes, position: int) -> int:
    found: int = _u64(data, position)[0]
    return found
