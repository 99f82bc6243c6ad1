"""What a test can do to a program that uses aiokafka: each test shows one thing.

pip install 'ottla[test]' aiokafka
pytest
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, KafkaStorageError, TopicAuthorizationFailedError

from ottla.testing import Broker

MANUAL_CLOCK = {"ottla.clock": "manual"}


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on an event loop, as pytest-asyncio or anyio do."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


def producer_of(kafka: Broker, **settings: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, client_id="shop", **settings)


def consumer_of(kafka: Broker, **settings: Any) -> AIOKafkaConsumer:
    """A consumer of the group "shipping"."""
    quick = {"heartbeat_interval_ms": 100, "session_timeout_ms": 60_000, "retry_backoff_ms": 20}
    group = {"group_id": "shipping", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    return AIOKafkaConsumer("orders", bootstrap_servers=kafka.bootstrap_servers, **{**quick, **group, **settings})


async def place(kafka: Broker, *orders: str, **settings: Any) -> None:
    """Send orders one after the other. Raises `KafkaError`."""
    async with producer_of(kafka, **settings) as producer:
        for order in orders:
            await producer.send_and_wait("orders", order.encode())


async def read(consumer: AIOKafkaConsumer, count: int) -> list[bytes | None]:
    return [(await consumer.getone()).value for _ in range(count)]


async def until(holds: Callable[[], bool]) -> None:
    """Let the clients go on until something holds."""
    while not holds():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.02)


def values(kafka: Broker, topic: str = "orders") -> list[bytes | None]:
    """What the topic has, as the broker knows it."""
    return [record.value for record in kafka.records(topic)]


# What a test begins with, and what it waits for


@pytest.mark.kafka(topics={"orders": 1}, seeds={"orders": [{"key": "anna", "value": {"books": 2}}, "lamp"]})
@on_a_loop
async def test_the_topic_has_records_when_the_test_begins(kafka: Broker) -> None:
    async with consumer_of(kafka) as consumer:
        assert await read(consumer, 2) == [b'{"books": 2}', b"lamp"]


@pytest.mark.parametrize("time", ["first", "second"])
@on_a_loop
async def test_the_broker_is_empty_for_each_test(kafka: Broker, time: str) -> None:
    await place(kafka, time)
    assert values(kafka) == [time.encode()]


@pytest.mark.kafka(topics={"orders": 3}, seeds={"orders": ["lamp", "book", "chair"]})
@on_a_loop
async def test_the_test_waits_until_the_program_has_read_everything(kafka: Broker) -> None:
    async def ship(consumer: AIOKafkaConsumer) -> None:
        async for _ in consumer:
            await consumer.commit()

    async with consumer_of(kafka) as consumer:
        shipping = asyncio.create_task(ship(consumer))
        await asyncio.to_thread(kafka.wait_for, group="shipping", topic="orders", caught_up=True)
        shipping.cancel()
    assert sum(kafka.committed("shipping").values()) == 3


@on_a_loop
async def test_the_test_asks_what_the_program_has_sent(kafka: Broker) -> None:
    async with producer_of(kafka, linger_ms=50) as producer:
        sent = [await producer.send("orders", b"%d" % number) for number in range(100)]
        await asyncio.gather(*sent)
    assert len(kafka.requests(api="Produce", topic="orders", client_id="shop")) < 100, "orders are sent one by one"


@on_a_loop
async def test_a_program_that_wants_three_replicas_runs_on_one_broker(kafka: Broker) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic("orders", 2, replication_factor=3)])
    await admin.close()
    await place(kafka, "lamp", acks="all")
    assert values(kafka) == [b"lamp"]


# Groups


@pytest.mark.kafka(topics={"orders": 4})
@on_a_loop
async def test_a_second_consumer_gets_half_of_the_partitions(kafka: Broker) -> None:
    async with consumer_of(kafka) as first:
        await until(lambda: len(first.assignment()) == 4)
        async with consumer_of(kafka) as second:
            await until(lambda: (len(first.assignment()), len(second.assignment())) == (2, 2))
            await asyncio.to_thread(kafka.wait_for, group="shipping", state="Stable", members=2)


@pytest.mark.kafka(topics={"orders": 2})
@on_a_loop
async def test_a_consumer_dies_and_another_takes_over(kafka: Broker) -> None:
    async with consumer_of(kafka, client_id="dead", group_instance_id="dead") as dead, consumer_of(kafka) as other:
        await until(lambda: (len(dead.assignment()), len(other.assignment())) == (1, 1))
        with kafka.fail(client_id="dead", close=True):  # the broker hears nothing of it any more
            await asyncio.to_thread(kafka.expire_members, "shipping", "dead")  # as if its session were over
            await asyncio.to_thread(kafka.wait_for, group="shipping", members=1)
            await until(lambda: len(other.assignment()) == 2)


@pytest.mark.kafka(settings={**MANUAL_CLOCK, "offsets.retention.minutes": "5"}, seeds={"orders": ["lamp"]})
@on_a_loop
async def test_a_group_that_was_away_for_too_long_begins_again(kafka_broker: Broker) -> None:
    async with consumer_of(kafka_broker) as consumer:
        await read(consumer, 1)
        await consumer.commit()
    kafka_broker.wait_for(group="shipping", state="Empty")
    kafka_broker.advance(minutes=20)
    assert kafka_broker.committed("shipping") == {}
    async with consumer_of(kafka_broker) as consumer:
        assert await read(consumer, 1) == [b"lamp"]


# Time


@pytest.mark.kafka(settings=MANUAL_CLOCK, topics={"orders": {"configs": {"retention.ms": "60000"}}})
@on_a_loop
async def test_orders_are_deleted_after_a_minute(kafka_broker: Broker) -> None:
    await place(kafka_broker, "old")
    kafka_broker.advance(minutes=10)
    assert kafka_broker.records("orders") == []
    await place(kafka_broker, "new")
    async with consumer_of(kafka_broker) as consumer:
        assert await consumer.beginning_offsets([TopicPartition("orders", 0)]) == {TopicPartition("orders", 0): 1}
        assert await read(consumer, 1) == [b"new"]


@pytest.mark.kafka(settings=MANUAL_CLOCK, topics={"orders": {"configs": {"message.timestamp.type": "LogAppendTime"}}})
@on_a_loop
async def test_records_get_the_time_of_the_broker(kafka_broker: Broker) -> None:
    async with producer_of(kafka_broker) as producer:
        lamp = await producer.send_and_wait("orders", b"lamp")
        kafka_broker.advance(hours=1)
        book = await producer.send_and_wait("orders", b"book")
    assert book.timestamp - lamp.timestamp == 3_600_000


@pytest.mark.kafka(topics={"stock": {"configs": {"cleanup.policy": "compact"}}})
@on_a_loop
async def test_a_compacted_topic_keeps_the_last_value_of_each_key(kafka: Broker) -> None:
    async with producer_of(kafka) as producer:
        for key, value in [(b"lamp", b"3"), (b"book", b"7"), (b"lamp", b"2"), (b"book", None)]:
            await producer.send_and_wait("stock", value, key)
    kafka.run("compaction")
    assert [(record.key, record.value) for record in kafka.records("stock")] == [(b"lamp", b"2"), (b"book", None)]


# What goes wrong


@pytest.mark.parametrize(("is_idempotent", "written"), [(True, 1), (False, 2)])
@on_a_loop
async def test_an_answer_is_lost(kafka: Broker, is_idempotent: bool, written: int) -> None:
    kafka.fail(api="Produce", when="after", close=True, times=1)
    await place(kafka, "lamp", enable_idempotence=is_idempotent)
    assert values(kafka) == [b"lamp"] * written  # without idempotence the order is there twice


@pytest.mark.kafka(topics=["orders"])
@on_a_loop
async def test_a_full_disk_is_an_error_of_the_delivery(kafka: Broker) -> None:
    with kafka.fail(topic="orders", disk="full"), pytest.raises((KafkaStorageError, KafkaError)):
        await place(kafka, "lamp", request_timeout_ms=500)
    await place(kafka, "book")
    assert values(kafka) == [b"book"]


@pytest.mark.kafka(topics=["orders"])
@on_a_loop
async def test_the_client_tries_again_after_some_errors(kafka: Broker) -> None:
    with kafka.fail(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2) as rule:
        await place(kafka, "lamp")
        assert rule.applied == 2
    assert values(kafka) == [b"lamp"]


@pytest.mark.kafka(topics=["orders"])
@on_a_loop
async def test_the_program_is_told_other_errors(kafka: Broker) -> None:
    kafka.fail(api="Produce", topic="orders", error="TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(TopicAuthorizationFailedError):
        await place(kafka, "lamp")


@pytest.mark.kafka(topics=["orders"])
@on_a_loop
async def test_an_order_may_be_written_though_its_answer_is_late(kafka: Broker) -> None:
    async with producer_of(kafka, request_timeout_ms=1_000) as hasty:
        await hasty.send_and_wait("orders", b"book")
        with kafka.fail(api="Produce", when="after", delay_ms=60_000), pytest.raises(KafkaError):
            await hasty.send_and_wait("orders", b"lamp")
    kafka.wait_for(topic="orders", records=2)


@pytest.mark.kafka(topics=["orders"])
@on_a_loop
async def test_a_third_of_all_requests_fails_and_nothing_is_lost(kafka: Broker) -> None:
    orders = [str(number) for number in range(20)]
    # A seed repeats its chance: each run loses the same answers.
    with kafka.fail(api="Produce", when="after", share=1 / 3, seed=1, error="REQUEST_TIMED_OUT") as rule:
        await place(kafka, *orders, enable_idempotence=True, retry_backoff_ms=10)
        assert rule.applied > 0
    assert values(kafka) == [order.encode() for order in orders]


@pytest.mark.kafka(topics=["orders"])
@on_a_loop
async def test_the_client_connects_again(kafka: Broker) -> None:
    async with producer_of(kafka) as producer:
        await producer.send_and_wait("orders", b"lamp")
        assert kafka.close_connections(client_id="shop") > 0
        await producer.send_and_wait("orders", b"book")
    assert values(kafka) == [b"lamp", b"book"]


# Transactions


@pytest.mark.kafka(topics=["orders"])
@on_a_loop
async def test_an_aborted_order_is_not_read(kafka: Broker) -> None:
    async with producer_of(kafka, transactional_id="shop-1") as producer:
        for order, end in [(b"lamp", producer.abort_transaction), (b"book", producer.commit_transaction)]:
            await producer.begin_transaction()
            await producer.send_and_wait("orders", order)
            await end()
    async with consumer_of(kafka, isolation_level="read_committed") as consumer:
        assert await read(consumer, 1) == [b"book"]
    assert len(kafka.records("orders", uncommitted=True)) == 2


@pytest.mark.kafka(settings=MANUAL_CLOCK, topics=["orders"])
@on_a_loop
async def test_a_transaction_that_takes_too_long_is_aborted(kafka_broker: Broker) -> None:
    async with producer_of(kafka_broker, transactional_id="shop-1", transaction_timeout_ms=60_000) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"lamp")
        kafka_broker.advance(minutes=2)
        with pytest.raises(KafkaError):
            await producer.commit_transaction()
    assert kafka_broker.records("orders") == []


# Copies


@pytest.mark.kafka(topics=["orders"])
@on_a_loop
async def test_the_broker_goes_back_to_a_snapshot(kafka: Broker) -> None:
    await place(kafka, "lamp")
    filled = kafka.snapshot()
    for order in ("book", "chair"):
        await place(kafka, order)
        assert values(kafka) == [b"lamp", order.encode()]
        filled.restore()


@pytest.mark.kafka(topics=["orders"], seeds={"orders": ["lamp"]})
@on_a_loop
async def test_a_migration_is_tried_on_a_fork(kafka: Broker) -> None:
    with kafka.fork() as other:
        async with consumer_of(other) as consumer:
            [order] = await read(consumer, 1)
        await place(other, f"two {order.decode() if order else ''}s")
        assert values(other) == [b"lamp", b"two lamps"]
    assert values(kafka) == [b"lamp"]
