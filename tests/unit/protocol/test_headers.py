"""Headers of requests and answers, and the frame around them."""

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.api_keys import ASKED_CONTROLLERS, ApiKey
from protocol.codec import Malformed, Unencodable, decode
from protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    frame_response,
    peek_api,
)
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.fetch import FetchResponse
from protocol.messages.init_producer_id import InitProducerIdResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.schema import request_class, response_class
from tests.unit.protocol.declared import examples


def fields(header: RequestHeader) -> tuple[int, int, int, str]:
    return header.api_key, header.api_version, header.correlation_id, header.client_id


def test_a_header_without_tagged_fields() -> None:
    header, position = decode_request_header(bytes.fromhex("0003 0008 00000007 0004 64656d6f 99"))

    assert fields(header) == (ApiKey.METADATA, 8, 7, "demo")
    assert position == 14
    assert "client_id='demo'" in repr(header)


def test_a_flexible_header_keeps_the_two_byte_length_of_the_client_id() -> None:
    header, position = decode_request_header(bytes.fromhex("0003 0009 00000007 0004 64656d6f 00 99"))

    assert fields(header) == (ApiKey.METADATA, 9, 7, "demo")
    assert position == 15


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    _, position = decode_request_header(bytes.fromhex("0003 0009 00000007 0000 02 05 01 aa 03 02 bbbb 99"))

    assert position == 18


def test_a_null_client_id_is_an_empty_one() -> None:
    assert decode_request_header(bytes.fromhex("0003 0008 00000007 ffff"))[0].client_id == ""
    assert decode_request_header(bytes.fromhex("0003 0008 00000007 0000"))[0].client_id == ""


def test_an_unknown_api_and_a_negative_version_have_a_header_without_tagged_fields() -> None:
    unknown, position = decode_request_header(bytes.fromhex("03e7 0000 00000007 0001 61"))
    assert fields(unknown) == (999, 0, 7, "a")
    assert position == 11

    negative, _ = decode_request_header(bytes.fromhex("0012 ffff 00000007 0001 61"))
    assert fields(negative) == (ApiKey.API_VERSIONS, -1, 7, "a")


def test_a_version_of_api_versions_from_the_future_has_a_flexible_header() -> None:
    with pytest.raises(Malformed, match="ends inside its header's tagged fields"):
        decode_request_header(bytes.fromhex("0012 0005 00000007 0001 61"))
    assert decode_request_header(bytes.fromhex("0012 0005 00000007 0001 61 00"))[1] == 12


@pytest.mark.parametrize("header", ["", "0003", "0003 0008 00000007 00", "0003 0008 00000007 0004 6465"])
def test_a_header_that_ends_too_early_is_refused(header: str) -> None:
    with pytest.raises(Malformed):
        decode_request_header(bytes.fromhex(header))


def test_a_client_id_below_null_is_refused_and_one_in_another_encoding_read_as_it_can_be() -> None:
    with pytest.raises(Malformed, match="a client id of -2 bytes"):
        decode_request_header(bytes.fromhex("0003 0008 00000007 fffe"))
    header, _ = decode_request_header(bytes.fromhex("0003 0008 00000007 0002 ff 61"))
    assert header.client_id == "\ufffda"


def test_tagged_fields_of_a_header_that_end_too_early_are_refused() -> None:
    for tags in ("01", "0105", "010502aa", "01 05 ffffffffff", "ffff"):
        with pytest.raises(Malformed):
            decode_request_header(bytes.fromhex("0003 0009 00000007 0000" + tags))


@given(st.binary(max_size=40), st.sampled_from(["", "0000000d", "00010011", "00120004"]))
def test_any_bytes_are_a_header_or_malformed(data: bytes, start: str) -> None:
    frame = bytes.fromhex(start) + data
    try:
        header, position = decode_request_header(memoryview(frame))
    except Malformed:
        return
    assert 10 <= position <= len(frame)
    assert (header.api_key, header.api_version) == peek_api(frame)


def test_an_api_can_be_seen_without_its_header() -> None:
    assert peek_api(bytes.fromhex("03e7 0007")) == (999, 7)
    with pytest.raises(Malformed):
        peek_api(b"\0\0\0")


@pytest.mark.parametrize(("version", "client_id"), [(8, "demo"), (9, "demo"), (9, None), (12, "")])
def test_a_request_is_read_as_it_was_written(version: int, client_id: str | None) -> None:
    request = encode_request(41, client_id, MetadataRequest(topics=None), version)

    assert int.from_bytes(request[:4]) == len(request) - 4
    header, position = decode_request_header(memoryview(request)[4:])
    assert fields(header) == (3, version, 41, client_id or "")
    assert request[4 + position] in (0x00, 0xFF)  # null topics


ASKED = [(key, version) for key in sorted(ASKED_CONTROLLERS) for version in range(key.versions[0], key.versions[1] + 1)]


@pytest.mark.parametrize(("key", "version"), ASKED, ids=lambda one: one.title if isinstance(one, ApiKey) else f"v{one}")
def test_what_controllers_are_asked_is_read_on_both_sides(key: ApiKey, version: int) -> None:
    @settings(max_examples=4, deadline=None)
    @given(examples(request_class(key), version), examples(response_class(key), version))
    def passes(request: Any, answer: Any) -> None:
        frame = memoryview(encode_request(41, "broker-1", request, version))[4:]
        header, position = decode_request_header(frame)
        assert fields(header) == (key, version, 41, "broker-1")
        assert decode(type(request), version, frame, position) == request
        framed = b"".join(map(bytes, cast(list[bytes], frame_response(41, answer, version))))
        assert int.from_bytes(framed[:4]) == len(framed) - 4
        assert decode_response(type(answer), version, framed[4:]) == (41, answer)

    passes()


def test_a_client_id_that_is_too_long_cannot_be_written() -> None:
    with pytest.raises(Unencodable, match="40000 bytes"):
        encode_request(1, "x" * 40_000, MetadataRequest(topics=None), 9)


def one_chunk(correlation_id: int, answer: Any, version: int) -> bytes:
    (chunk,) = frame_response(correlation_id, answer, version)
    assert isinstance(chunk, bytearray)
    return bytes(chunk)


def test_an_answer_has_tagged_fields_in_its_header_where_its_version_is_flexible() -> None:
    answer = InitProducerIdResponse(producer_id=5, producer_epoch=0)

    assert one_chunk(7, answer, 1).hex(" ", 4).startswith("00000014 00000007 00000000")
    assert one_chunk(7, answer, 2).hex().startswith("00000016" + "00000007" + "00" + "00000000")
    for version in (1, 2):
        assert decode_response(InitProducerIdResponse, version, one_chunk(7, answer, version)[4:]) == (7, answer)


@pytest.mark.parametrize("version", range(5))
def test_the_answer_to_api_versions_never_has_them(version: int) -> None:
    answer = ApiVersionsResponse(api_keys=[])
    framed = one_chunk(-1, answer, version)

    assert framed[4:10].hex() == "ffffffff0000"
    assert decode_response(ApiVersionsResponse, version, framed[4:]) == (-1, answer)


def test_an_answer_with_a_region_counts_it_in_its_size() -> None:
    class Region:
        def __len__(self) -> int:
            return 1 << 20

    region = Region()
    partition = FetchResponse.Response.Partition(partition_index=0, high_watermark=1, records=region)
    answer = FetchResponse(responses=[FetchResponse.Response(topic="orders", partitions=[partition])])

    for version, chunks_expected in ((11, 2), (12, 3)):
        first, second, *rest = frame_response(7, answer, version)
        assert second is region
        assert 2 + len(rest) == chunks_expected
        assert isinstance(first, bytearray)
        assert int.from_bytes(first[:4]) == len(first) - 4 + (1 << 20) + sum(map(len, rest))
        assert int.from_bytes(first[4:8]) == 7


def test_the_same_answer_can_be_framed_again_and_in_another_version() -> None:
    answer = MetadataResponse(brokers=[], topics=[], cluster_id="c")

    assert one_chunk(1, answer, 12) == one_chunk(1, answer, 12)
    assert one_chunk(1, answer, 0) != one_chunk(1, answer, 12)


@pytest.mark.parametrize("payload", ["", "000000", "00000007", "00000007 01 05 09 aa"])
def test_an_answer_that_ends_too_early_is_refused(payload: str) -> None:
    with pytest.raises(Malformed):
        decode_response(MetadataResponse, 12, bytes.fromhex(payload))


def test_api_versions_is_asked_as_clients_ask_it() -> None:
    request = ApiVersionsRequest(client_software_name="my-client", client_software_version="1.0")

    # One byte more than the sum of the fields would be wrong: the header's tags are the single 00 after "demo".
    expected = "0000001e 0012 0003 00000001 0004 64656d6f 00 0a 6d792d636c69656e74 04 312e30 00"
    assert encode_request(1, "demo", request, 3) == bytes.fromhex(expected)
