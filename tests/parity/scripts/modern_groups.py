"""Share groups and streams groups, where their features are off."""

from typing import Any

from protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from protocol.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
)
from protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from tests.parity.exchange import Exchange

RELEASE_VERSION = "4.0"

TOPIC_ID = bytes(15) + b"\1"


def run(exchange: Exchange) -> None:
    share_groups(exchange)
    state_of_share_groups(exchange)
    streams_groups(exchange)


def share_groups(exchange: Exchange) -> None:
    heartbeat = ShareGroupHeartbeatRequest(
        group_id="workers", member_id="me", member_epoch=0, subscribed_topic_names=["orders"]
    )
    exchange.ask_each("a member joins", heartbeat)
    for groups in ([], ["workers", "", "workers"]):
        asked = ShareGroupDescribeRequest(group_ids=groups, include_authorized_operations=False)
        exchange.ask_each(f"the groups {groups}", asked)
    fetched, acknowledged = ShareFetchRequest.Topic, ShareAcknowledgeRequest.Topic
    fetch: dict[str, Any] = {"member_id": "me", "max_wait_ms": 10, "min_bytes": 0, "max_records": 1, "batch_size": 1}
    partition = fetched.Partition(partition_index=0, acknowledgement_batches=[])
    exchange.ask_each(
        "a partition",
        ShareFetchRequest(
            group_id="workers",
            share_session_epoch=0,
            topics=[fetched(topic_id=TOPIC_ID, partitions=[partition])],
            forgotten_topics_data=[],
            **fetch,
        ),
    )
    batch = acknowledged.Partition.AcknowledgementBatch(first_offset=0, last_offset=1, acknowledge_types=[1])
    exchange.ask_each(
        "two records",
        ShareAcknowledgeRequest(
            group_id="workers",
            member_id="me",
            share_session_epoch=1,
            topics=[
                acknowledged(
                    topic_id=TOPIC_ID,
                    partitions=[acknowledged.Partition(partition_index=0, acknowledgement_batches=[batch])],
                )
            ],
        ),
    )
    group = DescribeShareGroupOffsetsRequest.Group
    described = [
        group(group_id="workers", topics=[group.Topic(topic_name="orders", partitions=[0])]),
        group(group_id="", topics=None),
    ]
    exchange.ask_each("two groups", DescribeShareGroupOffsetsRequest(groups=described))
    exchange.ask_each("no groups", DescribeShareGroupOffsetsRequest(groups=[]))
    altered = AlterShareGroupOffsetsRequest.Topic
    change = altered(topic_name="orders", partitions=[altered.Partition(partition_index=0, start_offset=1)])
    exchange.ask_each("an offset", AlterShareGroupOffsetsRequest(group_id="workers", topics=[change]))
    deleted = DeleteShareGroupOffsetsRequest.Topic(topic_name="orders")
    exchange.ask_each("a topic", DeleteShareGroupOffsetsRequest(group_id="workers", topics=[deleted]))


def state_of_share_groups(exchange: Exchange) -> None:
    fields: dict[type[Any], dict[str, Any]] = {
        InitializeShareGroupStateRequest: {"state_epoch": 1, "start_offset": 1},
        ReadShareGroupStateRequest: {"leader_epoch": 1},
        WriteShareGroupStateRequest: {"state_epoch": 1, "leader_epoch": 1, "start_offset": 1, "state_batches": []},
        DeleteShareGroupStateRequest: {},
        ReadShareGroupStateSummaryRequest: {"leader_epoch": 1},
    }
    for cls, of_partition in fields.items():
        partitions = [cls.Topic.Partition(partition=index, **of_partition) for index in (0, 3)]
        topics = [cls.Topic(topic_id=TOPIC_ID, partitions=partitions)]
        exchange.ask_each("two partitions", cls(group_id="workers", topics=topics))
        exchange.ask_each("nothing", cls(group_id="workers", topics=[]))


def streams_groups(exchange: Exchange) -> None:
    heartbeat = StreamsGroupHeartbeatRequest(
        group_id="app", member_id="me", member_epoch=0, endpoint_information_epoch=0, active_tasks=[]
    )
    exchange.ask_each("a member joins", heartbeat)
    for groups in ([], ["app", "", "app"]):
        asked = StreamsGroupDescribeRequest(group_ids=groups, include_authorized_operations=False)
        exchange.ask_each(f"the groups {groups}", asked)
    exchange.ask_each(
        "a topology",
        StreamsGroupTopologyDescriptionUpdateRequest(
            group_id="app",
            member_id="me",
            topology_epoch=0,
            topology_description=TopologyDescription(subtopologies=[], global_stores=[]),
        ),
    )
