"""The APIs of share groups, in a cluster that has them."""

from __future__ import annotations

from typing import Any, Final

from broker.request.permissions import Operation as O
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
from tests.parity.authorization.questions import Asking, Case, on_cluster, on_group, on_topic

GROUP: Final = "sharers"
"""A share group without members, with states in two topics."""
OTHERS: Final = "others"
PATIENT_MS: Final = 3_000
"""How long a fetch may wait for the state of the group to be read."""

_OF_STATES: Final[dict[type[Any], dict[str, Any]]] = {
    InitializeShareGroupStateRequest: {"state_epoch": 0, "start_offset": 0},
    ReadShareGroupStateRequest: {"leader_epoch": 0},
    WriteShareGroupStateRequest: {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "state_batches": []},
    ReadShareGroupStateSummaryRequest: {"leader_epoch": 0},
    DeleteShareGroupStateRequest: {},
}


def _heartbeat(asking: Asking, *topics: str) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="nobody", member_epoch=7, subscribed_topic_names=list(topics) or None
    )


def _fetch(asking: Asking) -> ShareFetchRequest:
    """The first fetch of a member that nobody has heard of."""
    of_topic = ShareFetchRequest.Topic
    return ShareFetchRequest(
        group_id=GROUP,
        member_id=f"member {asking.number} {asking.version}",
        share_session_epoch=0,
        max_wait_ms=PATIENT_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=10,
        batch_size=10,
        topics=[
            of_topic(
                topic_id=asking.exchange.topic_ids[name],
                partitions=[of_topic.Partition(partition_index=0, acknowledgement_batches=[])],
            )
            for name in ("orders", "letters")
        ],
        forgotten_topics_data=[],
    )


def _acknowledge(asking: Asking) -> ShareAcknowledgeRequest:
    return ShareAcknowledgeRequest(group_id=GROUP, member_id="nobody", share_session_epoch=1, topics=[])


def _describe(asking: Asking, *, all_topics: bool) -> DescribeShareGroupOffsetsRequest:
    of_group = DescribeShareGroupOffsetsRequest.Group
    topics = [of_group.Topic(topic_name=name, partitions=[0]) for name in ("orders", "letters", "absent")]
    return DescribeShareGroupOffsetsRequest(
        groups=[of_group(group_id=name, topics=None if all_topics else topics) for name in (GROUP, OTHERS)]
    )


def _alter(asking: Asking) -> AlterShareGroupOffsetsRequest:
    of_topic = AlterShareGroupOffsetsRequest.Topic
    partition = of_topic.Partition(partition_index=0, start_offset=0)
    return AlterShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[of_topic(topic_name=name, partitions=[partition]) for name in ("orders", "letters", "absent")],
    )


def _delete(asking: Asking) -> DeleteShareGroupOffsetsRequest:
    of_topic = DeleteShareGroupOffsetsRequest.Topic
    return DeleteShareGroupOffsetsRequest(
        group_id=GROUP, topics=[of_topic(topic_name=name) for name in ("letters", "absent")]
    )


CASES: Final = (
    Case(step="of a member that is not there", request=_heartbeat, ways=((on_group(O.READ, GROUP),),)),
    Case(
        step="of a member that reads two topics",
        request=lambda asking: _heartbeat(asking, "orders", "letters"),
        ways=((on_group(O.READ, GROUP), on_topic(O.DESCRIBE)),),
    ),
    Case(
        step="two groups, with operations",
        request=lambda asking: ShareGroupDescribeRequest(group_ids=[GROUP, OTHERS], include_authorized_operations=True),
        ways=((on_group(O.DESCRIBE, GROUP),), (on_group(O.READ, GROUP),), (on_group(O.DELETE, GROUP),)),
    ),
    Case(step="of two topics", request=_fetch, ways=((on_group(O.READ, GROUP), on_topic(O.READ)),)),
    Case(step="without a session", request=_acknowledge, ways=((on_group(O.READ, GROUP),),)),
    *(
        Case(
            step="for all topics" if all_topics else "for three topics",
            request=lambda asking, all_topics=all_topics: _describe(asking, all_topics=all_topics),
            ways=(
                (on_group(O.DESCRIBE, GROUP), on_topic(O.DESCRIBE)),
                (on_group(O.READ, GROUP), on_topic(O.READ)),
            ),
        )
        for all_topics in (True, False)
    ),
    Case(step="for three topics", request=_alter, ways=((on_group(O.READ, GROUP), on_topic(O.READ)),)),
    Case(
        step="for two topics",
        request=_delete,
        ways=((on_group(O.DELETE, GROUP), on_topic(O.READ, "letters")),),
    ),
    *(
        Case(
            step="of a share partition",
            request=lambda asking, cls=cls, fields=fields: cls(
                group_id="states",
                topics=[
                    cls.Topic(
                        topic_id=asking.exchange.topic_ids["orders"],
                        partitions=[cls.Topic.Partition(partition=0, **fields)],
                    )
                ],
            ),
            ways=((on_cluster(O.CLUSTER_ACTION),),),
        )
        for cls, fields in _OF_STATES.items()
    ),
)
