"""What a test can do to a program that uses kafka-python: each test shows one thing.

pip install 'ottla[test]' kafka-python
pytest
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, TopicAuthorizationFailedError

from ottla.testing import Broker

MANUAL_CLOCK = {"ottla.clock": "manual"}

ClientOf = Callable[..., Any]


@pytest.fixture
def producer_of() -> Iterator[ClientOf]:
    """Makes producers, and closes them after the test."""
    made: list[KafkaProducer] = []

    def producer_of(kafka: Broker, **settings: Any) -> KafkaProducer:
        quick = {"retry_backoff_ms": 20, "reconnect_backoff_ms": 20}
        made.append(KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, client_id="shop", **{**quick, **settings}))
        return made[-1]

    yield producer_of
    for producer in made:
        producer.close(timeout=0)


@pytest.fixture
def consumer_of() -> Iterator[ClientOf]:
    """Makes consumers of the group "shipping", and closes them after the test."""
    made: list[KafkaConsumer] = []

    def consumer_of(kafka: Broker, **settings: Any) -> KafkaConsumer:
        quick = {"heartbeat_interval_ms": 100, "session_timeout_ms": 60_000, "retry_backoff_ms": 20}
        group = {"group_id": "shipping", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        made.append(
            KafkaConsumer("orders", bootstrap_servers=kafka.bootstrap_servers, **{**quick, **group, **settings})
        )
        # Before it knows the topic it joins its group for nothing, and 3.0.12 may send no heartbeat after that.
        made[-1].partitions_for_topic("orders")
        return made[-1]

    yield consumer_of
    for consumer in made:
        consumer.close(timeout_ms=1_000)


def place(producer: KafkaProducer, *orders: str) -> None:
    """Send orders one after the other. Raises `KafkaError`."""
    for order in orders:
        producer.send("orders", order.encode()).get(60)


def read(consumer: KafkaConsumer, count: int) -> list[bytes | None]:
    return [next(consumer).value for _ in range(count)]


def values(kafka: Broker, topic: str = "orders") -> list[bytes | None]:
    """What the topic has, as the broker knows it."""
    return [record.value for record in kafka.records(topic)]


# What a test begins with, and what it waits for


@pytest.mark.kafka(topics={"orders": 1}, seeds={"orders": [{"key": "anna", "value": {"books": 2}}, "lamp"]})
def test_the_topic_has_records_when_the_test_begins(kafka: Broker, consumer_of: ClientOf) -> None:
    assert read(consumer_of(kafka), 2) == [b'{"books": 2}', b"lamp"]


@pytest.mark.parametrize("time", ["first", "second"])
def test_the_broker_is_empty_for_each_test(kafka: Broker, producer_of: ClientOf, time: str) -> None:
    place(producer_of(kafka), time)
    assert values(kafka) == [time.encode()]


@pytest.mark.kafka(topics={"orders": 3}, seeds={"orders": ["lamp", "book", "chair"]})
def test_the_test_waits_until_the_program_has_read_everything(kafka: Broker, consumer_of: ClientOf) -> None:
    consumer = consumer_of(kafka)
    read(consumer, 3)
    consumer.commit_async()
    consumer.poll()
    kafka.wait_for(group="shipping", topic="orders", caught_up=True)
    assert sum(kafka.committed("shipping").values()) == 3


def test_the_test_asks_what_the_program_has_sent(kafka: Broker, producer_of: ClientOf) -> None:
    producer = producer_of(kafka, linger_ms=50)
    for number in range(100):
        producer.send("orders", b"%d" % number)
    producer.flush(60)
    assert len(kafka.requests(api="Produce", topic="orders", client_id="shop")) < 100, "orders are sent one by one"


def test_a_program_that_wants_three_replicas_runs_on_one_broker(kafka: Broker, producer_of: ClientOf) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    admin.create_topics({"orders": {"num_partitions": 2, "replication_factor": 3}})
    admin.close()
    place(producer_of(kafka, acks="all"), "lamp")
    assert values(kafka) == [b"lamp"]


# Groups


@pytest.mark.kafka(topics={"orders": 4})
def test_a_second_consumer_gets_half_of_the_partitions(kafka: Broker, consumer_of: ClientOf) -> None:
    first = consumer_of(kafka)
    while len(first.assignment()) != 4:
        first.poll(100)
    second = consumer_of(kafka)
    while (len(first.assignment()), len(second.assignment())) != (2, 2):
        first.poll(100)
        second.poll(100)
    kafka.wait_for(group="shipping", state="Stable", members=2)


@pytest.mark.kafka(topics={"orders": 2})
def test_a_consumer_dies_and_another_takes_over(kafka: Broker, consumer_of: ClientOf) -> None:
    dead, other = (consumer_of(kafka, client_id=name, group_instance_id=name) for name in ("dead", "other"))
    while (len(dead.assignment()), len(other.assignment())) != (1, 1):
        dead.poll(100)
        other.poll(100)
    with kafka.fail(client_id="dead", close=True):  # the broker hears nothing of it any more
        kafka.expire_members("shipping", "dead")  # as if its session were over
        kafka.wait_for(group="shipping", members=1)
        while len(other.assignment()) != 2:
            other.poll(100)


@pytest.mark.kafka(settings={**MANUAL_CLOCK, "offsets.retention.minutes": "5"}, seeds={"orders": ["lamp"]})
def test_a_group_that_was_away_for_too_long_begins_again(kafka_broker: Broker, consumer_of: ClientOf) -> None:
    consumer = consumer_of(kafka_broker)
    read(consumer, 1)
    consumer.commit()
    consumer.close()
    kafka_broker.wait_for(group="shipping", state="Empty")
    kafka_broker.advance(minutes=20)
    assert kafka_broker.committed("shipping") == {}
    assert read(consumer_of(kafka_broker), 1) == [b"lamp"]


# Time


@pytest.mark.kafka(settings=MANUAL_CLOCK, topics={"orders": {"configs": {"retention.ms": "60000"}}})
def test_orders_are_deleted_after_a_minute(kafka_broker: Broker, producer_of: ClientOf, consumer_of: ClientOf) -> None:
    producer = producer_of(kafka_broker)
    place(producer, "old")
    kafka_broker.advance(minutes=10)
    assert kafka_broker.records("orders") == []
    place(producer, "new")
    consumer = consumer_of(kafka_broker)
    assert consumer.beginning_offsets([TopicPartition("orders", 0)]) == {TopicPartition("orders", 0): 1}
    assert read(consumer, 1) == [b"new"]


@pytest.mark.kafka(settings=MANUAL_CLOCK, topics={"orders": {"configs": {"message.timestamp.type": "LogAppendTime"}}})
def test_records_get_the_time_of_the_broker(kafka_broker: Broker, producer_of: ClientOf) -> None:
    producer = producer_of(kafka_broker)
    lamp = producer.send("orders", b"lamp").get(60)
    kafka_broker.advance(hours=1)
    book = producer.send("orders", b"book").get(60)
    assert book.timestamp - lamp.timestamp == 3_600_000


@pytest.mark.kafka(topics={"stock": {"configs": {"cleanup.policy": "compact"}}})
def test_a_compacted_topic_keeps_the_last_value_of_each_key(kafka: Broker, producer_of: ClientOf) -> None:
    producer = producer_of(kafka)
    for key, value in [(b"lamp", b"3"), (b"book", b"7"), (b"lamp", b"2"), (b"book", None)]:
        producer.send("stock", value, key)
    producer.flush(60)
    kafka.run("compaction")
    assert [(record.key, record.value) for record in kafka.records("stock")] == [(b"lamp", b"2"), (b"book", None)]


# What goes wrong


@pytest.mark.parametrize(("is_idempotent", "written"), [(True, 1), (False, 2)])
def test_an_answer_is_lost(kafka: Broker, producer_of: ClientOf, is_idempotent: bool, written: int) -> None:
    kafka.fail(api="Produce", when="after", close=True, times=1)
    place(producer_of(kafka, enable_idempotence=is_idempotent), "lamp")
    assert values(kafka) == [b"lamp"] * written  # without idempotence the order is there twice


@pytest.mark.kafka(topics=["orders"])
def test_a_full_disk_is_an_error_of_the_delivery(kafka: Broker, producer_of: ClientOf) -> None:
    hasty = producer_of(kafka, retries=0, enable_idempotence=False)
    with kafka.fail(topic="orders", disk="full"), pytest.raises(KafkaError):
        place(hasty, "lamp")
    place(hasty, "book")
    assert values(kafka) == [b"book"]


@pytest.mark.kafka(topics=["orders"])
def test_the_client_tries_again_after_some_errors(kafka: Broker, producer_of: ClientOf) -> None:
    with kafka.fail(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2) as rule:
        place(producer_of(kafka), "lamp")
        assert rule.applied == 2
    assert values(kafka) == [b"lamp"]


@pytest.mark.kafka(topics=["orders"])
def test_the_program_is_told_other_errors(kafka: Broker, producer_of: ClientOf) -> None:
    kafka.fail(api="Produce", topic="orders", error="TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(TopicAuthorizationFailedError):
        place(producer_of(kafka), "lamp")


@pytest.mark.kafka(topics=["orders"])
def test_an_order_may_be_written_though_its_answer_is_late(kafka: Broker, producer_of: ClientOf) -> None:
    hasty = producer_of(kafka, delivery_timeout_ms=1_000, request_timeout_ms=900)
    place(hasty, "book")
    kafka.fail(api="Produce", when="after", delay_ms=60_000)
    with pytest.raises(KafkaError):
        place(hasty, "lamp")
    kafka.wait_for(topic="orders", records=2)


@pytest.mark.kafka(topics=["orders"])
def test_a_third_of_all_requests_fails_and_nothing_is_lost(kafka: Broker, producer_of: ClientOf) -> None:
    orders = [str(number) for number in range(20)]
    # A seed repeats its chance: each run loses the same answers.
    with kafka.fail(api="Produce", when="after", share=1 / 3, seed=1, error="REQUEST_TIMED_OUT") as rule:
        place(producer_of(kafka), *orders)
        assert rule.applied > 0
    assert values(kafka) == [order.encode() for order in orders]


@pytest.mark.kafka(topics=["orders"])
def test_the_client_connects_again(kafka: Broker, producer_of: ClientOf) -> None:
    producer = producer_of(kafka)
    place(producer, "lamp")
    assert kafka.close_connections(client_id="shop") > 0
    place(producer, "book")
    assert values(kafka) == [b"lamp", b"book"]


# Transactions


@pytest.mark.kafka(topics=["orders"])
def test_an_aborted_order_is_not_read(kafka: Broker, producer_of: ClientOf, consumer_of: ClientOf) -> None:
    producer = producer_of(kafka, transactional_id="shop-1")
    producer.init_transactions()
    for order, end in [("lamp", producer.abort_transaction), ("book", producer.commit_transaction)]:
        producer.begin_transaction()
        place(producer, order)
        end()
    assert read(consumer_of(kafka, isolation_level="read_committed"), 1) == [b"book"]
    assert len(kafka.records("orders", uncommitted=True)) == 2


@pytest.mark.kafka(settings=MANUAL_CLOCK, topics=["orders"])
def test_a_transaction_that_takes_too_long_is_aborted(kafka_broker: Broker, producer_of: ClientOf) -> None:
    producer = producer_of(kafka_broker, transactional_id="shop-1", transaction_timeout_ms=60_000)
    producer.init_transactions()
    producer.begin_transaction()
    place(producer, "lamp")
    kafka_broker.advance(minutes=2)
    with pytest.raises(KafkaError):
        producer.commit_transaction()
    assert kafka_broker.records("orders") == []


# Copies


@pytest.mark.kafka(topics=["orders"])
def test_the_broker_goes_back_to_a_snapshot(kafka: Broker, producer_of: ClientOf) -> None:
    place(producer_of(kafka), "lamp")
    filled = kafka.snapshot()
    for order in ("book", "chair"):
        place(producer_of(kafka), order)
        assert values(kafka) == [b"lamp", order.encode()]
        filled.restore()


@pytest.mark.kafka(topics=["orders"], seeds={"orders": ["lamp"]})
def test_a_migration_is_tried_on_a_fork(kafka: Broker, producer_of: ClientOf, consumer_of: ClientOf) -> None:
    with kafka.fork() as other:
        [order] = read(consumer_of(other), 1)
        place(producer_of(other), f"two {order.decode() if order else ''}s")
        assert values(other) == [b"lamp", b"two lamps"]
    assert values(kafka) == [b"lamp"]
