"""Metrics of the share coordinator: partitions, writes, pruning."""

from pathlib import Path

import pytest

from tests.support.broker import InProcessBroker, running_broker
from tests.support.leadership import OTHER, hand_over
from tests.support.metrics import now, scrape, shown, up
from tests.unit.broker.handlers.share_states import (
    PRUNE_MS,
    STATE,
    initialize,
    orders_and_states,
    state_partition,
    write,
)

COORDINATOR = "kafka_server_share_coordinator_metrics"


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    return orders_and_states(broker)


def partitions(state: str) -> str:
    return f'{COORDINATOR}_num_partitions{{state="{state}"}}'


def test_the_partitions_of_states_that_are_coordinated_here_are_told(broker: InProcessBroker) -> None:
    with shown(broker, {partitions("active"): now(50)}):
        orders_and_states(broker)
    with shown(broker, {partitions("active"): now(49)}):
        hand_over(broker, STATE, OTHER)
    page = scrape(broker)
    assert (page[partitions("loading")], page[partitions("failed")]) == (0, 0)


def test_states_are_counted(broker: InProcessBroker, orders: bytes) -> None:
    with shown(broker, {"ottla_share_states": now(3)}):
        broker.ask(initialize(orders, 0, 1, 2), 0)


def test_writes_are_counted_and_timed(broker: InProcessBroker, orders: bytes) -> None:
    broker.ask(initialize(orders), 0)
    with shown(broker, {f"{COORDINATOR}_write_total": up(2), f"{COORDINATOR}_write_rate": up()}):
        broker.ask(write(orders), 1)
        broker.ask(write(orders), 1)
    times = broker.server.components.share_coordinator.stats.write_times
    assert sum(times.recent()) == 2
    broker.advance(60_000)
    broker.advance(60_000)  # those two are forgotten
    times.record(1_000)
    times.record(7_000)
    page = scrape(broker)
    assert page[f"{COORDINATOR}_write_latency_max"] == pytest.approx(7, rel=0.13)
    assert page[f"{COORDINATOR}_write_latency_avg"] == pytest.approx(4, rel=0.13)


def test_how_long_loading_takes_is_told(broker: InProcessBroker, orders: bytes) -> None:
    times = broker.server.components.share_coordinator.shares.load_times
    broker.advance(60_000)
    broker.advance(60_000)  # what came with the topic is forgotten
    times.record(1_000)
    times.record(7_000)
    page = scrape(broker)
    assert page[f"{COORDINATOR}_partition_load_time_max"] == pytest.approx(7, rel=0.13)
    assert page[f"{COORDINATOR}_partition_load_time_avg"] == pytest.approx(4, rel=0.13)


def test_up_to_where_a_partition_is_pruned_is_told(broker: InProcessBroker, orders: bytes) -> None:
    broker.ask(initialize(orders), 0)
    broker.ask(write(orders), 1)
    broker.ask(initialize(orders, state_epoch=2), 0)
    index = state_partition(orders)
    series = f'{COORDINATOR}_last_pruned_offset{{topic="{STATE}",partition="{index}"}}'
    with shown(broker, {series: now(2)}):
        broker.advance(PRUNE_MS)
        stats = broker.server.components.share_coordinator.stats
        broker.wait_until(lambda: index in stats.pruned_offsets)


def test_before_any_share_group_there_is_nothing(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        page = scrape(broker)
    assert page[f"{COORDINATOR}_write_total"] == page[partitions("active")] == 0
