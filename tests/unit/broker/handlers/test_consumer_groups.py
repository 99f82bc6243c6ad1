"""ConsumerGroupHeartbeat and ConsumerGroupDescribe through the codec."""

from pathlib import Path

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from tests.support.broker import InProcessBroker, running_broker
from tests.support.groups import create_offsets_topic

G = "readers"


def heartbeat(epoch: int = 0, **about: object) -> ConsumerGroupHeartbeatRequest:
    joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
    asked = {"group_id": G, "member_id": "me", "member_epoch": epoch} | (joining if epoch == 0 else {}) | about
    return ConsumerGroupHeartbeatRequest(**asked)  # type: ignore[arg-type]


@serves(ConsumerGroupHeartbeatRequest, E.NONE)
@every_version(ConsumerGroupHeartbeatRequest)
def test_a_member_joins_and_leaves(broker: InProcessBroker, version: int) -> None:
    create_offsets_topic(broker)
    topic = broker.create_topic("orders", partitions=2)
    answer = broker.ask(heartbeat(), version)

    assert (answer.error_code, answer.member_id, answer.member_epoch) == (E.NONE, "me", 2)
    assert [(one.topic_id, one.partitions) for one in answer.assignment.topic_partitions] == [(topic, [0, 1])]
    assert broker.ask(heartbeat(2), version).assignment is None
    left = broker.ask(heartbeat(-1), version)
    assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (E.NONE, -1, 0)


@serves(ConsumerGroupHeartbeatRequest, E.INVALID_REQUEST, E.UNSUPPORTED_ASSIGNOR)
@every_version(ConsumerGroupHeartbeatRequest)
def test_requests_that_make_no_sense_are_refused_and_nobody_is_a_member(broker: InProcessBroker, version: int) -> None:
    create_offsets_topic(broker)
    broker.create_topic("orders")
    some = ConsumerGroupHeartbeatRequest.TopicPartition(topic_id=bytes(16), partitions=[0])
    refused = {
        "GroupId can't be empty.": heartbeat(group_id=" "),
        "InstanceId can't be empty.": heartbeat(instance_id=""),
        "RackId can't be empty.": heartbeat(rack_id=" "),
        "RebalanceTimeoutMs must be provided in first request.": heartbeat(rebalance_timeout_ms=-1),
        "TopicPartitions must be empty when (re-)joining.": heartbeat(topic_partitions=[some]),
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.": heartbeat(
            subscribed_topic_names=None
        ),
        "InstanceId can't be null.": heartbeat(-2),
        "MemberEpoch is invalid.": heartbeat(-3),
    }
    for message, request in refused.items():
        answer = broker.ask(request, version)
        assert (answer.error_code, answer.error_message) == (E.INVALID_REQUEST, message)
    answer = broker.ask(heartbeat(server_assignor="mine"), version)
    assert answer.error_code == E.UNSUPPORTED_ASSIGNOR
    assert answer.error_message == "ServerAssignor mine is not supported. Supported assignors: uniform, range."
    if version >= 1:
        answer = broker.ask(heartbeat(subscribed_topic_names=[], subscribed_topic_regex="(orders"), version)
        assert answer.error_code == E.INVALID_REGULAR_EXPRESSION
        assert broker.ask(heartbeat(member_id=""), version).error_code == E.INVALID_REQUEST
    else:
        assert broker.ask(heartbeat(member_id=""), version).member_id
        return
    [described] = broker.ask(ConsumerGroupDescribeRequest(group_ids=[G], include_authorized_operations=False), 1).groups
    assert described.error_code == E.GROUP_ID_NOT_FOUND


@serves(ConsumerGroupDescribeRequest, E.NONE, E.GROUP_ID_NOT_FOUND, E.INVALID_GROUP_ID)
@every_version(ConsumerGroupDescribeRequest)
def test_groups_are_described_and_listed(broker: InProcessBroker, version: int) -> None:
    create_offsets_topic(broker)
    topic = broker.create_topic("orders", partitions=2)
    broker.ask(heartbeat(), 1, client_id="app")

    asked = ConsumerGroupDescribeRequest(group_ids=[G, "", "other"], include_authorized_operations=True)
    group, unnamed, other = broker.ask(asked, version).groups
    assert (unnamed.error_code, other.error_code) == (E.INVALID_GROUP_ID, E.GROUP_ID_NOT_FOUND)
    assert other.error_message == "Group other not found."
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert (group.assignor_name, group.authorized_operations) == ("uniform", 3400)
    [member] = group.members
    assert (member.member_id, member.member_epoch, member.client_id) == ("me", 2, "app")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["orders"], "")
    [assigned] = member.assignment.topic_partitions
    assert (assigned.topic_id, assigned.topic_name, assigned.partitions) == (topic, "orders", [0, 1])
    assert member.target_assignment == member.assignment
    assert member.member_type == (1 if version else -1)

    [listed] = broker.ask(ListGroupsRequest(states_filter=["stable"], types_filter=["consumer"]), 5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_type) == (G, "consumer", "consumer")
    [classic] = broker.ask(DescribeGroupsRequest(groups=[G], include_authorized_operations=False), 6).groups
    assert (classic.error_code, classic.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    assert classic.error_message == f"Group {G} is not a classic group."


@every_version(ConsumerGroupDescribeRequest)
def test_partitions_that_a_member_has_still_to_give_up_are_described_as_its_own(
    broker: InProcessBroker, version: int
) -> None:
    create_offsets_topic(broker)
    topic = broker.create_topic("orders", partitions=3)
    joined = broker.ask(heartbeat(member_id="anna", server_assignor="range"), 1)
    broker.advance(1_000)
    broker.ask(heartbeat(member_id="bert", server_assignor="range"), 1)
    everything = [ConsumerGroupHeartbeatRequest.TopicPartition(topic_id=topic, partitions=[0, 1, 2])]

    def described() -> list[list[int]]:
        """The partitions that anna has, and those that she is to have."""
        asked = ConsumerGroupDescribeRequest(group_ids=[G], include_authorized_operations=False)
        members = {member.member_id: member for member in broker.ask(asked, version).groups[0].members}
        anna = members["anna"]
        return [one.topic_partitions[0].partitions for one in (anna.assignment, anna.target_assignment)]

    beats = {"member_id": "anna", "rebalance_timeout_ms": -1, "subscribed_topic_names": None}
    told = broker.ask(heartbeat(joined.member_epoch, topic_partitions=everything, **beats), 1)
    [kept] = told.assignment.topic_partitions
    assert kept.partitions == [0, 1]
    assert described() == [[0, 1, 2], [0, 1]]
    owned = [ConsumerGroupHeartbeatRequest.TopicPartition(topic_id=topic, partitions=kept.partitions)]
    broker.ask(heartbeat(joined.member_epoch, topic_partitions=owned, **beats), 1)
    assert described() == [[0, 1], [0, 1]]


def test_an_expression_subscribes_to_topics_that_are_there_and_that_come(broker: InProcessBroker) -> None:
    create_offsets_topic(broker)
    orders = broker.create_topic("orders")
    broker.create_topic("payments")
    joined = broker.ask(heartbeat(subscribed_topic_names=[], subscribed_topic_regex="ord.*"), 1)
    assert joined.error_code == E.NONE
    owned: list[bytes] = []

    def has_orders() -> bool:
        broker.advance(1_000)
        answer = broker.ask(heartbeat(0, subscribed_topic_names=[], subscribed_topic_regex="ord.*"), 1)
        owned[:] = [topic.topic_id for topic in answer.assignment.topic_partitions]
        return owned == [orders]

    broker.wait_until(has_orders)


def test_where_the_protocol_is_off_clients_are_told_so(tmp_path: Path) -> None:
    with running_broker(tmp_path, group_coordinator_rebalance_protocols="classic") as broker:
        assert broker.ask(heartbeat(), 1).error_code == E.UNSUPPORTED_VERSION
        asked = ConsumerGroupDescribeRequest(group_ids=[G], include_authorized_operations=False)
        assert [group.error_code for group in broker.ask(asked, 1).groups] == [E.UNSUPPORTED_VERSION]


def test_the_feature_is_finalised(broker: InProcessBroker) -> None:
    features = broker.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    assert ("group.version", 1) in {(one.name, one.max_version_level) for one in features.finalized_features}
