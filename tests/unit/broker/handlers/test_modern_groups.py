"""Share groups and streams groups through the codec, at levels that have none."""

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from tests.support.broker import InProcessBroker

pytestmark = pytest.mark.settings(ottla_release_version="4.0")

ID = bytes(range(16))

GROUPS = ["readers", "", "readers"]


@serves(ShareGroupHeartbeatRequest, E.UNSUPPORTED_VERSION)
@every_version(ShareGroupHeartbeatRequest)
def test_a_member_of_a_share_group_is_told_that_there_are_none(broker: InProcessBroker, version: int) -> None:
    asked = ShareGroupHeartbeatRequest(group_id="workers", member_id="me", member_epoch=0)
    assert broker.ask(asked, version).error_code == E.UNSUPPORTED_VERSION


@serves(ShareGroupDescribeRequest, E.UNSUPPORTED_VERSION)
@every_version(ShareGroupDescribeRequest)
def test_every_share_group_is_answered_for_itself(broker: InProcessBroker, version: int) -> None:
    asked = ShareGroupDescribeRequest(group_ids=GROUPS, include_authorized_operations=False)
    groups = broker.ask(asked, version).groups
    assert [(group.group_id, group.error_code) for group in groups] == [
        (name, E.UNSUPPORTED_VERSION) for name in GROUPS
    ]


@serves(ShareFetchRequest, E.UNSUPPORTED_VERSION)
@every_version(ShareFetchRequest)
def test_a_share_fetch_brings_nothing_and_does_not_wait(broker: InProcessBroker, version: int) -> None:
    topic = ShareFetchRequest.Topic
    asked = ShareFetchRequest(
        group_id="workers",
        member_id="me",
        share_session_epoch=0,
        max_wait_ms=30_000,
        min_bytes=1,
        max_records=10,
        batch_size=10,
        topics=[
            topic(topic_id=ID, partitions=[topic.Partition(partition_index=0, acknowledgement_batches=[])]),
        ],
        forgotten_topics_data=[],
    )
    answer = broker.ask(asked, version)
    assert (answer.error_code, answer.responses, answer.node_endpoints) == (E.UNSUPPORTED_VERSION, [], [])


@serves(ShareAcknowledgeRequest, E.UNSUPPORTED_VERSION)
@every_version(ShareAcknowledgeRequest)
def test_nothing_is_acknowledged(broker: InProcessBroker, version: int) -> None:
    asked = ShareAcknowledgeRequest(group_id="workers", member_id="me", share_session_epoch=1, topics=[])
    answer = broker.ask(asked, version)
    assert (answer.error_code, answer.responses) == (E.UNSUPPORTED_VERSION, [])


@serves(DescribeShareGroupOffsetsRequest, E.UNSUPPORTED_VERSION)
@every_version(DescribeShareGroupOffsetsRequest)
def test_no_offsets_of_share_groups_are_described(broker: InProcessBroker, version: int) -> None:
    group = DescribeShareGroupOffsetsRequest.Group
    asked = [
        group(group_id="workers", topics=[group.Topic(topic_name="orders", partitions=[0])]),
        group(group_id="others", topics=None),
    ]
    groups = broker.ask(DescribeShareGroupOffsetsRequest(groups=asked), version).groups
    assert [(one.group_id, one.error_code, one.topics) for one in groups] == [
        ("workers", E.UNSUPPORTED_VERSION, []),
        ("others", E.UNSUPPORTED_VERSION, []),
    ]


@serves(AlterShareGroupOffsetsRequest, E.UNSUPPORTED_VERSION, versions=[0])
@serves(DeleteShareGroupOffsetsRequest, E.UNSUPPORTED_VERSION, versions=[0])
def test_no_offsets_of_share_groups_are_changed(broker: InProcessBroker) -> None:
    altered, deleted = AlterShareGroupOffsetsRequest.Topic, DeleteShareGroupOffsetsRequest.Topic
    change = altered.Partition(partition_index=0, start_offset=5)
    asked = (
        AlterShareGroupOffsetsRequest(group_id="g", topics=[altered(topic_name="orders", partitions=[change])]),
        DeleteShareGroupOffsetsRequest(group_id="g", topics=[deleted(topic_name="orders")]),
    )
    for request in asked:
        answer = broker.ask(request, 0)
        assert (answer.error_code, answer.responses) == (E.UNSUPPORTED_VERSION, [])


@serves(StreamsGroupHeartbeatRequest, E.UNSUPPORTED_VERSION)
@every_version(StreamsGroupHeartbeatRequest)
def test_a_streams_application_is_told_to_take_the_classic_protocol(broker: InProcessBroker, version: int) -> None:
    asked = StreamsGroupHeartbeatRequest(
        group_id="app", member_id="me", member_epoch=0, endpoint_information_epoch=0, active_tasks=[]
    )
    answer = broker.ask(asked, version)
    assert (answer.error_code, answer.member_id, answer.active_tasks) == (E.UNSUPPORTED_VERSION, "", None)


@serves(StreamsGroupDescribeRequest, E.UNSUPPORTED_VERSION)
@every_version(StreamsGroupDescribeRequest)
def test_every_streams_group_is_answered_for_itself(broker: InProcessBroker, version: int) -> None:
    asked = StreamsGroupDescribeRequest(group_ids=GROUPS, include_authorized_operations=False)
    groups = broker.ask(asked, version).groups
    assert [(group.group_id, group.error_code) for group in groups] == [
        (name, E.UNSUPPORTED_VERSION) for name in GROUPS
    ]


@serves(StreamsGroupTopologyDescriptionUpdateRequest, E.UNSUPPORTED_VERSION, versions=[0])
@pytest.mark.parametrize("group_id", ["app", ""])
def test_no_topology_is_taken_in(broker: InProcessBroker, group_id: str) -> None:
    asked = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=group_id,
        member_id="me",
        topology_epoch=0,
        topology_description=TopologyDescription(subtopologies=[], global_stores=[]),
    )
    assert broker.ask(asked, 0).error_code == E.UNSUPPORTED_VERSION
