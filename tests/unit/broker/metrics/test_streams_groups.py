"""Metrics of streams groups: groups by state, and new epochs."""

import pytest

from tests.support.broker import InProcessBroker
from tests.support.metrics import now, shown, up
from tests.unit.broker.handlers.streams_groups import SETTINGS, heartbeat, joined, with_streams_groups

pytestmark = pytest.mark.settings(**SETTINGS)

COORDINATOR = "kafka_server_group_coordinator_metrics"


def in_state(state: str) -> str:
    return f'{COORDINATOR}_streams_group_count{{state="{state}"}}'


def test_groups_are_told_by_state(broker: InProcessBroker) -> None:
    with_streams_groups(broker)
    with shown(broker, {in_state("NotReady"): now(1), f'{COORDINATOR}_group_count{{protocol="streams"}}': now(1)}):
        broker.ask(heartbeat(), 1)
    with shown(broker, {in_state("Stable"): now(1), in_state("NotReady"): now(0)}):
        joined(broker)
    with shown(broker, {in_state("Stable"): now(0), in_state("Empty"): now(1)}):
        broker.ask(heartbeat(-1), 1)


def test_new_epochs_are_counted(broker: InProcessBroker) -> None:
    with_streams_groups(broker)
    rebalances = f"{COORDINATOR}_streams_group_rebalance"
    with shown(broker, {f"{rebalances}_count": up(2), f"{rebalances}_rate": up()}):
        joined(broker)
