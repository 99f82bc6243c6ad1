"""Who may do what to streams groups: each right by itself. Alice has none to begin with."""

from typing import Any

import pytest

from broker.request.permissions import Operation, ResourceType
from dev.serving import serves
from protocol.errors import ErrorCode as E
from protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from tests.support.acls import AUTHORIZER, acl, creation
from tests.support.broker import InProcessBroker
from tests.support.sasl_client import LISTENERS, SaslClient
from tests.unit.broker.handlers.streams_groups import (
    CHANGELOG,
    SETTINGS,
    G,
    heartbeat,
    joined,
    with_streams_groups,
)

pytestmark = pytest.mark.settings(**SETTINGS, **AUTHORIZER, **LISTENERS, super_users="User:ANONYMOUS;User:admin")

GROUP, TOPIC, CLUSTER = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.CLUSTER
READ, DESCRIBE, CREATE = Operation.READ, Operation.DESCRIBE, Operation.CREATE


@pytest.fixture
def alice(broker: InProcessBroker) -> SaslClient:
    with_streams_groups(broker)
    client = SaslClient(broker)
    client.log_in()
    return client


def allow(broker: InProcessBroker, kind: ResourceType, name: str, operation: Operation) -> None:
    broker.ask(creation(acl(name, resource_type=kind, operation=operation)), 3)


@serves(StreamsGroupHeartbeatRequest, E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED, versions=[1])
def test_a_member_reads_in_the_group_and_sees_all_topics_of_its_topology(
    broker: InProcessBroker, alice: SaslClient
) -> None:
    def code() -> int:
        answer = alice.ask(heartbeat(), 1)
        broker.saw(type(answer), 1, answer)
        return int(answer.error_code)

    assert code() == E.GROUP_AUTHORIZATION_FAILED
    allow(broker, GROUP, G, READ)
    assert code() == E.TOPIC_AUTHORIZATION_FAILED
    allow(broker, TOPIC, "lines", DESCRIBE)
    assert code() == E.TOPIC_AUTHORIZATION_FAILED
    allow(broker, TOPIC, CHANGELOG, DESCRIBE)
    assert code() == E.NONE


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, CHANGELOG), (CLUSTER, "kafka-cluster")])
def test_internal_topics_are_created_for_who_may_create_them(
    broker: InProcessBroker, alice: SaslClient, kind: ResourceType, name: str
) -> None:
    allow(broker, GROUP, G, READ)
    allow(broker, TOPIC, "lines", DESCRIBE)
    allow(broker, TOPIC, CHANGELOG, DESCRIBE)

    [status] = alice.ask(heartbeat(), 1).status
    assert status.status_detail == (
        f"Internal topics are missing: {CHANGELOG}; Unauthorized to CREATE on topics {CHANGELOG}."
    )
    assert CHANGELOG not in broker.topics()
    allow(broker, kind, name, CREATE)
    [status] = alice.ask(heartbeat(2), 1).status
    assert status.status_detail == f"Internal topics are missing: {CHANGELOG}"
    broker.wait_until(lambda: CHANGELOG in broker.topics())


@serves(StreamsGroupDescribeRequest, E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED, versions=[1])
def test_a_group_is_seen_with_its_topics(broker: InProcessBroker, alice: SaslClient) -> None:
    def group() -> Any:
        answer = alice.ask(StreamsGroupDescribeRequest(group_ids=[G], include_authorized_operations=False), 1)
        broker.saw(type(answer), 1, answer)
        return answer.groups[0]

    joined(broker)
    assert group().error_code == E.GROUP_AUTHORIZATION_FAILED
    allow(broker, GROUP, G, DESCRIBE)
    assert (group().error_code, group().members) == (E.TOPIC_AUTHORIZATION_FAILED, [])
    allow(broker, TOPIC, "lines", DESCRIBE)
    allow(broker, TOPIC, CHANGELOG, DESCRIBE)
    assert [member.member_id for member in group().members] == ["me"]


@serves(StreamsGroupTopologyDescriptionUpdateRequest, E.GROUP_AUTHORIZATION_FAILED, versions=[0])
def test_a_topology_is_not_described_by_strangers(broker: InProcessBroker, alice: SaslClient) -> None:
    asked = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=G,
        member_id="me",
        topology_epoch=0,
        topology_description=TopologyDescription(subtopologies=[], global_stores=[]),
    )
    answer = alice.ask(asked, 0)
    broker.saw(type(answer), 0, answer)

    assert answer.error_code == E.GROUP_AUTHORIZATION_FAILED
