"""Who may do what to share groups: each right by itself. Alice has none to begin with."""

from typing import Any

import pytest

from broker.request.permissions import Operation, ResourceType
from dev.serving import serves
from protocol.errors import ErrorCode as E
from protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from tests.support.acls import AUTHORIZER, acl, creation
from tests.support.broker import InProcessBroker
from tests.support.sasl_client import LISTENERS, SaslClient
from tests.unit.broker.handlers.share_groups import G, heartbeat_request, joined, left, with_share_groups
from tests.unit.broker.handlers.share_states import initialize

pytestmark = pytest.mark.settings(**AUTHORIZER, **LISTENERS, super_users="User:ANONYMOUS;User:admin")

GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
READ, DESCRIBE, DELETE = Operation.READ, Operation.DESCRIBE, Operation.DELETE


@pytest.fixture
def alice(broker: InProcessBroker) -> SaslClient:
    with_share_groups(broker)
    client = SaslClient(broker)
    client.log_in()
    return client


def allow(broker: InProcessBroker, kind: ResourceType, name: str, operation: Operation) -> None:
    broker.ask(creation(acl(name, resource_type=kind, operation=operation)), 3)


@serves(ShareGroupHeartbeatRequest, E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED, versions=[1])
def test_a_member_reads_in_the_group_and_sees_its_topics(broker: InProcessBroker, alice: SaslClient) -> None:
    def code() -> int:
        answer = alice.ask(heartbeat_request("alice"), 1)
        broker.saw(type(answer), 1, answer)
        return int(answer.error_code)

    assert code() == E.GROUP_AUTHORIZATION_FAILED
    allow(broker, GROUP, G, READ)
    assert code() == E.TOPIC_AUTHORIZATION_FAILED
    allow(broker, TOPIC, "orders", DESCRIBE)
    assert code() == E.NONE


@serves(ShareGroupDescribeRequest, E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED, versions=[1])
def test_a_group_is_seen_with_its_topics(broker: InProcessBroker, alice: SaslClient) -> None:
    def group() -> Any:
        answer = alice.ask(ShareGroupDescribeRequest(group_ids=[G], include_authorized_operations=False), 1)
        broker.saw(type(answer), 1, answer)
        return answer.groups[0]

    joined(broker)
    assert group().error_code == E.GROUP_AUTHORIZATION_FAILED
    allow(broker, GROUP, G, DESCRIBE)
    assert (group().error_code, group().members) == (E.TOPIC_AUTHORIZATION_FAILED, [])
    allow(broker, TOPIC, "orders", DESCRIBE)
    assert [member.member_id for member in group().members] == ["anna"]


def test_offsets_are_seen_changed_and_deleted_by_three_rights(broker: InProcessBroker, alice: SaslClient) -> None:
    of = DescribeShareGroupOffsetsRequest.Group
    named = DescribeShareGroupOffsetsRequest(
        groups=[of(group_id=G, topics=[of.Topic(topic_name="orders", partitions=[0])])]
    )
    every = DescribeShareGroupOffsetsRequest(groups=[of(group_id=G, topics=None)])
    changed = AlterShareGroupOffsetsRequest.Topic
    alter = AlterShareGroupOffsetsRequest(
        group_id=G,
        topics=[changed(topic_name="orders", partitions=[changed.Partition(partition_index=0, start_offset=0)])],
    )
    delete = DeleteShareGroupOffsetsRequest(
        group_id=G, topics=[DeleteShareGroupOffsetsRequest.Topic(topic_name="orders")]
    )
    joined(broker)
    left(broker)
    assert alice.ask(named, 1).groups[0].error_code == E.GROUP_AUTHORIZATION_FAILED
    assert alice.ask(alter, 0).error_code == E.GROUP_AUTHORIZATION_FAILED
    assert alice.ask(delete, 0).error_code == E.GROUP_AUTHORIZATION_FAILED
    for operation in (READ, DELETE):
        allow(broker, GROUP, G, operation)
    assert alice.ask(named, 1).groups[0].topics[0].partitions[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
    assert alice.ask(every, 1).groups[0].topics == []
    assert alice.ask(alter, 0).responses[0].partitions[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
    assert alice.ask(delete, 0).responses[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
    allow(broker, TOPIC, "orders", READ)
    assert alice.ask(named, 1).groups[0].topics[0].partitions[0].error_code == E.NONE
    assert len(alice.ask(every, 1).groups[0].topics) == 1
    assert alice.ask(alter, 0).responses[0].partitions[0].error_code == E.NONE
    assert alice.ask(delete, 0).responses[0].error_code == E.NONE


def test_states_are_for_brokers_only(broker: InProcessBroker, alice: SaslClient) -> None:
    topic_id = broker.server.components.metadata.image.topics.by_name["orders"].topic_id
    answer = alice.ask(initialize(topic_id), 0)
    assert answer.results[0].partitions[0].error_code == E.CLUSTER_AUTHORIZATION_FAILED
