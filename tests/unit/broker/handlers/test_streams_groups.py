"""StreamsGroupHeartbeat, StreamsGroupDescribe and StreamsGroupTopologyDescriptionUpdate through the codec."""

from pathlib import Path

import pytest

from broker.control.groups import described
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.configs import DescribeConfigsRequest
from protocol.messages.features import UpdateFeaturesRequest
from protocol.messages.groups import ListGroupsRequest
from protocol.messages.streams_groups import (
    Endpoint,
    KeyValue,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    TaskIds,
    TaskOffset,
    TopologyDescription,
)
from tests.support.broker import InProcessBroker, running_broker
from tests.unit.broker.handlers.streams_groups import (
    CHANGELOG,
    SETTINGS,
    G,
    heartbeat,
    joined,
    topology,
    with_streams_groups,
)

pytestmark = pytest.mark.settings(**SETTINGS)

MISSING_INTERNAL_TOPICS = 3


@serves(StreamsGroupHeartbeatRequest, E.NONE)
@every_version(StreamsGroupHeartbeatRequest)
def test_a_member_gets_its_tasks_when_the_internal_topics_are_created(broker: InProcessBroker, version: int) -> None:
    with_streams_groups(broker)
    answer = broker.ask(heartbeat(), version)
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.active_tasks) == (E.NONE, "me", 2, [])
    [status] = answer.status
    assert (status.status_code, status.status_detail) == (
        MISSING_INTERNAL_TOPICS,
        f"Internal topics are missing: {CHANGELOG}",
    )
    broker.wait_until(lambda: CHANGELOG in broker.topics())

    answer = broker.ask(heartbeat(2), version)
    assert (answer.status, answer.active_tasks) == ([], [TaskIds(subtopology_id="0", partitions=[0, 1])])
    assert (answer.heartbeat_interval_ms, answer.task_offset_interval_ms) == (5_000, 60_000)
    assert broker.ask(heartbeat(3), version).active_tasks is None
    left = broker.ask(heartbeat(-1), version)
    assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (E.NONE, -1, 0)


@pytest.mark.parametrize("state", ["NotReady", "not_ready"])
def test_groups_without_their_topics_are_found_by_both_spellings(broker: InProcessBroker, state: str) -> None:
    with_streams_groups(broker)
    broker.ask(heartbeat(topology=topology("nowhere")), 1)

    [listed] = broker.ask(ListGroupsRequest(states_filter=[state]), 5).groups
    assert (listed.group_id, listed.group_state) == (G, "NotReady")


def test_internal_topics_have_the_configs_that_the_application_asks_for(broker: InProcessBroker) -> None:
    with_streams_groups(broker)
    broker.ask(heartbeat(topology=topology(configs={"cleanup.policy": "compact", "segment.ms": "60000"})), 1)
    broker.wait_until(lambda: CHANGELOG in broker.topics())

    resource = DescribeConfigsRequest.Resource(
        resource_type=2, resource_name=CHANGELOG, configuration_keys=["cleanup.policy", "segment.ms"]
    )
    [found] = broker.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    assert {one.name: one.value for one in found.configs} == {"cleanup.policy": "compact", "segment.ms": "60000"}


def test_an_application_is_told_why_a_topic_cannot_be_created_and_later_it_is_tried_again(
    broker: InProcessBroker,
) -> None:
    with_streams_groups(broker)
    bad = topology(changelogs=("a", "b", "c", "d"), configs={"segment.ms": "never"})
    broker.ask(heartbeat(topology=bad), 1)

    [status] = broker.ask(heartbeat(2), 1).status
    assert status.status_detail.startswith(
        "Internal topics are missing: a, b, c and 1 additional topics; Creation failed"
    )
    assert "a (Invalid value never" in status.status_detail
    assert status.status_detail.endswith(" and 1 more.")
    broker.create_topic("a", partitions=2)
    broker.advance(10_000)
    [status] = broker.ask(heartbeat(2), 1).status
    assert status.status_detail == "Internal topics are missing: b, c, d", "it is tried again"


@serves(StreamsGroupHeartbeatRequest, E.INVALID_REQUEST, E.STREAMS_INVALID_TOPOLOGY)
@every_version(StreamsGroupHeartbeatRequest)
def test_requests_that_make_no_sense_are_refused_and_nobody_is_a_member(broker: InProcessBroker, version: int) -> None:
    with_streams_groups(broker)
    tasks = [TaskIds(subtopology_id="0", partitions=[0])]
    by_regex = topology()
    by_regex.subtopologies[0].source_topic_regex.append("l.*")
    refused = {
        "GroupId can't be empty.": heartbeat(group_id=" "),
        "MemberId can't be empty.": heartbeat(member_id=""),
        "InstanceId can't be empty.": heartbeat(instance_id=""),
        "RackId can't be empty.": heartbeat(rack_id=" "),
        "RebalanceTimeoutMs must be provided in first request.": heartbeat(rebalance_timeout_ms=-1),
        "ActiveTasks must be empty when (re-)joining.": heartbeat(active_tasks=tasks),
        "StandbyTasks must be empty when (re-)joining.": heartbeat(standby_tasks=None),
        "WarmupTasks must be empty when (re-)joining.": heartbeat(warmup_tasks=tasks),
        "Topology must be non-null when (re-)joining.": heartbeat(topology=None),
        "Regular expressions for source topics are not supported yet.": heartbeat(topology=by_regex),
        "InstanceId can't be null.": heartbeat(-2),
        "MemberEpoch is -3, but must be greater than or equal to -2.": heartbeat(-3),
        "If one task-type is non-null, all must be non-null.": heartbeat(1, standby_tasks=[]),
        "Topology can only be provided when (re-)joining.": heartbeat(1, topology=topology()),
    }
    for message, request in refused.items():
        answer = broker.ask(request, version)
        assert (answer.error_code, answer.error_message) == (E.INVALID_REQUEST, message)
    sized = topology()
    sized.subtopologies[0].state_changelog_topics[0].partitions = 2
    impossible = {
        "Use of Kafka internal topics __consumer_offsets in a Kafka Streams": topology("lines", "__consumer_offsets"),
        "Topic names no name! are not valid topic names.": topology("no name!"),
        f"Changelog topic {CHANGELOG} must have an undefined partition count, but it is set to 2.": sized,
    }
    for message, asked in impossible.items():
        answer = broker.ask(heartbeat(topology=asked), version)
        assert answer.error_code == E.STREAMS_INVALID_TOPOLOGY
        assert answer.error_message.startswith(message)
    [group] = broker.ask(StreamsGroupDescribeRequest(group_ids=[G], include_authorized_operations=False), 1).groups
    assert group.error_code == E.GROUP_ID_NOT_FOUND


@serves(
    StreamsGroupHeartbeatRequest,
    E.FENCED_MEMBER_EPOCH,
    E.UNKNOWN_MEMBER_ID,
    E.GROUP_ID_NOT_FOUND,
    E.UNRELEASED_INSTANCE_ID,
    E.FENCED_INSTANCE_ID,
    E.GROUP_MAX_SIZE_REACHED,
)
@pytest.mark.settings(group_streams_max_size=2)
@every_version(StreamsGroupHeartbeatRequest)
def test_who_is_not_the_member_is_refused(broker: InProcessBroker, version: int) -> None:
    with_streams_groups(broker)
    assert broker.ask(heartbeat(2), version).error_code == E.GROUP_ID_NOT_FOUND
    joined(broker)
    codes = [
        broker.ask(request, version).error_code
        for request in (
            heartbeat(7),
            heartbeat(2, member_id="other"),
            heartbeat(member_id="static", instance_id="one"),
            heartbeat(member_id="again", instance_id="one"),
            heartbeat(3, member_id="again", instance_id="one"),
            heartbeat(member_id="third"),
        )
    ]
    assert codes == [
        E.FENCED_MEMBER_EPOCH,
        E.UNKNOWN_MEMBER_ID,
        E.NONE,
        E.UNRELEASED_INSTANCE_ID,
        E.FENCED_INSTANCE_ID,
        E.GROUP_MAX_SIZE_REACHED,
    ]


@serves(StreamsGroupHeartbeatRequest, E.NOT_COORDINATOR)
@every_version(StreamsGroupHeartbeatRequest)
def test_without_the_coordinators_topic_nobody_joins(broker: InProcessBroker, version: int) -> None:
    assert broker.ask(heartbeat(), version).error_code == E.NOT_COORDINATOR


@serves(StreamsGroupDescribeRequest, E.NONE, E.GROUP_ID_NOT_FOUND, E.INVALID_GROUP_ID)
@every_version(StreamsGroupDescribeRequest)
def test_groups_are_described_and_listed(broker: InProcessBroker, version: int) -> None:
    with_streams_groups(broker)
    about = {
        "rack_id": "rack",
        "client_tags": [KeyValue(key="zone", value="a")],
        "user_endpoint": Endpoint(host="here", port=7),
        "task_offsets": [TaskOffset(subtopology_id="0", partition=1, offset=5)],
    }
    broker.ask(heartbeat(**about), 1, client_id="app-1")
    broker.wait_until(lambda: CHANGELOG in broker.topics())
    broker.ask(heartbeat(2), 1, client_id="app-1")

    asked = StreamsGroupDescribeRequest(
        group_ids=[G, "", "other"], include_authorized_operations=True, include_topology_description=version > 0
    )
    group, unnamed, other = broker.ask(asked, version).groups

    assert (unnamed.error_code, other.error_code) == (E.INVALID_GROUP_ID, E.GROUP_ID_NOT_FOUND)
    assert other.error_message == "Group other not found."
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 3, 3)
    assert group.authorized_operations > 0
    [subtopology] = group.topology.subtopologies
    [changelog] = subtopology.state_changelog_topics
    assert (subtopology.source_topics, changelog.name, changelog.partitions) == (["lines"], CHANGELOG, 2)
    [member] = group.members
    assert (member.member_id, member.member_epoch, member.client_id) == ("me", 3, "app-1")
    assert (member.rack_id, member.process_id, member.topology_epoch) == ("rack", "here", 0)
    assert (member.user_endpoint, member.client_tags) == (about["user_endpoint"], about["client_tags"])
    assert member.task_offsets == about["task_offsets"]
    assert member.assignment == member.target_assignment
    assert member.assignment.active_tasks == [TaskIds(subtopology_id="0", partitions=[0, 1])]
    if version > 0:
        assert (group.assignor_name, group.topology_description_status) == ("sticky", 1)
    [listed] = broker.ask(ListGroupsRequest(states_filter=["Stable"], types_filter=["streams"]), 5).groups
    assert (listed.group_id, listed.group_type, listed.protocol_type) == (G, "streams", "streams")


def test_a_streams_group_is_described_to_tests(broker: InProcessBroker) -> None:
    with_streams_groups(broker)
    joined(broker)

    found = described(broker.server, G)

    assert (found["group"], found["state"]) == (G, "Stable")
    assert [member["member"] for member in found["members"]] == ["me"]


@serves(StreamsGroupTopologyDescriptionUpdateRequest, E.UNSUPPORTED_VERSION, versions=[0])
def test_no_topology_description_is_kept(broker: InProcessBroker) -> None:
    with_streams_groups(broker)
    joined(broker)
    asked = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=G,
        member_id="me",
        topology_epoch=0,
        topology_description=TopologyDescription(subtopologies=[], global_stores=[]),
    )

    assert broker.ask(asked, 0).error_code == E.UNSUPPORTED_VERSION


@serves(StreamsGroupHeartbeatRequest, E.UNSUPPORTED_VERSION, versions=[1])
@serves(StreamsGroupDescribeRequest, E.UNSUPPORTED_VERSION, versions=[1])
@pytest.mark.settings(group_coordinator_rebalance_protocols="classic,consumer")
def test_a_broker_may_serve_no_streams_groups(broker: InProcessBroker) -> None:
    with_streams_groups(broker)

    assert broker.ask(heartbeat(), 1).error_code == E.UNSUPPORTED_VERSION
    asked = StreamsGroupDescribeRequest(group_ids=[G], include_authorized_operations=False)
    assert [group.error_code for group in broker.ask(asked, 1).groups] == [E.UNSUPPORTED_VERSION]


def test_the_feature_is_off_in_an_older_directory_and_stays_on_over_a_start(tmp_path: Path) -> None:
    def level(broker: InProcessBroker) -> dict[str, int]:
        answer = broker.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
        return {one.name: one.max_version_level for one in answer.finalized_features}

    with running_broker(tmp_path, ottla_release_version="4.0", **SETTINGS) as broker:
        assert "streams.version" not in level(broker)
        assert broker.ask(heartbeat(), 1).error_code == E.UNSUPPORTED_VERSION
        update = UpdateFeaturesRequest.FeatureUpdate(feature="streams.version", max_version_level=1, upgrade_type=1)
        assert broker.ask(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code == E.NONE
        with_streams_groups(broker)
        joined(broker)
    with running_broker(tmp_path, **SETTINGS) as broker:
        assert level(broker)["streams.version"] == 1
        broker.wait_until(lambda: broker.ask(heartbeat(3), 1).error_code == E.NONE)
