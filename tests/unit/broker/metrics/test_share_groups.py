"""Metrics of share groups: groups by state, and new epochs; what the calls for tests say of them."""

import pytest

from broker.control.groups import described
from tests.support.broker import InProcessBroker
from tests.support.metrics import now, shown, up
from tests.unit.broker.handlers.share_groups import G, joined, left, with_share_groups

COORDINATOR = "kafka_server_group_coordinator_metrics"


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    return with_share_groups(broker)


def in_state(state: str) -> str:
    return f'{COORDINATOR}_share_group_count{{state="{state}"}}'


def test_groups_are_told_by_state(broker: InProcessBroker, orders: bytes) -> None:
    with shown(broker, {in_state("Stable"): now(1), f'{COORDINATOR}_group_count{{protocol="share"}}': now(1)}):
        joined(broker)
    with shown(broker, {in_state("Stable"): now(0), in_state("Empty"): now(1)}):
        left(broker)


def test_new_epochs_are_counted(broker: InProcessBroker, orders: bytes) -> None:
    rebalances = f"{COORDINATOR}_share_group_rebalance"
    with shown(broker, {f"{rebalances}_count": up(2), f"{rebalances}_rate": up()}):
        joined(broker)


def test_a_share_group_is_described_to_tests(broker: InProcessBroker, orders: bytes) -> None:
    joined(broker)
    found = described(broker.server, G)
    assert (found["group"], found["state"], found["committed"]) == (G, "Stable", {})
    assert [member["member"] for member in found["members"]] == ["anna"]
