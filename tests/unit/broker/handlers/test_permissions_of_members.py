"""Two brokers in one cluster have an authorizer: a member hands requests on in the name of its client, and the
controller asks what the client may do. ACLs reach the member with the metadata.

Brokers reach each other as anonymous clients, which are super users. Clients of the member come in by SASL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.request.permissions import Operation, ResourceType
from protocol.errors import ErrorCode as E
from protocol.messages.broker_lifecycle import BrokerHeartbeatRequest
from protocol.messages.topics import CreateTopicsRequest
from tests.support.acls import AUTHORIZER, acl, creation, deletion, description
from tests.support.broker import WITH_CONTROLLER_LISTENER, Client, InProcessBroker, running_broker, running_member
from tests.support.sasl_client import ALICE, BOB, LISTENERS, SaslClient

SETTINGS = {**AUTHORIZER, "offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}


@pytest.fixture
def primary(tmp_path: Path, super_users: str) -> Iterator[InProcessBroker]:
    """Node 1, with the controller."""
    with running_broker(
        tmp_path / "primary",
        **WITH_CONTROLLER_LISTENER,
        super_users=super_users,
        **SETTINGS,
    ) as broker:
        yield broker


@pytest.fixture
def super_users() -> str:
    return "User:ANONYMOUS;User:bob"


@pytest.fixture
def member(tmp_path: Path, primary: InProcessBroker, super_users: str) -> Iterator[InProcessBroker]:
    """Node 2, whose controller is node 1."""
    with running_member(tmp_path / "member", primary, super_users=super_users, **LISTENERS, **SETTINGS) as broker:
        yield broker


def create(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic])


def forwarded(broker: InProcessBroker, client: Client, request: Any, version: int) -> Any:
    """The answer to a request that the controller answers, which takes time on the brokers' clock."""
    client.send(request, version)

    def has_come() -> bool:
        broker.advance(5)
        return not client.has_no_answer()

    broker.wait_until(has_come)
    return client.receive()


def until(broker: InProcessBroker, condition: Callable[[], bool]) -> None:
    def holds() -> bool:
        broker.advance(5)
        return condition()

    broker.wait_until(holds)


def test_a_client_of_a_member_may_what_its_principal_may(primary: InProcessBroker, member: InProcessBroker) -> None:
    alice, bob = SaslClient(member), SaslClient(member)
    alice.log_in(ALICE)
    bob.log_in(BOB)
    answer = forwarded(member, alice.client, create("orders"), 7)
    assert answer.topics[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
    answer = forwarded(member, alice.client, creation(acl()), 3)
    assert answer.results[0].error_code == E.CLUSTER_AUTHORIZATION_FAILED

    wanted = creation(acl("kafka-cluster", resource_type=ResourceType.CLUSTER, operation=Operation.CREATE))
    assert forwarded(member, bob.client, wanted, 3).results[0].error_code == E.NONE
    assert forwarded(member, alice.client, create("orders"), 7).topics[0].error_code == E.NONE
    until(member, lambda: len(bob.ask(description(), 3).resources) == 1)

    assert forwarded(member, bob.client, deletion(), 3).filter_results[0].error_code == E.NONE
    answer = forwarded(member, alice.client, create("letters"), 7)
    assert answer.topics[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
    until(member, lambda: bob.ask(description(), 3).resources == [])


@pytest.mark.parametrize("super_users", ["User:nobody"])
def test_who_asks_the_controller_as_a_broker_needs_the_permission_of_brokers(primary: InProcessBroker) -> None:
    heartbeat = BrokerHeartbeatRequest(
        broker_id=2, broker_epoch=7, current_metadata_offset=0, want_fence=True, want_shut_down=False
    )
    answer = primary.connect("CONTROLLER").ask(heartbeat, 1)
    assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED
