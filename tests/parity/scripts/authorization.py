"""What each API asks of an authorizer: every request with its operations allowed, denied, and not spoken of.

The ACLs of each state are for an address of its own (127.1.0.1 and so on), from which its requests come: all states
are asked of one broker, and no ACL changes meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dev.apache_kafka import OPEN_CONTROLLER_ABOVE
from protocol.messages.acls import CreateAclsRequest
from protocol.messages.committed_offsets import OffsetCommitRequest
from protocol.messages.delegation_tokens import CreateDelegationTokenRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.schema import describe
from tests.parity.access import (
    SETTINGS,
    USERS,
    allow_everything_from_here,
    await_acls,
    log_in,
)
from tests.parity.authorization import administration, controllers, groups, records
from tests.parity.authorization.questions import Asking, Case, State, creations_of, states_of
from tests.parity.connection import Connection
from tests.parity.exchange import Exchange
from tests.parity.members import await_groups
from tests.parity.producers import await_transactions

__all__ = ["SETTINGS", "USERS", "run"]


CASES: Final = (*records.CASES, *groups.CASES, *administration.CASES, *controllers.CASES, *groups.AT_LAST)


def run(exchange: Exchange) -> None:
    admin = log_in(exchange, "admin")
    before = allow_everything_from_here(exchange, admin)
    prepare(exchange, admin)
    ask_all(exchange, admin, CASES, before)


def ask_all(exchange: Exchange, admin: Connection, cases: Sequence[Case], before: int) -> None:
    """Ask all cases; ``before``: how many ACLs there are already."""
    states = [state for case in cases for state in states_of(case)]
    creations = [
        creation for number, state in enumerate(states) for creation in creations_of(state, number, address(number))
    ]
    exchange.ask(None, CreateAclsRequest(creations=creations), 3, over=admin)
    await_acls(exchange, admin, before + len({repr(one) for one in creations}))
    for number, state in enumerate(states):
        ask(exchange, state, number)


def ask(exchange: Exchange, state: State, number: int) -> None:
    """Ask the request of a state in each of its versions."""
    case = state.case
    exchange.hang_up()
    if case.user is not None:
        over = log_in(exchange, case.user, from_address=address(number))
    else:
        port = exchange.broker.port + (OPEN_CONTROLLER_ABOVE if case.asks_controller else 0)
        over = exchange.connect(port, from_address=address(number))
    first, last = case.versions or describe(type(case.request(Asking(exchange, 7, number)))).versions
    for version in range(first, last + 1):
        request = case.request(Asking(exchange, version, number))
        exchange.ask(f"{case.step}, {state.name}", request, version, over=over)


def prepare(exchange: Exchange, admin: Connection) -> None:
    """Topics, a group with offsets, a transaction that stays open, and a token of the administrator's."""
    for name in ("orders", "letters"):
        exchange.create_topic(name, partitions=2)
    await_groups(exchange)
    await_transactions(exchange)
    of_topic = OffsetCommitRequest.Topic
    committed = [
        of_topic(
            name=name, partitions=[of_topic.Partition(partition_index=0, committed_offset=1, committed_metadata="")]
        )
        for name in ("orders", "letters")
    ]
    for group in ("readers", "writers"):
        exchange.ask(None, OffsetCommitRequest(group_id=group, topics=committed), 8)
    for transactional_id in ("mover", "shaker"):
        identity = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=900_000)
        producer = exchange.ask(None, identity, 3)
        exchange.ask(
            None,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("orders", "letters")
                ],
            ),
            3,
        )
    exchange.ask(None, CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3, over=admin)


def address(number: int) -> str:
    return f"127.1.{number // 200}.{number % 200 + 1}"
