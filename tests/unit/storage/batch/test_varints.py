"""Zigzag numbers of one to ten bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch.varints import VARINT_BYTES, VARLONG_BYTES, decode_signed, encode_signed, wrap_64


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (-1, "01"), (5, "0a"), (63, "7e"), (64, "8001"), (-65, "8101"), (2**31 - 1, "feffffff0f")],
)
def test_numbers_have_protocol_buffers_zigzag_form(number: int, encoded: str) -> None:
    assert encode_signed(number) == bytes.fromhex(encoded)
    assert decode_signed(bytes.fromhex(encoded), 0, VARINT_BYTES) == (number, len(encoded) // 2)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_every_64_bit_number_is_read_back_where_it_stands(number: int, before: bytes) -> None:
    data = before + encode_signed(number) + b"\xff"
    assert decode_signed(data, len(before), VARLONG_BYTES) == (number, len(data) - 1)


@pytest.mark.parametrize("most_bytes", [VARINT_BYTES, VARLONG_BYTES])
def test_a_number_that_does_not_end_is_refused(most_bytes: int) -> None:
    with pytest.raises(OverflowError, match=f"more than {most_bytes} bytes"):
        decode_signed(b"\x80" * 11, 0, most_bytes)
    for length in range(most_bytes):
        with pytest.raises(IndexError):
            decode_signed(b"\x80" * length, 0, most_bytes)


def test_what_a_last_byte_has_too_much_is_dropped() -> None:
    assert decode_signed(b"\xfe\xff\xff\xff\x7f", 0, VARINT_BYTES) == (2**31 - 1, 5)


def test_sums_wrap_at_64_bits() -> None:
    assert wrap_64(2**63) == -(2**63)
    assert wrap_64(-(2**63) - 1) == 2**63 - 1
    assert wrap_64(-5) == -5
