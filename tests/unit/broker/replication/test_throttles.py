"""Throttles of replication (KIP-73): replicas that lag catch up at a rate, replicas in sync are not held back."""

from __future__ import annotations

from typing import Any

import pytest

from broker.replication.partition import LeaderAndIsr
from broker.replication.throttles import ALL_PARTITIONS, ReplicationThrottle
from broker.runtime.manual_clock import ManualClock
from config.replication_quotas import throttled_partitions
from config.resources import ConfigResource
from protocol.errors import ErrorCode
from storage.topic_partition import TopicPartition
from tests.support.altered_configs import configure
from tests.support.broker import WITH_CONTROLLER_LISTENER, InProcessBroker
from tests.support.leadership import OTHER, OURS
from tests.support.metrics import scrape
from tests.support.requests import fetch_request

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("0:1,1:2,2:1", {0, 2}),
        (" 3:1 , 4:11", {3}),
        ("*", ALL_PARTITIONS),
        ("none", set()),
        ("", set()),
        ("x:1,:1,1:,²:1,1", set()),
    ],
)
def test_the_replicas_of_a_broker_are_read_from_the_config_of_a_topic(text: str, partitions: set[int] | None) -> None:
    assert throttled_partitions(text, 1) == partitions


def test_a_rate_counts_and_withholds_the_partitions_for_which_it_holds() -> None:
    clock = ManualClock()
    throttle = ReplicationThrottle(clock, windows=11, window_ms=1_000)
    throttle.count(ORDERS, 1_000_000)
    assert throttle.per_second() == 0, "the rate does not hold for the partition"
    throttle.update(1_000, {"orders": frozenset({0})})
    throttle.count(ORDERS, 20_000)
    assert throttle.per_second() == 20_000
    assert throttle.withholds(ORDERS)
    assert not throttle.withholds(TopicPartition("orders", 1))
    clock.advance(10_999)
    assert throttle.withholds(ORDERS)
    clock.advance(1)
    assert not throttle.withholds(ORDERS), "it is forgotten after eleven windows"
    throttle.count(ORDERS, 2_000)
    assert throttle.pause_ms() == 1_000
    clock.advance(2_000)
    assert not throttle.withholds(ORDERS)
    throttle.update(None, {"orders": ALL_PARTITIONS})
    throttle.count(ORDERS, 1_000_000)
    assert not throttle.withholds(ORDERS), "without a rate there is no limit"


@pytest.mark.settings(**WITH_CONTROLLER_LISTENER)
def test_a_follower_that_lags_gets_records_at_the_rate_of_the_leader(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", bytes(20_000))
    configure(broker, ConfigResource.BROKER, str(OURS), "leader.replication.throttled.rate", "1000")
    configure(broker, ConfigResource.TOPIC, "orders", "leader.replication.throttled.replicas", f"0:{OURS}")
    replicas = broker.server.components.replicas

    def set_isr(*isr: int) -> None:
        async def apply() -> None:
            partition = replicas.partition("orders", 0)
            epoch = partition.leader_epoch + 1
            state = LeaderAndIsr(OURS, epoch, (OURS, OTHER), frozenset(isr), partition_epoch=epoch)
            replicas.apply(partition, state)

        broker.run(apply())

    def fetched() -> int:
        answer: Any = broker.ask(fetch_request(replica_id=OTHER, max_wait_ms=0), 12)
        (found,) = answer.responses[0].partitions
        assert found.error_code == ErrorCode.NONE
        return len(found.records or b"")

    set_isr(OURS)
    assert fetched() > 20_000
    assert scrape(broker)["kafka_server_leaderreplication_byte_rate"] > 20_000
    assert fetched() == 0, "20,000 a second"
    answer: Any = broker.ask(fetch_request(replica_id=OTHER, offset=99), 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    broker.advance(11_000)
    assert fetched() > 20_000
    set_isr(OURS, OTHER)
    assert fetched() > 20_000, "a replica in sync is not held back"
