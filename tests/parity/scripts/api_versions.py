"""ApiVersions: what is served, to whom, and what is answered to a version that is not."""

from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.metadata import MetadataRequest
from tests.parity.exchange import Exchange

V0_ANSWER = (ApiVersionsResponse, 0)


def run(exchange: Exchange) -> None:
    named = ApiVersionsRequest(client_software_name="parity", client_software_version="1.0")
    exchange.ask_each("a client that names itself", named)
    exchange.ask_each("once more on the same connection", named)
    exchange.ask_each("a client id of null", named, client_id=None)
    for name, version, what in (
        ("", "1.0", "no name"),
        ("parity", "", "no version"),
        ("-parity", "1.0", "a name that begins with a hyphen"),
        ("parity-", "1.0", "a name that ends in a hyphen"),
        ("par ity", "1.0", "a name with a space"),
        ("parité", "1.0", "a name with an accent"),
        ("p", "1", "name and version of one character"),
        ("apache.kafka-java", "4.3.1-rc1", "dots and hyphens within"),
        ("parity", "1_0", "a version with an underscore"),
        ("parity\n", "1.0", "a name with a line feed behind it"),
    ):
        software = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        exchange.ask_each(what, software, since=3)
    (node,) = exchange.ask(None, MetadataRequest(topics=[]), 12).brokers
    cluster_id = exchange.ask(None, DescribeClusterRequest(), 0).cluster_id
    for cluster, node_id, what in (
        (cluster_id, node.node_id, "the right cluster and node"),
        (cluster_id, node.node_id + 1, "another node"),
        ("another", node.node_id, "another cluster"),
        (cluster_id.lower(), node.node_id, "a cluster id in lower case"),
        ("", node.node_id, "an empty cluster id"),
        (cluster_id, -1, "a cluster without a node"),
        (None, node.node_id, "a node without a cluster"),
        (cluster_id, -2, "node -2"),
        (None, -2, "node -2 without a cluster"),
    ):
        meant = ApiVersionsRequest(
            client_software_name="parity", client_software_version="1.0", cluster_id=cluster, node_id=node_id
        )
        exchange.ask_each(what, meant, since=5)
    nameless = ApiVersionsRequest(cluster_id="another", node_id=node.node_id)
    exchange.ask_each("another cluster, and no name", nameless, since=5)
    for version in (6, 7, 100, 0x7FFF, -1, -0x8000):
        frame = bytearray(exchange.frame(named, 4))
        frame[6:8] = version.to_bytes(2, "big", signed=True)
        exchange.send_bytes(f"version {version}", bytes(frame), api=18, answer=None)
    frame = bytearray(exchange.frame(ApiVersionsRequest(), 0))
    frame[6:8] = (6).to_bytes(2, "big")
    exchange.send_bytes("version 6 behind a header without tagged fields", bytes(frame), api=18)
