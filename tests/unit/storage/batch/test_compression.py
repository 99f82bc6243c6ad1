"""The containers: round trips, other libraries' forms, damage, and bombs."""

import gzip
import tracemalloc
import zlib
from contextlib import suppress

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.batch.compression import compress, decompress
from storage.batch.record_batch import Codec
from storage.errors import DecompressionTooLarge, UndecodableRecords
from tests.support.batches import COMPRESSING, EVERY_CODEC

MIB = 1 << 20


@given(payload=st.binary(max_size=3000), repeats=st.sampled_from([0, 1, 40]), codec=st.sampled_from(EVERY_CODEC))
@settings(deadline=None, max_examples=150)
def test_what_is_compressed_opens_to_the_same(payload: bytes, repeats: int, codec: Codec) -> None:
    whole = payload * repeats
    assert decompress(codec, compress(codec, whole), len(whole)) == whole


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (-131072, -5, 3, 19))],
)
def test_every_level_that_a_topic_may_ask_for_works(codec: Codec, levels: tuple[int, ...]) -> None:
    payload = b"some text to compress " * 1000
    for level in levels:
        assert decompress(codec, compress(codec, payload, level), len(payload)) == payload


def test_the_bound_is_exact_for_every_codec() -> None:
    for codec in EVERY_CODEC:
        packed = compress(codec, b"a" * 5000)
        assert decompress(codec, packed, 5000) == b"a" * 5000
        with pytest.raises(DecompressionTooLarge):
            decompress(codec, packed, 4999)


def test_xerial_snappy_is_cut_into_blocks_of_32_kib() -> None:
    packed = compress(Codec.SNAPPY, bytes(70_000))
    assert packed.startswith(bytes.fromhex("82534e4150505900 00000001 00000001"))
    position, blocks = 16, 0
    while position < len(packed):
        position += 4 + int.from_bytes(packed[position : position + 4])
        blocks += 1
    assert blocks == 3


def test_raw_snappy_without_a_container_is_read() -> None:
    payload = b"librdkafka sends this " * 100
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(payload)), MIB) == payload


def test_containers_that_follow_each_other_are_one_stream() -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.ZSTD):
        assert decompress(codec, compress(codec, b"one ") + compress(codec, b"two"), 7) == b"one two"
        with pytest.raises(DecompressionTooLarge):
            decompress(codec, compress(codec, b"one ") + compress(codec, b"two"), 6)


def test_the_forms_of_other_libraries_are_read() -> None:
    payload = b"other people's frames " * 5000
    stream = zstandard.ZstdCompressor().compressobj()
    assert decompress(Codec.ZSTD, stream.compress(payload) + stream.flush(), MIB) == payload
    assert decompress(Codec.GZIP, gzip.compress(payload), MIB) == payload
    for options in ({"block_linked": True}, {"content_checksum": True, "block_checksum": True}, {"store_size": False}):
        assert decompress(Codec.LZ4, lz4.frame.compress(payload, **options), MIB) == payload


@pytest.mark.parametrize("codec", COMPRESSING)
def test_no_part_of_a_stream_opens_without_an_error(codec: Codec) -> None:
    packed = compress(codec, b"some text to compress, some text to compress " * 20)
    # Xerial has no mark of its end: a cut between blocks goes unnoticed here and is noticed by the records.
    lengths = range(17 if codec is Codec.SNAPPY else 0, len(packed))
    for length in lengths:
        with pytest.raises(UndecodableRecords):
            decompress(codec, packed[:length], MIB)


@given(data=st.data(), codec=st.sampled_from(COMPRESSING))
@settings(deadline=None, max_examples=300)
def test_flipped_bits_give_our_errors_only(data: st.DataObject, codec: Codec) -> None:
    packed = bytearray(compress(codec, b"some text to compress, some text to compress " * 20))
    for _ in range(data.draw(st.integers(1, 3))):
        bit = data.draw(st.integers(0, len(packed) * 8 - 1))
        packed[bit // 8] ^= 1 << bit % 8
    with suppress(UndecodableRecords):
        decompress(codec, packed, MIB)


@given(garbage=st.binary(max_size=100), codec=st.sampled_from(COMPRESSING))
@settings(deadline=None, max_examples=300)
def test_garbage_gives_our_errors_only(garbage: bytes, codec: Codec) -> None:
    with suppress(UndecodableRecords):
        decompress(codec, garbage, MIB)


def bomb(codec: Codec, opened_bytes: int) -> bytes:
    """As few bytes as possible that open to `opened_bytes` of zeros."""
    zeros = bytes(MIB)
    rounds = opened_bytes // MIB
    match codec:
        case Codec.GZIP:
            deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
            return b"".join([*(deflater.compress(zeros) for _ in range(rounds)), deflater.flush()])
        case Codec.ZSTD:
            stream = zstandard.ZstdCompressor(level=19).compressobj()
            return b"".join([*(stream.compress(zeros) for _ in range(rounds)), stream.flush()])
        case _:
            return compress(codec, bytes(opened_bytes))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_costs_no_more_memory_than_the_bound(codec: Codec) -> None:
    packed = bomb(codec, 128 * MIB)
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionTooLarge, match="open to more than"):
            decompress(codec, packed, 4 * MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # zstd may overshoot by what one slice of its input opens to; nothing else by more than a copy.
    assert peak < (24 if codec is Codec.ZSTD else 10) * MIB + len(packed)


def test_raw_snappy_that_claims_more_than_it_can_hold_is_refused_before_anything_is_allocated() -> None:
    claims_four_gib = b"\xff\xff\xff\xff\x0f" + b"\x00" * 20
    with pytest.raises(UndecodableRecords, match="claim to open to"):
        decompress(Codec.SNAPPY, claims_four_gib, 1 << 40)
