"""What a test can do to an application of FastStream: each test shows one thing.

pip install 'ottla[test]' -r requirements.txt
pytest
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from app import shipping
from faststream.kafka import KafkaBroker

from ottla.testing import Broker

pytestmark = pytest.mark.anyio

LAMP = {"value": {"customer": "anna", "item": "lamp"}}
BOOK = {"value": {"customer": "ben", "item": "book"}}
TOPICS = ["orders", "shipments"]
MANUAL_CLOCK = {"ottla.clock": "manual"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def running(*applications: KafkaBroker) -> AsyncIterator[None]:
    for application in applications:
        await application.start()
    try:
        yield
    finally:
        for application in applications:
            await application.stop()


async def wait_for(kafka: Broker, **condition: Any) -> dict[str, Any]:
    """Wait in a thread, so that the application goes on meanwhile."""
    return await asyncio.to_thread(kafka.wait_for, timeout=60, **condition)


async def all_done(kafka: Broker) -> None:
    await wait_for(kafka, group="shipping", topic="orders", caught_up=True)


def parcels(kafka: Broker) -> list[str]:
    return [json.loads(record.value or b"")["parcel"] for record in kafka.records("shipments")]


# What the application does


@pytest.mark.kafka(topics=TOPICS, seeds={"orders": [LAMP, BOOK]})
async def test_each_order_becomes_a_shipment(kafka: Broker) -> None:
    async with running(shipping(kafka.bootstrap_servers)):
        await all_done(kafka)
    assert parcels(kafka) == ["one lamp", "one book"]


@pytest.mark.kafka(topics=TOPICS, seeds={"orders": "orders.jsonl"})
async def test_orders_of_a_file(kafka: Broker) -> None:
    async with running(shipping(kafka.bootstrap_servers)):
        await all_done(kafka)
    assert len(parcels(kafka)) == 3


@pytest.mark.kafka(topics=[*TOPICS, "rejected"], seeds={"orders": ["no order", LAMP]})
async def test_what_is_no_order_is_put_aside(kafka: Broker) -> None:
    async with running(shipping(kafka.bootstrap_servers)):
        await all_done(kafka)
    assert [record.value for record in kafka.records("rejected")] == [b"no order"]
    assert parcels(kafka) == ["one lamp"]


@pytest.mark.kafka(topics={"orders": 1, "shipments": 8}, seeds={"orders": "orders.jsonl"})
async def test_shipments_to_one_customer_are_in_one_partition(kafka: Broker) -> None:
    async with running(shipping(kafka.bootstrap_servers)):
        await all_done(kafka)
    assert len({record.partition for record in kafka.records("shipments") if record.key == b"anna"}) == 1


@pytest.mark.kafka(topics=TOPICS)
async def test_an_order_that_comes_later_is_shipped_too(kafka: Broker) -> None:
    async with running(shipping(kafka.bootstrap_servers)):
        await wait_for(kafka, group="shipping", state="Stable", members=1)
        kafka.produce("orders", [LAMP])
        await wait_for(kafka, topic="shipments", records=1)
    assert parcels(kafka) == ["one lamp"]


@pytest.mark.kafka(topics=TOPICS, seeds={"orders": [LAMP]})
async def test_a_restarted_application_goes_on_where_it_stopped(kafka: Broker) -> None:
    for _ in range(2):
        async with running(shipping(kafka.bootstrap_servers)):
            await wait_for(kafka, group="shipping", state="Stable", members=1)
            await all_done(kafka)
    kafka.produce("orders", [BOOK])
    async with running(shipping(kafka.bootstrap_servers)):
        await all_done(kafka)
    assert parcels(kafka) == ["one lamp", "one book"]


@pytest.mark.kafka(topics=TOPICS, seeds={"orders": [LAMP, BOOK]})
async def test_what_it_asks_of_the_broker(kafka: Broker) -> None:
    async with running(shipping(kafka.bootstrap_servers, "shop-7")):
        await all_done(kafka)
    assert len(kafka.requests(api="Produce", topic="shipments", client_id="shop-7")) == 2
    assert kafka.requests(api="Produce", topic="orders", client_id="shop-7") == []


# Several of it


@pytest.mark.kafka(topics={"orders": 4, "shipments": 1})
async def test_two_of_it_share_the_work(kafka: Broker) -> None:
    async with running(*(shipping(kafka.bootstrap_servers, name) for name in ("one", "two"))):
        await wait_for(kafka, group="shipping", state="Stable", members=2)
        kafka.produce("orders", [{**LAMP, "partition": partition} for partition in range(4)])
        await all_done(kafka)
    shipped_by = {request["client_id"] for request in kafka.requests(api="Produce", topic="shipments")}
    assert shipped_by == {"one", "two"}
    assert len(parcels(kafka)) == 4


@pytest.mark.kafka(topics={"orders": 2, "shipments": 1})
async def test_one_dies_and_the_other_takes_over(kafka: Broker) -> None:
    async with running(*(shipping(kafka.bootstrap_servers, name) for name in ("dead", "other"))):
        found = await wait_for(kafka, group="shipping", state="Stable", members=2)
        [dead] = [one["member"] for one in found["group"]["members"] if one["client_id"] == "dead"]
        with kafka.fail(client_id="dead", close=True):  # the broker hears nothing of it any more
            kafka.expire_members("shipping", dead)  # as if its session were over
            await asyncio.to_thread(kafka.wait_for, group="shipping", members=1)
            kafka.produce("orders", [{**LAMP, "partition": partition} for partition in range(2)])
            await all_done(kafka)
    assert {request["client_id"] for request in kafka.requests(api="Produce", topic="shipments")} == {"other"}


# What goes wrong


@pytest.mark.kafka(topics=TOPICS, seeds={"orders": [LAMP]})
async def test_an_answer_is_lost_and_nothing_is_shipped_twice(kafka: Broker) -> None:
    with kafka.fail(api="Produce", topic="shipments", when="after", close=True, times=1) as lost:
        async with running(shipping(kafka.bootstrap_servers)):
            await all_done(kafka)
        assert lost.applied == 1
    assert parcels(kafka) == ["one lamp"]


@pytest.mark.kafka(topics=TOPICS, seeds={"orders": [LAMP]})
async def test_an_order_waits_while_the_disk_is_full(kafka: Broker) -> None:
    async with running(shipping(kafka.bootstrap_servers)):
        with kafka.fail(topic="shipments", disk="full"):
            await wait_for(kafka, group="shipping", state="Stable", members=1)
            assert kafka.committed("shipping") == {}
        await all_done(kafka)
    assert parcels(kafka) == ["one lamp"]


@pytest.mark.kafka(topics=TOPICS, seeds={"orders": [LAMP]})
async def test_an_order_that_could_not_be_shipped_is_taken_again(kafka: Broker) -> None:
    with kafka.fail(api="Produce", topic="shipments", error="MESSAGE_TOO_LARGE", times=1) as rule:
        async with running(shipping(kafka.bootstrap_servers)):
            await all_done(kafka)
        assert rule.applied == 1
    assert parcels(kafka) == ["one lamp"]


@pytest.mark.kafka(topics=TOPICS, seeds={"orders": [LAMP, BOOK]})
async def test_the_leader_is_away_for_a_moment(kafka: Broker) -> None:
    kafka.fail(topic="orders", api="Fetch", error="NOT_LEADER_OR_FOLLOWER", times=2)
    kafka.fail(topic="shipments", api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    async with running(shipping(kafka.bootstrap_servers)):
        await all_done(kafka)
    assert parcels(kafka) == ["one lamp", "one book"]


@pytest.mark.kafka(topics=TOPICS, seeds={"orders": "orders.jsonl"})
async def test_a_third_of_all_shipments_loses_its_answer(kafka: Broker) -> None:
    # A seed repeats its chance: each run loses the same answers.
    kafka.fail(api="Produce", topic="shipments", when="after", share=1 / 3, seed=1, error="REQUEST_TIMED_OUT")
    async with running(shipping(kafka.bootstrap_servers)):
        await all_done(kafka)
    assert len(parcels(kafka)) == 3


@pytest.mark.kafka(topics=TOPICS, seeds={"orders": [LAMP]})
async def test_answers_are_late(kafka: Broker) -> None:
    with kafka.fail(api="Produce", topic="shipments", when="after", delay_ms=200) as late:
        async with running(shipping(kafka.bootstrap_servers)):
            await all_done(kafka)
        assert late.applied == 1
    assert parcels(kafka) == ["one lamp"]


@pytest.mark.kafka(topics=TOPICS)
async def test_it_connects_again(kafka: Broker) -> None:
    async with running(shipping(kafka.bootstrap_servers)):
        await wait_for(kafka, group="shipping", state="Stable", members=1)
        assert kafka.close_connections(client_id="shipping") > 0
        kafka.produce("orders", [LAMP])
        await all_done(kafka)
    assert parcels(kafka) == ["one lamp"]


# Time


@pytest.mark.kafka(
    settings=MANUAL_CLOCK,
    topics={"orders": {"configs": {"retention.ms": "60000"}}, "shipments": 1},
    seeds={"orders": [LAMP]},
)
async def test_an_order_is_deleted_before_it_is_shipped(kafka_broker: Broker) -> None:
    kafka_broker.advance(minutes=10)
    kafka_broker.produce("orders", [BOOK])
    async with running(shipping(kafka_broker.bootstrap_servers)):
        await wait_for(kafka_broker, topic="shipments", records=1)
    assert parcels(kafka_broker) == ["one book"]


@pytest.mark.kafka(settings={**MANUAL_CLOCK, "offsets.retention.minutes": "5"}, topics=TOPICS, seeds={"orders": [LAMP]})
async def test_an_application_that_was_away_for_too_long_ships_again(kafka_broker: Broker) -> None:
    for _ in range(2):
        async with running(shipping(kafka_broker.bootstrap_servers)):
            await all_done(kafka_broker)
        await wait_for(kafka_broker, group="shipping", state="Empty")
        kafka_broker.advance(minutes=20)
    assert parcels(kafka_broker) == ["one lamp", "one lamp"]


@pytest.mark.kafka(
    settings=MANUAL_CLOCK,
    topics={"orders": 1, "shipments": {"configs": {"message.timestamp.type": "LogAppendTime"}}},
)
async def test_shipments_get_the_time_of_the_broker(kafka_broker: Broker) -> None:
    async with running(shipping(kafka_broker.bootstrap_servers)):
        for order in (LAMP, BOOK):
            kafka_broker.produce("orders", [order])
            await all_done(kafka_broker)
            kafka_broker.advance(seconds=5)
    lamp, book = kafka_broker.records("shipments")
    assert book.timestamp_ms - lamp.timestamp_ms == 5_000


# Copies


@pytest.mark.kafka(topics=TOPICS, seeds={"orders": [LAMP]})
async def test_two_versions_of_it_begin_with_the_same_orders(kafka: Broker) -> None:
    filled = kafka.snapshot()
    shipped = []
    for version in ("shipping-1", "shipping-2"):
        async with running(shipping(kafka.bootstrap_servers, version)):
            await all_done(kafka)
        shipped.append(parcels(kafka))
        filled.restore()
    assert shipped == [["one lamp"], ["one lamp"]]


@pytest.mark.kafka(topics=TOPICS, seeds={"orders": [LAMP]})
async def test_it_is_tried_on_a_fork(kafka: Broker) -> None:
    with kafka.fork() as other:
        async with running(shipping(other.bootstrap_servers)):
            await all_done(other)
        assert parcels(other) == ["one lamp"]
    assert parcels(kafka) == []
    assert kafka.committed("shipping") == {}
