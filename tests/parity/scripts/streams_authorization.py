"""What each API of streams groups asks of an authorizer, in a cluster that has such groups: as in `authorization`."""

from __future__ import annotations

from tests.parity.access import SETTINGS as LISTENERS
from tests.parity.access import USERS, allow_everything_from_here, log_in
from tests.parity.authorization.streams import CASES, GROUP, joining, reading
from tests.parity.exchange import Exchange
from tests.parity.members import await_groups
from tests.parity.scripts.authorization import ask_all

__all__ = ["SETTINGS", "USERS", "run"]

SETTINGS = {
    **LISTENERS,
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.session.timeout.ms": "60000",
    "group.streams.assignment.interval.ms": "0",
}


def run(exchange: Exchange) -> None:
    admin = log_in(exchange, "admin")
    before = allow_everything_from_here(exchange, admin)
    for name in ("orders", "letters"):
        exchange.create_topic(name, partitions=2)
    await_groups(exchange)
    exchange.wait_until(
        joining(GROUP, "anna", reading("orders", "letters")), 1, lambda answer: not answer.error_code, patience_s=30.0
    )
    ask_all(exchange, admin, CASES, before)
