"""DescribeCluster."""

from protocol.messages.cluster import DescribeClusterRequest
from tests.parity.exchange import Exchange


def run(exchange: Exchange) -> None:
    exchange.ask_each("the cluster", DescribeClusterRequest())
    exchange.ask_each("with authorized operations", DescribeClusterRequest(include_cluster_authorized_operations=True))
    for endpoint in (2, 0, 3, -1, 127, -128):
        exchange.ask_each(f"endpoint type {endpoint}", DescribeClusterRequest(endpoint_type=endpoint), since=1)
        wanted = DescribeClusterRequest(endpoint_type=endpoint, include_cluster_authorized_operations=True)
        exchange.ask_each(f"endpoint type {endpoint}, with authorized operations", wanted, since=1)
    exchange.ask_each("with fenced brokers", DescribeClusterRequest(include_fenced_brokers=True), since=2)
