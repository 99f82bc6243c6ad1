"""The APIs of streams groups, in a cluster that has them."""

from __future__ import annotations

from typing import Final

from broker.request.permissions import Operation as O
from protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopicInfo,
    TopologyDescription,
)
from tests.parity.authorization.questions import Asking, Case, on_cluster, on_group, on_topic

GROUP: Final = "counts"
"""A streams group with a member, which reads both topics."""
OTHERS: Final = "others"
NEW: Final = "app-{number}"
"""A group of each state's own."""
CHANGELOG: Final = "app-{number}-store-changelog"

Topology = StreamsGroupHeartbeatRequest.Topology


def reading(topic: str, changelog: str) -> Topology:
    """The topology of an application that reads a topic, and keeps a state."""
    return Topology(
        epoch=0,
        subtopologies=[
            Topology.Subtopology(
                subtopology_id="0",
                source_topics=[topic],
                source_topic_regex=[],
                state_changelog_topics=[
                    TopicInfo(name=changelog, partitions=0, replication_factor=0, topic_configs=[])
                ],
                repartition_sink_topics=[],
                repartition_source_topics=[],
                copartition_groups=[],
            )
        ],
    )


def joining(group_id: str, member_id: str, topology: Topology) -> StreamsGroupHeartbeatRequest:
    """The first heartbeat of a member."""
    return StreamsGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=60_000,
        topology=topology,
        process_id="process",
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


def _heartbeat(asking: Asking) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id=GROUP, member_id="nobody", member_epoch=7, endpoint_information_epoch=0
    )


def _joining(asking: Asking, changelog: str) -> StreamsGroupHeartbeatRequest:
    number = str(asking.number)
    topology = reading("orders", changelog.replace("{number}", number))
    return joining(NEW.replace("{number}", number), "me", topology)


def _described(asking: Asking) -> StreamsGroupTopologyDescriptionUpdateRequest:
    description = TopologyDescription(subtopologies=[], global_stores=[])
    return StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=GROUP, member_id="nobody", topology_epoch=0, topology_description=description
    )


_SEES_BOTH: Final = (on_group(O.READ, NEW), on_topic(O.DESCRIBE))

CASES: Final = (
    Case(step="of a member that is not there", request=_heartbeat, ways=((on_group(O.READ, GROUP),),)),
    Case(
        step="of a member whose topics are there",
        request=lambda asking: _joining(asking, "letters"),
        ways=((*_SEES_BOTH, on_topic(O.DESCRIBE, "letters")),),
    ),
    Case(
        step="of a member without its changelog",
        request=lambda asking: _joining(asking, CHANGELOG),
        ways=(
            (*_SEES_BOTH, on_topic(O.DESCRIBE, CHANGELOG), on_topic(O.CREATE, CHANGELOG)),
            (*_SEES_BOTH, on_topic(O.DESCRIBE, CHANGELOG), on_cluster(O.CREATE)),
        ),
        versions=(1, 1),  # the next heartbeat may find the topic
    ),
    Case(
        step="two groups, with operations",
        request=lambda asking: StreamsGroupDescribeRequest(
            group_ids=[GROUP, OTHERS], include_authorized_operations=True
        ),
        ways=(
            (on_group(O.DESCRIBE, GROUP), on_topic(O.DESCRIBE), on_topic(O.DESCRIBE, "letters")),
            (on_group(O.READ, GROUP), on_topic(O.READ), on_topic(O.READ, "letters")),
            (on_group(O.DELETE, GROUP), on_topic(O.DELETE), on_topic(O.DELETE, "letters")),
        ),
    ),
    Case(step="of a member that is not there", request=_described, ways=((on_group(O.READ, GROUP),),)),
)
