"""Metrics of the lag of share groups."""

from pathlib import Path

import pytest

from broker.coordinators.share.persister import SharePartitionKey
from broker.metrics import group_survey
from config.resources import ConfigResource
from protocol.errors import ErrorCode as E
from protocol.messages.topics import DeleteTopicsRequest
from tests.support.altered_configs import configure
from tests.support.broker import InProcessBroker, running_broker
from tests.support.metrics import now, scrape, shown
from tests.support.share_groups import ShareMember
from tests.unit.broker.handlers.share_groups import G, joined, left, with_share_groups
from tests.unit.broker.handlers.share_states import code, initialize, orders_and_states, write

ACCEPT = 1
ACKNOWLEDGED, ARCHIVED, AVAILABLE = 2, 4, 0

ON_ORDERS = '{group="workers",topic="orders"}'
ON_ORDERS_1 = '{group="workers",topic="orders",partition="1"}'


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    return orders_and_states(broker)


def begin(broker: InProcessBroker, orders: bytes, partition: int, **written: int) -> None:
    """Have a state written as the leader of the partition does it."""
    assert code(broker, initialize(orders, partition)) == E.NONE
    assert code(broker, write(orders, partition, **written), 1) == E.NONE


def test_members_of_a_share_group_are_counted(broker: InProcessBroker) -> None:
    with_share_groups(broker)
    with shown(broker, {'ottla_sharegroup_members{group="workers"}': now(1)}):
        joined(broker)
    assert not scrape(broker).of("kafka_consumergroup_members"), "it is no consumer group"
    with shown(broker, {'ottla_sharegroup_members{group="workers"}': now(0)}):
        left(broker)


def test_a_group_that_acknowledges_catches_up(broker: InProcessBroker) -> None:
    orders = with_share_groups(broker)
    configure(broker, ConfigResource.GROUP, G, "share.auto.offset.reset", "earliest")
    broker.produce("orders", *[b"order"] * 10)
    joined(broker)
    assert not scrape(broker).of("ottla_sharegroup_lag"), "the group has not begun yet"
    anna = ShareMember(broker, orders)
    broker.wait_until(lambda: anna.acquire() == [(0, 9, 1)])
    of_partition = '{group="workers",topic="orders",partition="0"}'
    with shown(broker, {f"ottla_sharegroup_lag{of_partition}": now(7), f"ottla_sharegroup_lag_sum{ON_ORDERS}": now(7)}):
        anna.acknowledge({(orders, 0): [(0, 2, ACCEPT)]})
    with shown(broker, {f"ottla_sharegroup_lag{of_partition}": now(6)}):
        anna.acknowledge({(orders, 0): [(5, 5, ACCEPT)]})
    assert scrape(broker)[f"ottla_sharegroup_start_offset{of_partition}"] == 3, "3 and 4 are not done with"
    with shown(broker, {f"ottla_sharegroup_lag{of_partition}": now(8)}):
        broker.produce("orders", b"two", b"more")


def test_topics_have_the_lag_of_all_partitions(broker: InProcessBroker, orders: bytes) -> None:
    broker.produce("orders", *[b"order"] * 10, partition=1)
    broker.produce("orders", *[b"order"] * 20, partition=2)
    begin(broker, orders, 1, start_offset=4, delivery_complete_count=2)
    begin(broker, orders, 2, start_offset=15, delivery_complete_count=0)
    page = scrape(broker)
    assert page[f"ottla_sharegroup_lag{ON_ORDERS_1}"] == 4
    assert page[f"ottla_sharegroup_lag_sum{ON_ORDERS}"] == 9
    assert page[f"ottla_sharegroup_start_offset_sum{ON_ORDERS}"] == 19


def test_where_the_leader_has_not_counted_the_batches_say_what_is_done(broker: InProcessBroker, orders: bytes) -> None:
    broker.produce("orders", *[b"order"] * 10, partition=1)
    assert code(broker, initialize(orders, 1, start_offset=-1)) == E.NONE
    batches = [(0, 1, AVAILABLE, 1), (2, 4, ACKNOWLEDGED, 1), (5, 5, ARCHIVED, 5)]
    assert code(broker, write(orders, 1, batches=batches)) == E.NONE
    assert scrape(broker)[f"ottla_sharegroup_lag{ON_ORDERS_1}"] == 6


def test_a_group_that_is_ahead_of_the_log_is_not_behind(broker: InProcessBroker, orders: bytes) -> None:
    begin(broker, orders, 1, start_offset=100)
    assert scrape(broker)[f"ottla_sharegroup_lag{ON_ORDERS_1}"] == 0


def test_of_a_partition_that_is_not_here_only_the_offset_is_told(broker: InProcessBroker, orders: bytes) -> None:
    begin(broker, orders, 1, start_offset=5)
    shares = broker.server.components.share_coordinator.shares.active
    (states,) = [one.shard.image.by_key for one in shares if one.shard.image.by_key]
    states[SharePartitionKey(G, orders, 9)] = states[SharePartitionKey(G, orders, 1)]
    page = scrape(broker)
    elsewhere = '{group="workers",topic="orders",partition="9"}'
    assert page[f"ottla_sharegroup_start_offset{elsewhere}"] == 5
    assert page.get(f"ottla_sharegroup_lag{elsewhere}") is None


def test_a_deleted_topic_has_no_lag(broker: InProcessBroker, orders: bytes) -> None:
    begin(broker, orders, 1)
    assert scrape(broker)[f"ottla_sharegroup_lag_sum{ON_ORDERS}"] == 0
    topic = DeleteTopicsRequest.Topic(name="orders", topic_id=bytes(16))
    broker.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=1), 6)
    broker.settle()
    assert scrape(broker).get(f"ottla_sharegroup_lag_sum{ON_ORDERS}") is None


@pytest.mark.settings(ottla_prometheus_partitions="false")
def test_without_series_of_partitions_the_sums_stay(broker: InProcessBroker, orders: bytes) -> None:
    broker.produce("orders", b"order", partition=1)
    begin(broker, orders, 1)
    page = scrape(broker)
    assert page[f"ottla_sharegroup_lag_sum{ON_ORDERS}"] == 1
    assert not page.of("ottla_sharegroup_lag")
    assert page["ottla_sharegroup_left_out"] == 0, "nobody wants them"


def test_what_has_no_room_is_left_out_and_counted(
    broker: InProcessBroker, orders: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        for partition in (1, 2):
            assert code(broker, initialize(orders, partition, group_id=f"group-{number}")) == E.NONE
    assert scrape(broker)["ottla_sharegroup_left_out"] == 0
    monkeypatch.setattr(group_survey, "MOST_CHARACTERS", 4 * len('{group="group-0",topic="orders"}'))
    page = scrape(broker)
    topics, partitions = (len(page.of(f"ottla_sharegroup_{name}")) for name in ("lag_sum", "lag"))
    assert topics == 4
    assert 0 < partitions < 8
    missing_topics, partitions_of_shown = 10 - topics, 2 * topics
    # Partitions of a topic that is left out are left out with it, and do not count again.
    assert page["ottla_sharegroup_left_out"] == missing_topics + partitions_of_shown - partitions


def test_before_any_share_group_there_is_nothing(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        page = scrape(broker)
    assert page["ottla_sharegroup_left_out"] == 0
    assert not page.of("ottla_sharegroup_members")
    assert not page.of("ottla_sharegroup_lag_sum")
