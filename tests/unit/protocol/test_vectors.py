"""Bytes that Kafka's own classes made, or Apache Kafka wrote, for messages on the wire."""

from protocol.codec import decode, encode
from protocol.headers import decode_response, frame_response
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.groups import DeleteGroupsResponse
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceResponse
from protocol.primitives import encode_uvarint, read_uvarint


def framed(correlation_id: int, answer: object, version: int) -> bytes:
    (chunk,) = frame_response(correlation_id, answer, version)
    return bytes(memoryview(chunk))  # type: ignore[arg-type]


def test_uvarints() -> None:
    for number, encoded in ((0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (16384, "808001")):
        assert encode_uvarint(number).hex() == encoded
        assert read_uvarint(bytes.fromhex("ff" + encoded), 1) == (number, 1 + len(encoded) // 2)
    assert encode_uvarint(2**32 - 1).hex() == "ffffffff0f"


def test_an_unsupported_version_of_api_versions_is_answered_in_version_0() -> None:
    answer = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)]
    )

    assert framed(1, answer, 0) == bytes.fromhex("00000010 00000001 0023 00000001 0012 0000 0004")


def test_a_bad_software_name_is_answered_with_no_keys() -> None:
    refusal = ApiVersionsResponse(error_code=42, api_keys=[])

    assert encode(refusal, 3) == bytes.fromhex("002a 01 00000000 00")


def test_api_versions_with_features() -> None:
    answer = ApiVersionsResponse(
        api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)],
        supported_features=[
            ApiVersionsResponse.SupportedFeature(name="metadata.version", min_version=7, max_version=25)
        ],
        finalized_features_epoch=7,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeature(name="metadata.version", max_version_level=25, min_version_level=25)
        ],
    )
    expected = bytes.fromhex(
        "0000004f 00000001 0000 02 0012 0000 0004 00 00000000 03"
        "00 17 02 11 6d657461646174612e76657273696f6e 0007 0019 00"
        "01 08 0000000000000007"
        "02 17 02 11 6d657461646174612e76657273696f6e 0019 0019 00"
    )

    assert framed(1, answer, 3) == expected
    assert decode_response(ApiVersionsResponse, 3, expected[4:]) == (1, answer)


def test_a_client_may_say_which_node_of_which_cluster_it_means() -> None:
    named = ApiVersionsRequest(client_software_name="c", client_software_version="1", cluster_id="abc", node_id=7)
    unnamed = ApiVersionsRequest(client_software_name="c", client_software_version="1")

    assert encode(named, 5) == bytes.fromhex("02 63 02 31 04 616263 00000007 00")
    assert encode(unnamed, 5) == bytes.fromhex("02 63 02 31 00 ffffffff 00")


def test_a_group_that_was_not_deleted_may_say_why() -> None:
    refused = DeleteGroupsResponse.Result(group_id="g", error_code=134, error_message="why")
    answer = DeleteGroupsResponse(results=[refused, DeleteGroupsResponse.Result(group_id="h")])

    assert encode(answer, 3) == bytes.fromhex("00000000 03 02 67 0086 04 776879 00 02 68 0000 00 00 00")


def test_a_produce_answer_has_its_throttle_time_at_the_end() -> None:
    partition = ProduceResponse.Response.PartitionResponse(index=1, base_offset=100, log_start_offset=0)
    response = ProduceResponse.Response(name="o", partition_responses=[partition])
    answer = ProduceResponse(responses=[response], throttle_time_ms=9)

    assert encode(answer, 9) == bytes.fromhex(
        "02 02 6f 02 00000001 0000 0000000000000064 ffffffffffffffff 0000000000000000 01 00 00 00 00000009 00"
    )


def test_no_topics_and_all_topics_differ() -> None:
    assert encode(MetadataRequest(topics=None), 1) == bytes.fromhex("ffffffff")
    assert encode(MetadataRequest(topics=[]), 1) == bytes.fromhex("00000000")
    assert decode(MetadataRequest, 9, bytes.fromhex("00 01 00 00 00")).topics is None
    assert decode(MetadataRequest, 9, bytes.fromhex("01 01 00 00 00")).topics == []
