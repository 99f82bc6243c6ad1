"""ShareGroupHeartbeat, ShareGroupDescribe and what other APIs say of share groups, through the codec."""

import pytest

from dev.serving import serves
from protocol.errors import ErrorCode as E
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from tests.support.broker import InProcessBroker
from tests.support.groups import commit_request
from tests.unit.broker.handlers.share_groups import (
    G,
    describe,
    heartbeat,
    heartbeat_request,
    joined,
    left,
    with_share_groups,
)


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    return with_share_groups(broker)


@serves(ShareGroupHeartbeatRequest, versions=[1])
def test_a_member_joins_and_gets_partitions(broker: InProcessBroker, orders: bytes) -> None:
    first = heartbeat(broker)
    assert (first.error_code, first.member_id, first.member_epoch, first.heartbeat_interval_ms) == (
        E.NONE,
        "anna",
        2,
        5_000,
    )
    assert first.assignment.topic_partitions == []
    answer = joined(broker)
    (topic,) = answer.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (orders, [0, 1, 2])
    assert heartbeat(broker, epoch=answer.member_epoch).assignment is None
    assert heartbeat(broker, epoch=-1).error_code == E.NONE


@serves(
    ShareGroupHeartbeatRequest,
    E.INVALID_REQUEST,
    E.GROUP_ID_NOT_FOUND,
    E.UNKNOWN_MEMBER_ID,
    E.FENCED_MEMBER_EPOCH,
    versions=[1],
)
def test_heartbeats_that_are_refused(broker: InProcessBroker, orders: bytes) -> None:
    for request, code in (
        (heartbeat_request(member=""), E.INVALID_REQUEST),
        (heartbeat_request(member="m" * 37), E.INVALID_REQUEST),
        (heartbeat_request(group_id=""), E.INVALID_REQUEST),
        (heartbeat_request(rack_id=""), E.INVALID_REQUEST),
        (heartbeat_request(topics=[]), E.INVALID_REQUEST),
        (heartbeat_request(epoch=-2), E.INVALID_REQUEST),
        (heartbeat_request(epoch=3), E.GROUP_ID_NOT_FOUND),
        (heartbeat_request(epoch=-1), E.GROUP_ID_NOT_FOUND),
    ):
        answer = broker.ask(request, 1)
        assert (answer.error_code, answer.member_id, answer.assignment) == (code, None, None)
        assert answer.error_message
    heartbeat(broker)
    assert heartbeat(broker, "bert", 1).error_code == E.UNKNOWN_MEMBER_ID
    assert heartbeat(broker, "bert", -1).error_code == E.UNKNOWN_MEMBER_ID
    assert heartbeat(broker, "anna", 9).error_code == E.FENCED_MEMBER_EPOCH


@serves(ShareGroupHeartbeatRequest, E.GROUP_MAX_SIZE_REACHED, versions=[1])
@pytest.mark.settings(group_share_max_size=1)
def test_a_full_group_takes_nobody_in(broker: InProcessBroker, orders: bytes) -> None:
    heartbeat(broker)
    assert heartbeat(broker, "bert").error_code == E.GROUP_MAX_SIZE_REACHED


@serves(ShareGroupDescribeRequest, E.NONE, E.GROUP_ID_NOT_FOUND, E.INVALID_GROUP_ID, versions=[1])
def test_a_group_is_described(broker: InProcessBroker, orders: bytes) -> None:
    answer = joined(broker)
    found, missing, nameless = describe(broker, G, "nobody", "", include_authorized_operations=True)
    assert (missing.error_code, nameless.error_code) == (E.GROUP_ID_NOT_FOUND, E.INVALID_GROUP_ID)
    assert (found.group_state, found.assignor_name, found.group_epoch) == ("Stable", "simple", answer.member_epoch)
    assert found.authorized_operations > 0
    (member,) = found.members
    assert (member.member_id, member.member_epoch, member.client_id, member.client_host) == (
        "anna",
        answer.member_epoch,
        "test",
        "/127.0.0.1",
    )
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.topic_id, topic.partitions) == ("orders", orders, [0, 1, 2])


@serves(ShareGroupHeartbeatRequest, E.NOT_COORDINATOR, versions=[1])
@serves(ShareGroupDescribeRequest, E.NOT_COORDINATOR, versions=[1])
def test_without_a_coordinator_there_is_no_group(broker: InProcessBroker) -> None:
    assert heartbeat(broker).error_code == E.NOT_COORDINATOR
    assert describe(broker)[0].error_code == E.NOT_COORDINATOR


def test_a_share_group_is_listed_and_is_no_classic_group(broker: InProcessBroker, orders: bytes) -> None:
    joined(broker)
    asked = ListGroupsRequest(states_filter=["stable"], types_filter=["share"])
    (listed,) = broker.ask(asked, 5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        G,
        "share",
        "Stable",
        "share",
    )
    (described,) = broker.ask(DescribeGroupsRequest(groups=[G]), 6).groups
    assert described.error_code == E.GROUP_ID_NOT_FOUND
    answer = broker.ask(commit_request({("orders", 0): 5}, group_id=G), 8)
    assert answer.topics[0].partitions[0].error_code == E.GROUP_ID_NOT_FOUND


def test_a_group_is_deleted_with_the_states_of_its_partitions(broker: InProcessBroker, orders: bytes) -> None:
    def delete() -> int:
        (deleted,) = broker.ask(DeleteGroupsRequest(groups_names=[G]), 2).results
        return int(deleted.error_code)

    joined(broker)
    shares = broker.server.components.share_coordinator.shares
    assert sum(len(one.shard.image.by_key) for one in shares.all()) == 3
    assert delete() == E.NON_EMPTY_GROUP
    left(broker)
    assert describe(broker)[0].group_state == "Empty"
    assert delete() == E.NONE
    assert delete() == E.GROUP_ID_NOT_FOUND
    assert not any(one.shard.image.by_key for one in shares.all())


def test_a_group_outlives_a_restart(broker: InProcessBroker, orders: bytes) -> None:
    before = joined(broker)
    broker.restart()
    broker.wait_until(lambda: describe(broker)[0].error_code == E.NONE)
    answer = heartbeat(broker, epoch=before.member_epoch, topics=["orders"])
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (
        E.NONE,
        before.member_epoch,
        before.assignment,
    )


def test_a_silent_member_is_removed(broker: InProcessBroker, orders: bytes) -> None:
    joined(broker)
    broker.advance(45_000)
    broker.wait_until(lambda: describe(broker)[0].group_state == "Empty")
