"""ApiVersions through the codec."""

import pytest

from config.release_versions import NEWEST
from dev.serving import every_version, serves
from protocol.codec import decode
from protocol.errors import ErrorCode as E
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest
from tests.support.broker import InProcessBroker

NAMED = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")

SERVED = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    17: (0, 1),
    18: (0, 5),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    24: (0, 5),
    25: (0, 4),
    26: (0, 5),
    27: (1, 2),
    28: (0, 6),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    33: (0, 2),
    34: (1, 2),
    35: (1, 5),
    36: (0, 2),
    37: (0, 3),
    38: (1, 3),
    39: (1, 2),
    40: (1, 2),
    41: (1, 3),
    42: (0, 3),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    47: (0, 0),
    48: (0, 1),
    49: (0, 1),
    50: (0, 0),
    51: (0, 0),
    55: (0, 2),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    64: (0, 0),
    65: (0, 0),
    66: (0, 2),
    68: (0, 1),
    69: (0, 1),
    74: (0, 1),
    75: (0, 0),
    76: (1, 1),
    77: (1, 1),
    78: (1, 2),
    79: (1, 2),
    80: (0, 1),
    81: (0, 0),
    83: (0, 0),
    84: (0, 0),
    85: (0, 1),
    86: (0, 0),
    87: (0, 1),
    88: (0, 1),
    89: (0, 1),
    90: (0, 1),
    91: (0, 0),
    92: (0, 0),
    93: (0, 0),
    94: (0, 0),
}
"""What a running Apache Kafka 4.4.0 advertises."""


@serves(ApiVersionsRequest)
@every_version(ApiVersionsRequest)
def test_the_versions_are_those_of_apache_kafka(broker: InProcessBroker, version: int) -> None:
    answer = broker.ask(NAMED, version)
    assert answer.error_code == E.NONE
    assert {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys} == SERVED
    assert [api.api_key for api in answer.api_keys] == sorted(SERVED)


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        (3, {"metadata.version"}),
        (
            4,
            {
                *("metadata.version", "kraft.version", "transaction.version", "group.version", "share.version"),
                *("streams.version", "eligible.leader.replicas.version"),
            },
        ),
    ],
)
def test_features_from_level_0_are_for_those_who_can_read_them(
    broker: InProcessBroker, version: int, supported: set[str]
) -> None:
    answer = broker.ask(NAMED, version)
    assert {feature.name for feature in answer.supported_features} == supported
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert finalized == {**NEWEST.levels, "kraft.version": 1}
    assert answer.finalized_features_epoch == broker.server.metadata.image.end_offset - 1


@serves(ApiVersionsRequest, E.INVALID_REQUEST, versions=[3, 4, 5])
@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ä"])
def test_a_software_name_has_its_rules(broker: InProcessBroker, name: str) -> None:
    for version in (3, 4, 5):
        answer = broker.ask(ApiVersionsRequest(client_software_name=name, client_software_version="1"), version)
        assert (answer.error_code, answer.api_keys) == (E.INVALID_REQUEST, [])


@serves(ApiVersionsRequest, E.NONE, E.REBOOTSTRAP_REQUIRED, E.INVALID_REQUEST, versions=[5])
def test_a_client_that_reached_another_node_than_it_means_is_told_to_look_for_it_anew(broker: InProcessBroker) -> None:
    def error_for(cluster_id: str | None, node_id: int) -> int:
        asked = ApiVersionsRequest(
            client_software_name="c", client_software_version="1", cluster_id=cluster_id, node_id=node_id
        )
        answer = broker.ask(asked, 5)
        assert bool(answer.api_keys) == (answer.error_code == E.NONE)
        return int(answer.error_code)

    here = broker.ask(MetadataRequest(topics=[]), 12)
    (node,) = here.brokers
    assert error_for(here.cluster_id, node.node_id) == E.NONE
    assert error_for(here.cluster_id, node.node_id + 1) == E.REBOOTSTRAP_REQUIRED
    assert error_for("another cluster", node.node_id) == E.REBOOTSTRAP_REQUIRED
    assert error_for("", node.node_id) == E.REBOOTSTRAP_REQUIRED
    assert error_for(None, node.node_id) == E.INVALID_REQUEST
    assert error_for(here.cluster_id, -1) == E.INVALID_REQUEST


@serves(ApiVersionsRequest, E.UNSUPPORTED_VERSION, versions=[0])
@pytest.mark.parametrize("asked", [6, 99, -1])
def test_an_unknown_version_is_answered_in_version_0_with_our_range(broker: InProcessBroker, asked: int) -> None:
    client = broker.connect()
    header = (18).to_bytes(2, "big") + asked.to_bytes(2, "big", signed=True) + (1).to_bytes(4, "big") + b"\xff\xff\0"
    client.send_bytes(len(header).to_bytes(4, "big") + header)

    payload = client.receive_payload()

    assert payload == bytes.fromhex("00000001 0023 00000001 0012 0000 0005")
    answer = decode(ApiVersionsResponse, 0, payload, 4)
    broker.saw(ApiVersionsResponse, 0, answer)
    assert client.ask(NAMED, 4).error_code == E.NONE, "the connection goes on"


def test_an_unknown_version_without_header_tags_closes_the_connection(broker: InProcessBroker) -> None:
    client = broker.connect()
    client.send_bytes(bytes.fromhex("0000000a 0012 0006 00000001 ffff"))
    assert client.is_closed()


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-5, 0), (4, 0), (52, 0), (1, 3), (1, 19), (22, 6), (3, 14)])
def test_any_other_unknown_api_or_version_closes_the_connection(
    broker: InProcessBroker, key: int, version: int
) -> None:
    client = broker.connect()
    header = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big") + (1).to_bytes(4, "big") + b"\xff\xff\0"
    client.send_bytes(len(header).to_bytes(4, "big") + header)
    assert client.is_closed()
