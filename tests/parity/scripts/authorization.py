"""What each API asks of an authorizer: every request with its operations allowed, denied, and not spoken of.

The ACLs of each state are for an address of its own (127.1.0.1 and so on), from which its requests come: all states
are asked of one broker, and no ACL changes meanwhile.
"""

from __future__ import annotations

from typing import Any, Final

from broker.request.permissions import ResourceType
from protocol.messages.acls import CreateAclsRequest, DescribeAclsRequest
from protocol.messages.committed_offsets import OffsetCommitRequest
from protocol.messages.delegation_tokens import CreateDelegationTokenRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.schema import describe
from tests.parity.authorization import administration, controllers, groups, records
from tests.parity.authorization.questions import (
    ALL,
    ALLOW,
    CLUSTER,
    LITERAL,
    Asking,
    State,
    creations_of,
    states_of,
)
from tests.parity.brokers import FEATURES_OFF
from tests.parity.connection import Connection
from tests.parity.exchange import Exchange
from tests.parity.members import await_groups
from tests.parity.producers import await_transactions

USERS: Final = {"broker": "secret", "admin": "secret", "alice": "wonder", "bob": "build"}
FEATURES = FEATURES_OFF
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker;User:admin",
    "delegation.token.secret.key": "a secret",
    "group.initial.rebalance.delay.ms": "0",
}
HERE: Final = "127.0.0.1"
ANY, MATCH_ANY = 1, 1
SASL, CONTROLLER = 2, 3
"""The ports of these listeners above the first."""

CASES: Final = (*records.CASES, *groups.CASES, *administration.CASES, *controllers.CASES, *groups.AT_LAST)


def run(exchange: Exchange) -> None:
    admin = log_in(exchange, "admin")
    everything = [
        creation(kind, CLUSTER if kind is ResourceType.CLUSTER else "*", HERE)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
    ]
    exchange.ask(None, CreateAclsRequest(creations=everything), 3, over=admin)
    await_acls(exchange, admin, len(everything))
    prepare(exchange, admin)
    states = [state for case in CASES for state in states_of(case)]
    creations = [
        creation for number, state in enumerate(states) for creation in creations_of(state, number, address(number))
    ]
    exchange.ask(None, CreateAclsRequest(creations=creations), 3, over=admin)
    await_acls(exchange, admin, len(everything) + len({repr(one) for one in creations}))
    for number, state in enumerate(states):
        ask(exchange, state, number)


def ask(exchange: Exchange, state: State, number: int) -> None:
    """Ask the request of a state in each of its versions."""
    case = state.case
    exchange.hang_up()
    if case.user is not None:
        over = log_in(exchange, case.user, from_address=address(number))
    else:
        port = exchange.broker.port + (CONTROLLER if case.asks_controller else 0)
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


def creation(kind: ResourceType, name: str, host: str) -> CreateAclsRequest.Creation:
    return CreateAclsRequest.Creation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal="User:*",
        host=host,
        operation=ALL,
        permission_type=ALLOW,
    )


def await_acls(exchange: Exchange, admin: Connection, count: int) -> None:
    """Wait until the broker has so many ACLs."""
    every = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=MATCH_ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )

    def are_there(answer: Any) -> bool:
        return sum(len(resource.acls) for resource in answer.resources) == count

    exchange.wait_until(every, 3, are_there, over=admin)


def address(number: int) -> str:
    return f"127.1.{number // 200}.{number % 200 + 1}"


def log_in(exchange: Exchange, user: str, *, from_address: str | None = None) -> Connection:
    connection = exchange.connect(exchange.broker.port + SASL, from_address=from_address)
    exchange.ask(None, SaslHandshakeRequest(mechanism="PLAIN"), 1, over=connection)
    token = f"\0{user}\0{USERS[user]}".encode()
    answer = exchange.ask(None, SaslAuthenticateRequest(auth_bytes=token), 2, over=connection)
    assert not answer.error_code, answer
    return connection
