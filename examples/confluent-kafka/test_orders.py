"""What a test can do to a program that uses confluent-kafka: each test shows one thing.

pip install 'ottla[test]' confluent-kafka
pytest
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker

MANUAL_CLOCK = {"ottla.clock": "manual"}

ConsumerOf = Callable[..., Consumer]


def producer_of(kafka: Broker, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "client.id": "shop", **settings})


def place(producer: Producer, *orders: str) -> list[KafkaError | None]:
    """Send orders, wait for the answers, and return the errors."""
    errors: list[KafkaError | None] = []
    for order in orders:
        producer.produce("orders", order, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    return errors


def read(consumer: Consumer, count: int) -> list[Message]:
    """The next records, without what is no record."""
    messages: list[Message] = []
    while len(messages) < count:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            messages.append(message)
    return messages


def values(kafka: Broker, topic: str = "orders") -> list[bytes | None]:
    """What the topic has, as the broker knows it."""
    return [record.value for record in kafka.records(topic)]


@pytest.fixture
def consumer_of() -> Iterator[ConsumerOf]:
    """Makes consumers of the group "shipping", and closes them after the test."""
    made: list[Consumer] = []

    def consumer_of(kafka: Broker, **settings: object) -> Consumer:
        quick = {"heartbeat.interval.ms": 100, "session.timeout.ms": 60_000, "topic.metadata.refresh.interval.ms": 500}
        group = {"group.id": "shipping", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        made.append(Consumer({"bootstrap.servers": kafka.bootstrap_servers, **quick, **group, **settings}))
        made[-1].subscribe(["orders"])
        return made[-1]

    yield consumer_of
    for consumer in made:
        consumer.close()


# What a test begins with, and what it waits for


@pytest.mark.kafka(topics={"orders": 1}, seeds={"orders": [{"key": "anna", "value": {"books": 2}}, "lamp"]})
def test_the_topic_has_records_when_the_test_begins(kafka: Broker, consumer_of: ConsumerOf) -> None:
    first, second = read(consumer_of(kafka), 2)
    assert (first.key(), first.value()) == (b"anna", b'{"books": 2}')
    assert second.value() == b"lamp"


@pytest.mark.parametrize("time", ["first", "second"])
def test_the_broker_is_empty_for_each_test(kafka: Broker, time: str) -> None:
    assert AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=60).topics == {}
    place(producer_of(kafka), time)
    assert values(kafka) == [time.encode()]


@pytest.mark.kafka(topics={"orders": 3}, seeds={"orders": ["lamp", "book", "chair"]})
def test_the_test_waits_until_the_program_has_read_everything(kafka: Broker, consumer_of: ConsumerOf) -> None:
    consumer = consumer_of(kafka)
    read(consumer, 3)
    consumer.commit(asynchronous=True)
    kafka.wait_for(group="shipping", topic="orders", caught_up=True)
    assert sum(kafka.committed("shipping").values()) == 3


def test_the_test_asks_what_the_program_has_sent(kafka: Broker) -> None:
    place(producer_of(kafka, **{"linger.ms": 50}), *(str(number) for number in range(100)))
    assert len(kafka.requests(api="Produce", topic="orders", client_id="shop")) < 100, "orders are sent one by one"


def test_a_program_that_wants_three_replicas_runs_on_one_broker(kafka: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    topic = NewTopic("orders", 2, replication_factor=3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["orders"].result(60)
    assert place(producer_of(kafka, acks="all"), "lamp") == [None]


# Groups


@pytest.mark.kafka(topics={"orders": 4})
def test_a_second_consumer_gets_half_of_the_partitions(kafka: Broker, consumer_of: ConsumerOf) -> None:
    first = consumer_of(kafka)
    while len(first.assignment()) != 4:
        first.poll(0.1)
    second = consumer_of(kafka)
    while (len(first.assignment()), len(second.assignment())) != (2, 2):
        first.poll(0.1)
        second.poll(0.1)
    kafka.wait_for(group="shipping", state="Stable", members=2)


@pytest.mark.kafka(topics={"orders": 2}, seeds={"orders": ["lamp", "book"]})
def test_a_consumer_dies_and_another_takes_over(kafka: Broker, consumer_of: ConsumerOf) -> None:
    dead, other = (consumer_of(kafka, **{"client.id": name, "group.instance.id": name}) for name in ("dead", "other"))
    while (len(dead.assignment()), len(other.assignment())) != (1, 1):
        dead.poll(0.1)
        other.poll(0.1)
    with kafka.fail(client_id="dead", close=True):  # the broker hears nothing of it any more
        kafka.expire_members("shipping", "dead")  # as if its session were over
        kafka.wait_for(group="shipping", members=1)
        while len(other.assignment()) != 2:
            other.poll(0.1)


@pytest.mark.kafka(settings={**MANUAL_CLOCK, "offsets.retention.minutes": "5"}, seeds={"orders": ["lamp"]})
def test_a_group_that_was_away_for_too_long_begins_again(kafka_broker: Broker, consumer_of: ConsumerOf) -> None:
    consumer = consumer_of(kafka_broker)
    read(consumer, 1)
    consumer.commit(asynchronous=False)
    consumer.close()
    kafka_broker.wait_for(group="shipping", state="Empty")
    kafka_broker.advance(minutes=20)
    assert kafka_broker.committed("shipping") == {}
    assert [message.value() for message in read(consumer_of(kafka_broker), 1)] == [b"lamp"]


# Time


@pytest.mark.kafka(settings=MANUAL_CLOCK, topics={"orders": {"configs": {"retention.ms": "60000"}}})
def test_orders_are_deleted_after_a_minute(kafka_broker: Broker, consumer_of: ConsumerOf) -> None:
    producer = producer_of(kafka_broker)
    place(producer, "old")
    kafka_broker.advance(minutes=10)
    assert kafka_broker.records("orders") == []
    place(producer, "new")
    assert [(message.offset(), message.value()) for message in read(consumer_of(kafka_broker), 1)] == [(1, b"new")]


@pytest.mark.kafka(settings=MANUAL_CLOCK, topics={"orders": {"configs": {"message.timestamp.type": "LogAppendTime"}}})
def test_records_get_the_time_of_the_broker(kafka_broker: Broker) -> None:
    producer = producer_of(kafka_broker)
    place(producer, "lamp")
    kafka_broker.advance(hours=1)
    place(producer, "book")
    lamp, book = kafka_broker.records("orders")
    assert book.timestamp_ms - lamp.timestamp_ms == 3_600_000


@pytest.mark.kafka(topics={"stock": {"configs": {"cleanup.policy": "compact"}}})
def test_a_compacted_topic_keeps_the_last_value_of_each_key(kafka: Broker) -> None:
    producer = producer_of(kafka)
    for key, value in [("lamp", "3"), ("book", "7"), ("lamp", "2"), ("book", None)]:
        producer.produce("stock", value, key)
    producer.flush(60)
    kafka.run("compaction")
    assert [(record.key, record.value) for record in kafka.records("stock")] == [(b"lamp", b"2"), (b"book", None)]


# What goes wrong


@pytest.mark.parametrize(("settings", "written"), [({"enable.idempotence": True}, 1), ({"acks": "1"}, 2)])
def test_an_answer_is_lost(kafka: Broker, settings: dict[str, object], written: int) -> None:
    with kafka.fail(api="Produce", when="after", close=True, times=1) as lost:
        assert place(producer_of(kafka, **settings), "lamp") == [None]
    assert lost.number
    assert values(kafka) == [b"lamp"] * written  # without idempotence the order is there twice


@pytest.mark.kafka(topics=["orders"])
def test_a_full_disk_is_an_error_of_the_delivery(kafka: Broker) -> None:
    with kafka.fail(topic="orders", disk="full"):
        [error] = place(producer_of(kafka, **{"message.timeout.ms": 500}), "lamp")
    assert error is not None
    assert place(producer_of(kafka), "book") == [None]
    assert values(kafka) == [b"book"]


@pytest.mark.kafka(topics=["orders"])
def test_the_client_tries_again_after_some_errors(kafka: Broker) -> None:
    with kafka.fail(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2) as rule:
        assert place(producer_of(kafka), "lamp") == [None]
        assert rule.applied == 2
    assert values(kafka) == [b"lamp"]


@pytest.mark.kafka(topics=["orders"])
def test_the_program_is_told_other_errors(kafka: Broker) -> None:
    kafka.fail(api="Produce", topic="orders", error="TOPIC_AUTHORIZATION_FAILED")
    [error] = place(producer_of(kafka), "lamp")
    assert error is not None
    assert error.name() == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.kafka(topics=["orders"])
def test_an_order_may_be_written_though_its_answer_is_late(kafka: Broker) -> None:
    hasty = producer_of(kafka, **{"message.timeout.ms": 1_000})
    place(hasty, "book")
    kafka.fail(api="Produce", when="after", delay_ms=60_000)
    [error] = place(hasty, "lamp")
    assert error is not None
    assert error.name() == "_MSG_TIMED_OUT"
    kafka.wait_for(topic="orders", records=2)


@pytest.mark.kafka(topics=["orders"])
def test_a_third_of_all_requests_fails_and_nothing_is_lost(kafka: Broker) -> None:
    orders = [str(number) for number in range(20)]
    producer = producer_of(kafka, **{"enable.idempotence": True, "batch.num.messages": 1, "retry.backoff.ms": 10})
    # A seed repeats its chance: each run loses the same answers.
    with kafka.fail(api="Produce", when="after", share=1 / 3, seed=1, error="REQUEST_TIMED_OUT") as rule:
        assert place(producer, *orders) == [None] * len(orders)
        assert rule.applied > 0
    assert values(kafka) == [order.encode() for order in orders]


@pytest.mark.kafka(topics=["orders"])
def test_the_client_connects_again(kafka: Broker) -> None:
    producer = producer_of(kafka)
    place(producer, "lamp")
    assert kafka.close_connections(client_id="shop") > 0
    assert place(producer, "book") == [None]


# Transactions


@pytest.mark.kafka(topics=["orders"])
def test_an_aborted_order_is_not_read(kafka: Broker, consumer_of: ConsumerOf) -> None:
    producer = producer_of(kafka, **{"transactional.id": "shop-1"})
    producer.init_transactions(60)
    for order, end in [("lamp", producer.abort_transaction), ("book", producer.commit_transaction)]:
        producer.begin_transaction()
        place(producer, order)
        end(60)
    assert [message.value() for message in read(consumer_of(kafka), 1)] == [b"book"]
    assert len(kafka.records("orders", uncommitted=True)) == 2


@pytest.mark.kafka(settings=MANUAL_CLOCK, topics=["orders"])
def test_a_transaction_that_takes_too_long_is_aborted(kafka_broker: Broker) -> None:
    producer = producer_of(kafka_broker, **{"transactional.id": "shop-1", "transaction.timeout.ms": 60_000})
    producer.init_transactions(60)
    producer.begin_transaction()
    place(producer, "lamp")
    kafka_broker.advance(minutes=2)
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)
    assert kafka_broker.records("orders") == []


# Copies


@pytest.mark.kafka(topics=["orders"])
def test_the_broker_goes_back_to_a_snapshot(kafka: Broker) -> None:
    place(producer_of(kafka), "lamp")
    filled = kafka.snapshot()
    for order in ("book", "chair"):
        place(producer_of(kafka), order)
        assert values(kafka) == [b"lamp", order.encode()]
        filled.restore()


@pytest.mark.kafka(topics=["orders"], seeds={"orders": ["lamp"]})
def test_a_migration_is_tried_on_a_fork(kafka: Broker, consumer_of: ConsumerOf) -> None:
    with kafka.fork() as other:
        place(producer_of(other), *(message.value().decode() for message in read(consumer_of(other), 1)))
        assert values(other) == [b"lamp", b"lamp"]
    assert values(kafka) == [b"lamp"]
