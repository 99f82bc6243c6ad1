"""DescribeCluster through the codec."""

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.broker import InProcessBroker


@serves(DescribeClusterRequest)
@every_version(DescribeClusterRequest)
def test_the_cluster_is_this_node(broker: InProcessBroker, version: int) -> None:
    answer = broker.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert (answer.error_code, answer.controller_id, len(answer.cluster_id)) == (E.NONE, 1, 22)
    assert [(node.broker_id, node.host, node.rack, node.is_fenced) for node in answer.brokers] == [
        (1, "127.0.0.1", None, False)
    ]
    assert answer.brokers[0].port > 0
    assert answer.cluster_authorized_operations == 8096


@serves(DescribeClusterRequest, E.MISMATCHED_ENDPOINT_TYPE, E.UNSUPPORTED_ENDPOINT_TYPE, versions=[1, 2])
def test_controllers_are_not_described_here(broker: InProcessBroker) -> None:
    for version in (1, 2):
        mismatched = broker.ask(DescribeClusterRequest(endpoint_type=2), version)
        assert (mismatched.error_code, mismatched.brokers) == (E.MISMATCHED_ENDPOINT_TYPE, [])
        assert (mismatched.cluster_id, mismatched.controller_id, mismatched.endpoint_type) == ("", -1, 1)
        assert broker.ask(DescribeClusterRequest(endpoint_type=3), version).error_code == E.UNSUPPORTED_ENDPOINT_TYPE


@pytest.mark.settings(
    listeners="INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    advertised_listeners="INSIDE://inside.example:9092,OUTSIDE://outside.example:19092",
    listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    inter_broker_listener_name="INSIDE",
)
def test_each_listener_is_told_its_own_address(broker: InProcessBroker) -> None:
    for listener, address in {"INSIDE": ("inside.example", 9092), "OUTSIDE": ("outside.example", 19092)}.items():
        client = broker.connect(listener)
        for request, version in ((DescribeClusterRequest(), 0), (MetadataRequest(topics=[]), 12)):
            assert [(node.host, node.port) for node in client.ask(request, version).brokers] == [address]
