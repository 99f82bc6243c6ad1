"""Metrics of clients that have a quota."""

import pytest

from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreateTopicsRequest
from protocol.messages.transactions import WriteTxnMarkersRequest
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker
from tests.support.metrics import scrape
from tests.support.quotas import limit
from tests.support.requests import fetch_request, produce_request

SLOW = {"client-id": "slow"}
CLIENT = '{user="",client_id="slow"}'


def test_what_a_client_uses_of_its_quotas_is_told(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", bytes(5_000))
    limit(broker, SLOW, producer_byte_rate=1e6, consumer_byte_rate=1e6)
    limit(broker, SLOW, controller_mutation_rate=1.0, request_percentage=100.0)
    client = broker.connect()
    client.ask(produce_request("orders", produced([record(bytes(9_900))])), 12, "slow")
    client.ask(fetch_request(partition_max_bytes=5_000), 12, "slow")
    of_topic = CreateTopicsRequest.Topic
    topic = of_topic(name="more", num_partitions=4, replication_factor=1, assignments=[], configs=[])
    client.ask(CreateTopicsRequest(topics=[topic]), 7, "slow")
    page = scrape(broker)
    assert page[f"kafka_server_produce_byte_rate{CLIENT}"] == pytest.approx(1_000, rel=0.02)
    assert page[f"kafka_server_fetch_byte_rate{CLIENT}"] == pytest.approx(510, rel=0.02)
    assert page[f"kafka_server_controllermutation_tokens{CLIENT}"] == 7
    assert 0 < page[f"kafka_server_request_request_time{CLIENT}"] < 100
    for bean in ("produce", "fetch", "request", "controllermutation"):
        assert page[f"kafka_server_{bean}_throttle_time{CLIENT}"] == 0


def test_for_how_long_clients_are_throttled_is_told(broker: InProcessBroker) -> None:
    limit(broker, SLOW, request_percentage=1e-9)
    for _ in range(2):
        client = broker.connect()
        client.ask(MetadataRequest(topics=[]), 12, "slow")
    page = scrape(broker)
    assert page[f"kafka_server_request_throttle_time{CLIENT}"] == pytest.approx(1_000)
    throttled = page['kafka_network_requestmetrics_throttletimems{request="Metadata",quantile="0.99"}']
    assert throttled == pytest.approx(1_000, rel=0.13)


def test_requests_of_brokers_are_counted_apart(broker: InProcessBroker) -> None:
    exempt = "kafka_server_request_exempt_request_time"
    assert scrape(broker)[exempt] == 0
    limit(broker, SLOW, request_percentage=1e-9)
    answer = broker.connect().ask(WriteTxnMarkersRequest(markers=[]), 1, "slow")
    assert not hasattr(answer, "throttle_time_ms")
    assert scrape(broker)[exempt] > 0
