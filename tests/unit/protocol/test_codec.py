"""The generated codecs: equal to the interpreter, and safe against whatever comes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dev.repository import PACKAGES, REPOSITORY
from protocol.codec import Malformed, Unencodable, decode, decoder, encode, encoder, source
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.topics import DeleteTopicsRequest
from protocol.primitives import MOST_ELEMENTS, encode_uvarint
from protocol.schema import (
    NO_UUID,
    Array,
    Bytes,
    Float64,
    Int8,
    Int32,
    String,
    UInt16,
    UInt32,
    Uuid,
    describe,
    field,
    frozen_struct,
    layout,
    message,
    struct,
)
from tests.unit.protocol.declared import EVERY_VERSION, examples, label
from tests.unit.protocol.interpreter import interpret, write

few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
NEWEST = list({cls: (cls, version) for cls, version in EVERY_VERSION}.values())
# Compiled are the primitives for varints and tagged fields that a codec calls: the newest versions call all of them.
VERSIONS = EVERY_VERSION if PACKAGES == REPOSITORY else NEWEST
every_version = pytest.mark.parametrize(("cls", "version"), VERSIONS, ids=label)

Partition = FetchRequest.Topic.Partition


@every_version
def test_the_compiled_codec_equals_the_interpreter(cls: type[Any], version: int) -> None:
    @few
    @given(examples(cls, version))
    def equals(message: Any) -> None:
        encoded = encode(message, version)
        assert encoded == write(message, version)
        assert decoder(cls, version)(encoded, 0) == (message, len(encoded))  # which reads every slot
        assert interpret(cls, version, encoded) == (message, len(encoded))

    equals()


@every_version
def test_no_proper_prefix_of_a_message_can_be_read(cls: type[Any], version: int) -> None:
    @settings(few, max_examples=4)
    @given(examples(cls, version))
    def refuses(message: Any) -> None:
        encoded = encode(message, version)
        for length in range(len(encoded)):
            with pytest.raises(Malformed):
                decode(cls, version, encoded[:length])

    refuses()


@every_version
def test_garbage_is_malformed_or_a_message(cls: type[Any], version: int) -> None:
    damage = st.lists(st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=5)), max_size=3)

    @settings(few, max_examples=10)
    @given(st.binary(max_size=80) | examples(cls, version).map(lambda m: encode(m, version)), damage)
    def copes(data: bytes, damage: list[tuple[int, bytes]]) -> None:
        wild = bytearray(data)
        for position, replacement in damage:
            wild[position : position + len(replacement)] = replacement
        try:
            message, end = decoder(cls, version)(memoryview(wild), 0)
        except Malformed:
            return
        assert 0 <= end <= len(wild)
        assert encode(decode(cls, version, encode(message, version)), version) == encode(message, version)

    copes()


@every_version
def test_bytes_behind_a_message_are_left_alone(cls: type[Any], version: int) -> None:
    @settings(few, max_examples=2)
    @given(examples(cls, version))
    def ignores(message: Any) -> None:
        encoded = encode(message, version)
        assert decoder(cls, version)(b"\xff\xff" + encoded + b"\xff\xff", 2) == (message, 2 + len(encoded))

    ignores()


def fetch_request(**more: Any) -> FetchRequest:
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[], **more)


def test_a_field_that_the_version_lacks_gets_its_default() -> None:
    request = decode(FetchRequest, 4, encode(fetch_request(session_id=7, rack_id="a"), 4))

    assert request == fetch_request(session_id=0, rack_id="")
    assert request.session_epoch == -1


def test_what_a_version_cannot_say_is_left_out() -> None:
    deletion = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.Topic(topic_id=b"\1" * 16)], topic_names=["orders"], timeout_ms=1
    )

    assert decode(DeleteTopicsRequest, 5, encode(deletion, 5)).topics == []
    assert decode(DeleteTopicsRequest, 6, encode(deletion, 6)).topic_names == []


def test_a_version_that_is_not_declared_is_refused() -> None:
    with pytest.raises(ValueError, match="FetchRequest has versions 4 to 18, not 3"):
        decoder(FetchRequest, 3)
    with pytest.raises(ValueError, match="not 19"):
        encoder(FetchRequest, 19)


def test_null_where_the_version_does_not_allow_it_is_refused() -> None:
    assert decode(MetadataRequest, 1, bytes.fromhex("ffffffff")).topics is None
    with pytest.raises(Malformed, match=r"MetadataRequest\.topics is null"):
        decode(MetadataRequest, 0, bytes.fromhex("ffffffff"))
    with pytest.raises(Malformed, match=r"Topic\.name is null"):
        decode(MetadataRequest, 9, bytes.fromhex("02 00 00 01 00 00 00"))
    with pytest.raises(Unencodable, match="MetadataRequest cannot be written in version 0"):
        encode(MetadataRequest(topics=None), 0)


@pytest.mark.parametrize("count", ["7fffffff", "00000003", "fffffffe", "80000000"])
def test_an_array_count_beyond_the_bytes_left_is_refused(count: str) -> None:
    with pytest.raises(Malformed, match=r"topics has length"):
        decode(MetadataRequest, 0, bytes.fromhex(count) + bytes(5))  # a topic takes two bytes at least


def test_nothing_is_allocated_for_an_announced_count() -> None:
    data = bytes.fromhex("7fffffff") + bytes(100)
    replicas = bytes.fromhex("0000 00000000 00000001 ffffff7f")
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decode(MetadataRequest, 1, data)
        with pytest.raises(Malformed):
            decode(FetchRequest, 12, replicas + bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_message_holds_so_many_elements_and_no_more() -> None:
    def topics(count: int) -> bytes:
        return count.to_bytes(4) + b"\0\0" * count

    def partitions(count: int) -> bytes:
        return bytes(13) + (1).to_bytes(4) + b"\0\0" + count.to_bytes(4) + bytes(20) * count

    assert len(decode(MetadataRequest, 1, topics(MOST_ELEMENTS)).topics or ()) == MOST_ELEMENTS
    with pytest.raises(Malformed, match="topics has 100001 elements; a message holds 100000"):
        decode(MetadataRequest, 1, topics(MOST_ELEMENTS + 1))
    # The topic counts too, in which they are.
    decode(FetchRequest, 4, b"\0\0\0\0" + partitions(MOST_ELEMENTS - 1))
    with pytest.raises(Malformed, match="100000 elements; a message holds 100000"):
        decode(FetchRequest, 4, b"\0\0\0\0" + partitions(MOST_ELEMENTS))


def test_fields_of_unknown_tags_count_as_elements() -> None:
    def tagged(count: int) -> bytes:
        return encode(MetadataRequest(topics=[]), 9)[:-1] + encode_uvarint(count) + b"\5\0" * count

    decode(MetadataRequest, 9, tagged(MOST_ELEMENTS))
    with pytest.raises(Malformed, match="tagged fields has 100001 elements"):
        decode(MetadataRequest, 9, tagged(MOST_ELEMENTS + 1))


@pytest.mark.parametrize("length", ["8000", "fffe", "7fff", "0003"])
def test_a_string_length_beyond_the_bytes_left_or_below_null_is_refused(length: str) -> None:
    with pytest.raises(Malformed, match=r"Topic\.name has length"):
        decode(MetadataRequest, 0, bytes.fromhex("00000001" + length) + b"ab")


def test_a_compact_string_longer_than_kafka_takes_is_refused() -> None:
    def request(length: int) -> bytes:
        count = bytes([(length + 1) & 0x7F | 0x80, (length + 1) >> 7 & 0x7F | 0x80, (length + 1) >> 14])
        return b"\x02" + count + b"x" * length + b"\0\0\0\0\0"

    topics = decode(MetadataRequest, 9, request(32_767)).topics
    assert topics is not None
    assert len(topics[0].name or "") == 32_767
    with pytest.raises(Malformed, match="length 32768"):
        decode(MetadataRequest, 9, request(32_768))
    too_long = MetadataRequest(topics=[MetadataRequest.Topic(name="x" * 32_768)])
    for version in (8, 9):
        with pytest.raises(Unencodable):
            encode(too_long, version)


def test_text_that_is_not_utf_8_is_read_with_replacement_characters() -> None:
    """As Kafka does it: some clients send their client id in another encoding."""
    request = decode(MetadataRequest, 0, bytes.fromhex("00000001 0002 c328"))
    assert [topic.name for topic in request.topics] == ["\ufffd("]


def test_a_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(Malformed, match="goes on after 5 bytes"):
        decode(MetadataRequest, 9, bytes.fromhex("808080808000"))


def test_any_byte_but_zero_reads_as_true() -> None:
    assert decode(MetadataRequest, 4, bytes.fromhex("00000000 07")).allow_auto_topic_creation is True


def test_unknown_tagged_fields_are_skipped_in_any_order_and_number() -> None:
    plain = encode(fetch_request(), 12)
    assert plain[-1:] == b"\0"
    tagged = plain[:-1] + bytes.fromhex("04 63 02 aaaa 05 00 63 01 bb 00 03 036162")

    assert decoder(FetchRequest, 12)(tagged, 0) == (fetch_request(cluster_id="ab"), len(tagged))


def test_more_than_127_unknown_tagged_fields_are_skipped() -> None:
    plain = encode(MetadataRequest(topics=[]), 9)
    tagged = plain[:-1] + bytes.fromhex("c801") + b"\x05\x00" * 200

    assert decoder(MetadataRequest, 9)(tagged, 0) == (MetadataRequest(topics=[]), len(tagged))


def test_a_tagged_field_that_reaches_beyond_the_end_is_refused() -> None:
    for tag in ("00", "63"):
        with pytest.raises(Malformed, match="a tagged field"):
            decode(FetchRequest, 12, encode(fetch_request(), 12)[:-1] + bytes.fromhex("01" + tag + "ffffffff0f"))


def test_a_tagged_field_whose_size_is_wrong_is_refused() -> None:
    with pytest.raises(Malformed, match="the value of tag 0 is 3 bytes long, its size says 4"):
        decode(FetchRequest, 12, encode(fetch_request(), 12)[:-1] + bytes.fromhex("01 00 04 03 6162 00"))


def test_a_tagged_field_that_has_its_default_is_not_written() -> None:
    partition = Partition(partition=0, fetch_offset=0, partition_max_bytes=1)
    same = Partition(partition=0, fetch_offset=0, partition_max_bytes=1, replica_directory_id=bytes(16))
    other = Partition(partition=0, fetch_offset=0, partition_max_bytes=1, high_watermark=5)

    def encoded(one: Partition) -> bytes:
        return encode(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchRequest.Topic(partitions=[one])]), 18)

    assert encoded(partition) == encoded(same)
    assert encoded(other).hex().count("0101080000000000000005") == 1


def test_a_shared_default_cannot_be_changed() -> None:
    partition = ProduceResponse.Response.PartitionResponse(index=0, base_offset=0)
    with pytest.raises(AttributeError):
        partition.current_leader.leader_id = 3  # type: ignore[misc]


class Region:
    """Stands for part of a file."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def fetch_response(*records: Any) -> FetchResponse:
    partitions = [
        FetchResponse.Response.Partition(partition_index=index, high_watermark=9, records=given)
        for index, given in enumerate(records)
    ]
    return FetchResponse(responses=[FetchResponse.Response(topic="orders", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 11, 12])
def test_records_leave_the_encoder_as_they_are_with_the_rest_joined_around_them(version: int) -> None:
    first, second = Region(70_000), memoryview(b"second")

    chunks = encoder(FetchResponse, version)(fetch_response(first, None, b"", second))

    assert [type(chunk) for chunk in chunks[:4]] == [bytearray, Region, bytearray, memoryview]
    assert chunks[1] is first
    assert chunks[3] is second
    assert len(chunks) == (5 if version == 12 else 4)  # only flexible versions have bytes behind the last records
    joined = b"".join(bytes(70_000) if chunk is first else bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]
    assert joined == encode(fetch_response(bytes(70_000), None, b"", b"second"), version)


def test_an_answer_without_records_is_one_chunk() -> None:
    assert len(encoder(FetchResponse, 12)(fetch_response(None, b""))) == 1
    assert len(encoder(MetadataResponse, 12)(MetadataResponse(brokers=[], topics=[]))) == 1


def test_decoded_records_are_a_view_of_the_frame() -> None:
    topic = ProduceRequest.TopicData(
        name="orders", partition_data=[ProduceRequest.TopicData.PartitionData(index=0, records=memoryview(b"batch"))]
    )
    frame = bytearray(encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 9))

    records = decode(ProduceRequest, 9, memoryview(frame)).topic_data[0].partition_data[0].records

    assert records is not None
    records[0:1] = b"B"
    assert b"Batch" in frame
    assert decode(ProduceRequest, 9, bytes(frame)).topic_data[0].partition_data[0].records == b"Batch"


def test_a_traceback_shows_the_generated_line() -> None:
    with pytest.raises(Unencodable) as caught:
        encode(fetch_response(5), 12)

    assert "len(v" in str(caught.getrepr(style="long"))
    assert "FetchResponse cannot be written in version 12" in str(caught.value)
    assert source(FetchResponse, 12, decoding=False).startswith("def write(m0, out, chunks):")


# What no message of ours has yet, or has only in one direction.


@message(key=999, versions=(0, 2), flexible_since=1)
class Rare:
    @frozen_struct
    class Point:
        x: Int32 = 0
        names: Array[String] = field(default_factory=list)

    maybe: Inner | None
    tagged: Inner | None = field(since=1, tag=3, default=None)
    origin: Point = field(since=1, tag=1, default=Point())
    nested: Inner
    words: Array[String] | None = field(nullable_since=2)
    blobs: Array[Bytes]
    ids: Array[Uuid]
    grid: Array[Array[Int32]]
    small: Array[Int8]
    port: UInt16
    crc: UInt32
    ratio: Float64
    fixed_point: Point

    @struct
    class Inner:
        value: Bytes
        id: Uuid = field(since=2, default=NO_UUID)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_rare_forms_equal_the_interpreter_too(version: int) -> None:
    @settings(few, max_examples=100)
    @given(examples(Rare, version))
    def equals(message: Rare) -> None:
        encoded = encode(message, version)
        assert encoded == write(message, version)
        assert decode(Rare, version, encoded) == message
        for length in range(len(encoded)):
            with pytest.raises(Malformed):
                decode(Rare, version, encoded[:length])

    equals()


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 32_767])
@pytest.mark.parametrize("version", [0, 2])
def test_lengths_at_the_edges_of_a_uvarint(version: int, length: int) -> None:
    message = Rare(
        maybe=None,
        nested=Rare.Inner(value=b"x" * length),
        words=["y" * length] * 2,
        blobs=[b""] * length,
        ids=[],
        grid=[[1] * length],
        small=[-1] * length,
        port=0,
        crc=0,
        ratio=0.5,
        fixed_point=Rare.Point(names=["z"] * min(length, 128)),  # all together are fewer than MOST_ELEMENTS
    )
    answer = fetch_response(bytes(length))

    assert encode(message, version) == write(message, version)
    assert decode(Rare, version, encode(message, version)) == message
    for of_fetch in (11, 12):
        assert encode(answer, of_fetch) == write(answer, of_fetch)
        assert decode(FetchResponse, of_fetch, encode(answer, of_fetch)) == answer


@message(key=998, versions=(0, 0), flexible_since=0)
class Nullable:
    placed: Inner | None
    tagged: Inner | None = field(tag=0, default=None)

    @struct
    class Inner:
        number: Int8


def test_a_nullable_struct_has_a_marker_byte_and_a_uvarint_inside_a_tag() -> None:
    inner = Nullable.Inner(number=5)

    assert encode(Nullable(placed=None), 0).hex() == "ff00"
    assert encode(Nullable(placed=inner), 0).hex() == "01050000"
    assert encode(Nullable(placed=None, tagged=inner), 0).hex() == "ff010003010500"
    assert decode(Nullable, 0, bytes.fromhex("ff 01 00 01 00")) == Nullable(placed=None, tagged=None)


def test_every_field_of_a_layout_that_can_be_missing_has_a_default() -> None:
    for cls, _ in EVERY_VERSION:
        first, last = describe(cls).versions
        for declared in layout(cls):
            assert declared.since <= last, f"{cls.__name__}.{declared.name} is in no version"
            assert declared.until >= first, f"{cls.__name__}.{declared.name} is in no version"
