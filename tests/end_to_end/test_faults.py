"""Faults by rule, as stock clients and raw requests meet them."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from ottla.testing import Broker, BrokerError
from protocol.errors import ErrorCode as E
from protocol.messages.fetch import FetchRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.topics import CreateTopicsRequest
from storage.batch.records import Record, encode_batch
from tests.support.raw_client import RawClient


def produce(client: RawClient, *partitions: int) -> dict[int, int]:
    """Write a record into each partition of "orders"; the error codes."""
    data = [
        ProduceRequest.TopicData.PartitionData(index=one, records=memoryview(encode_batch([Record(value=b"1")])))
        for one in partitions
    ]
    request = ProduceRequest(
        acks=-1, timeout_ms=5_000, topic_data=[ProduceRequest.TopicData(name="orders", partition_data=data)]
    )
    [topic] = client.ask(request, 9).responses
    return {one.index: one.error_code for one in topic.partition_responses}


def records(kafka: Broker) -> dict[int, int]:
    """How many records each partition of "orders" has."""
    counted = dict.fromkeys(range(3), 0)
    for record in kafka.records("orders"):
        counted[record.partition] += 1
    return counted


@pytest.mark.kafka(topics={"orders": 3})
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_partition_gets_an_error_and_the_others_do_not(kafka: Broker, when: str) -> None:
    rule = kafka.fail(api="Produce", topic="orders", partition=1, when=when, error="NOT_LEADER_OR_FOLLOWER")
    with RawClient(kafka.bootstrap_servers) as client:
        assert produce(client, 0, 1, 2) == {0: E.NONE, 1: E.NOT_LEADER_OR_FOLLOWER, 2: E.NONE}
        assert produce(client, 1) == {1: E.NOT_LEADER_OR_FOLLOWER}
        assert produce(client, 0) == {0: E.NONE}
        assert records(kafka) == {0: 2, 1: 2 if when == "after" else 0, 2: 1}
        assert rule.applied == 2
        rule.remove()
        assert produce(client, 1) == {1: E.NONE}
    with pytest.raises(BrokerError, match="in force no more"):
        assert rule.applied


@pytest.mark.kafka(topics={"orders": 3})
def test_only_the_nth_request_or_a_share_or_a_number_of_them_goes_wrong(kafka: Broker) -> None:
    def failures(count: int) -> list[int]:
        return [n for n in range(count) if produce(client, 0) != {0: E.NONE}]

    with RawClient(kafka.bootstrap_servers) as client:
        with kafka.fail(api="Produce", nth=3, error="REQUEST_TIMED_OUT"):
            assert failures(5) == [2]
        with kafka.fail(api="Produce", times=2, error="REQUEST_TIMED_OUT"):
            assert failures(5) == [0, 1]
        with kafka.fail(api="Produce", share=0.5, seed=7, error="REQUEST_TIMED_OUT"):
            first = failures(30)
        with kafka.fail(api="Produce", share=0.5, seed=7, error="REQUEST_TIMED_OUT"):
            assert failures(30) == first
        assert 5 < len(first) < 25


@pytest.mark.kafka(topics={"orders": 3})
@pytest.mark.parametrize("when", ["after", "middle"])
def test_an_idempotent_producer_whose_answer_is_lost_writes_once(kafka: Broker, when: str) -> None:
    lost = kafka.fail(api="Produce", when=when, close=True, times=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    producer.produce("orders", b"once", partition=0)
    assert producer.flush(30) == 0
    assert lost.applied == 1
    assert len(kafka.requests(api="Produce")) == 2
    assert [record.value for record in kafka.records("orders")] == [b"once"]


@pytest.mark.kafka(topics={"orders": 3}, seeds={"orders": [{"value": "1", "partition": 0}]})
def test_a_reader_with_a_session_meets_the_error_of_its_partition(kafka: Broker) -> None:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    assert message is not None
    assert message.value() == b"1"
    refused = kafka.fail(api="Fetch", topic="orders", partition=0, error="NOT_LEADER_OR_FOLLOWER", times=3)
    kafka.produce("orders", [{"value": "2", "partition": 0}])
    message = consumer.poll(30)
    assert message is not None
    assert message.value() == b"2"
    assert refused.applied > 0
    consumer.close()


@pytest.mark.kafka(settings={"ottla.clock": "manual"}, topics={"orders": 3})
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_is_late_by_the_brokers_clock(kafka_broker: Broker, when: str) -> None:
    kafka_broker.fail(api="Produce", when=when, delay_ms=60_000)
    request = MetadataRequest(topics=None)
    with RawClient(kafka_broker.bootstrap_servers) as client, RawClient(kafka_broker.bootstrap_servers) as other:
        data = ProduceRequest.TopicData.PartitionData(index=0, records=memoryview(encode_batch([Record(value=b"1")])))
        topic = ProduceRequest.TopicData(name="orders", partition_data=[data])
        client.send(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic]), 9)
        kafka_broker.wait_for(topic="orders", records=0 if when == "before" else 1)
        assert len(other.ask(request, 9).topics) == 1
        assert len(kafka_broker.records("orders")) == (when == "after")
        kafka_broker.advance(seconds=60)
        [answered] = client.receive().responses
        assert answered.partition_responses[0].error_code == E.NONE
    assert len(kafka_broker.records("orders")) == 1


@pytest.mark.kafka(settings={"ottla.clock": "manual"}, topics={"orders": 1})
def test_a_late_request_is_not_overtaken_on_its_connection(kafka_broker: Broker) -> None:
    kafka_broker.fail(api="Produce", delay_ms=60_000, nth=1)
    with RawClient(kafka_broker.bootstrap_servers) as client:
        for value in (b"1", b"2"):
            records = memoryview(encode_batch([Record(value=value)]))
            data = ProduceRequest.TopicData.PartitionData(index=0, records=records)
            topic = ProduceRequest.TopicData(name="orders", partition_data=[data])
            client.send(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic]), 9)
        kafka_broker.wait_for(topic="orders", records=0)
        kafka_broker.advance(seconds=60)
        assert [client.receive().responses[0].partition_responses[0].base_offset for _ in range(2)] == [0, 1]
    assert [record.value for record in kafka_broker.records("orders")] == [b"1", b"2"]


@pytest.mark.kafka(topics={"orders": 3})
def test_some_clients_get_no_answer_or_lose_their_connection(kafka: Broker) -> None:
    kafka.fail(api="Metadata", client_id="unlucky", silence=True, times=1)
    with RawClient(kafka.bootstrap_servers, client_id="unlucky") as client:
        client.send(MetadataRequest(topics=None), 9)
        kafka.wait_for(topic="orders", records=0)
        assert client.has_no_answer()
    kafka.fail(client_id="unlucky", close=True)
    with RawClient(kafka.bootstrap_servers, client_id="unlucky") as client, pytest.raises((OSError, EOFError)):
        client.ask(MetadataRequest(topics=None), 9)
    with RawClient(kafka.bootstrap_servers, client_id="lucky") as client:
        assert len(client.ask(MetadataRequest(topics=None), 9).topics) == 1


@pytest.mark.kafka(topics={"orders": 3})
def test_a_full_disk_refuses_records_until_there_is_room(kafka: Broker) -> None:
    with RawClient(kafka.bootstrap_servers) as client:
        with kafka.fail(topic="orders", partition=1, disk="full") as full:
            assert produce(client, 0, 1) == {0: E.NONE, 1: E.KAFKA_STORAGE_ERROR}
            assert full.applied > 0
        assert produce(client, 1) == {1: E.NONE}
    assert records(kafka) == {0: 1, 1: 1, 2: 0}


@pytest.mark.kafka(topics={"orders": 3})
def test_records_are_fetched_as_they_are_though_rules_are_in_force(kafka: Broker) -> None:
    kafka.fail(api="Fetch", topic="other", error="NOT_LEADER_OR_FOLLOWER")
    with RawClient(kafka.bootstrap_servers) as client:
        produce(client, 0)
        topic = FetchRequest.Topic(
            topic="orders",
            partitions=[FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
        )
        answer = client.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic]), 11)
        assert answer.session_id == 0
        assert answer.responses[0].partitions[0].high_watermark == 1


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({}, "one of error, delay_ms, close, silence, disk, new_leader_epoch and move_coordinator"),
        ({"close": True, "silence": True}, "one of error"),
        ({"api": "Prodcue", "close": True}, "api is 'Prodcue', expected one of .* such as Produce"),
        ({"error": "NONE"}, "error is 'NONE', expected one of"),
        ({"when": "middle", "error": "REQUEST_TIMED_OUT"}, "nothing else"),
        ({"when": "later", "close": True}, "expected one of before, after, middle"),
        ({"partition": 1, "close": True}, "of a topic: which"),
        ({"share": 2.0, "close": True}, "expected 0 to 1"),
        ({"nth": 0, "close": True}, "nth is 0, expected 1 to"),
        ({"delay_ms": -1}, "delay_ms is -1, expected 0 to"),
        ({"disk": "broken"}, "expected one of full, fsync"),
        ({"disk": "full", "api": "Produce"}, "only topic and partition"),
        ({"closes": True}, "expected only api"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(kafka: Broker, rule: dict[str, object], sentence: str) -> None:
    with pytest.raises(BrokerError, match=sentence):
        kafka.fail(**rule)


def test_a_reset_leaves_the_rules_of_the_file_only(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("- {api: CreateTopics, topic: orders, error: POLICY_VIOLATION}\n")
    topic = CreateTopicsRequest.Topic(name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    with Broker(faults=path) as kafka:
        for _ in range(2):
            with RawClient(kafka.bootstrap_servers) as client:
                [created] = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7).topics
                assert created.error_code == E.POLICY_VIOLATION
            kafka.fail(silence=True)
            kafka.reset()
    path.write_text("- {close: 1}\n")
    with pytest.raises(BrokerError, match=r"rule 1 of .*close is 1"), Broker(faults=path):
        pass
