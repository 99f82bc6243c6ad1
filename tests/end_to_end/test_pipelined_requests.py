"""Pipelined requests, sent before the last ones are answered: every answer reflects the requests before it."""

from __future__ import annotations

import os
import uuid
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest

from dev.broker_process import BrokerProcess
from dev.waiting import PATIENCE_S, until
from protocol.messages.metadata import MetadataRequest
from tests.support.batches import produced, record
from tests.support.clients import Client, connect
from tests.support.metrics import Page, http_get
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request, produce_request

WAIT_MS = 3_000
"""How long a fetch waits that finds nothing."""


@pytest.fixture
def admin(broker: BrokerProcess) -> Client:
    """A client with connections of its own."""
    return connect("confluent-kafka", broker.bootstrap)


@pytest.fixture
def idle_topic(admin: Client, topic: str) -> str:
    """A topic that nothing is written to."""
    admin.create_topic(topic)
    return topic


def test_metadata_behind_a_fetch_that_waits_is_as_new_as_its_answer(
    broker: BrokerProcess, admin: Client, idle_topic: str
) -> None:
    created = f"created-{uuid.uuid4().hex[:8]}"
    with RawClient(broker.bootstrap) as client:
        client.send(fetch_request(idle_topic, max_wait_ms=WAIT_MS), 12)
        client.send(MetadataRequest(topics=None), 12)
        admin.create_topic(created)
        assert client.receive().responses[0].partitions[0].records == b""
        assert created in {found.name for found in client.receive().topics}


def test_a_fetch_behind_a_produce_brings_its_record(broker: BrokerProcess, idle_topic: str) -> None:
    with RawClient(broker.bootstrap) as client:
        for offset in range(20):
            client.send(produce_request(idle_topic, produced([record(b"v")])), 12)
            client.send(fetch_request(idle_topic, offset=offset, max_wait_ms=0), 12)
        for offset in range(20):
            assert client.receive().responses[0].partition_responses[0].base_offset == offset
            assert client.receive().responses[0].partitions[0].high_watermark == offset + 1


@pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="that a request has arrived is read off our page of metrics",
)
def test_librdkafka_sees_a_new_topic_in_the_first_metadata_that_it_asks_for_while_its_fetch_waits(
    own_broker: BrokerProcess,
) -> None:
    admin = connect("confluent-kafka", own_broker.bootstrap)
    admin.create_topic("idle")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": own_broker.bootstrap, "group.id": "none", "fetch.wait.max.ms": WAIT_MS}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("idle", 0, 0)])
        consumer.poll(0)
        until(lambda: waiting_fetches(own_broker) > 0, "a fetch that waits")
        before = requests_received(own_broker)
        with ThreadPoolExecutor(1) as other:
            listed = other.submit(consumer.list_topics, timeout=PATIENCE_S)
            until(lambda: requests_received(own_broker) > before, "the request for metadata")
            admin.create_topic("created")
            assert "created" in listed.result().topics
    finally:
        consumer.close()


def page(broker: BrokerProcess) -> Page:
    return Page(http_get(broker.metrics_port, "/metrics").text)


def waiting_fetches(broker: BrokerProcess) -> float:
    return page(broker)['kafka_server_delayedoperationpurgatory_numdelayedoperations{delayedOperation="Fetch"}']


def requests_received(broker: BrokerProcess) -> float:
    return sum(page(broker).of("kafka_server_socket_server_metrics_request_total").values())
