"""The APIs of groups, their offsets, and transactions."""

from __future__ import annotations

from typing import Any, Final

from broker.request.permissions import Operation as O
from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
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
from protocol.messages.streams_groups import StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from tests.parity.access import ALL
from tests.parity.authorization.questions import (
    Asking,
    Case,
    on_cluster,
    on_group,
    on_topic,
    on_transactional_id,
)

UNKNOWN_PRODUCER: Final = 4_000_000
OFFSETS_BY_ID: Final = 10
TXN_OFFSETS_BY_ID: Final = 6
SEVERAL_GROUPS: Final = 8
SEVERAL_KEYS: Final = 4
SEVERAL_TRANSACTIONS: Final = 4


def _commit(asking: Asking) -> OffsetCommitRequest:
    of_topic = OffsetCommitRequest.Topic
    partition = of_topic.Partition(partition_index=0, committed_offset=3, committed_metadata="")
    return OffsetCommitRequest(
        group_id="readers",
        topics=[
            of_topic(**asking.topic_id(name, OFFSETS_BY_ID), partitions=[partition]) for name in ("orders", "letters")
        ],
    )


def _fetch_offsets(asking: Asking, *, all_topics: bool = False) -> OffsetFetchRequest:
    if asking.version < SEVERAL_GROUPS:
        of_topic = OffsetFetchRequest.Topic
        names = ("orders", "letters", "absent")
        topics = None if all_topics else [of_topic(name=name, partition_indexes=[0]) for name in names]
        return OffsetFetchRequest(group_id="readers", topics=topics)
    of_group = OffsetFetchRequest.Group
    named = [asking.topic_id(name, OFFSETS_BY_ID) for name in ("orders", "letters")]
    if asking.version < OFFSETS_BY_ID:
        named.append({"name": "absent"})
    return OffsetFetchRequest(
        groups=[
            of_group(
                group_id=group,
                topics=None if all_topics else [of_group.Topic(**fields, partition_indexes=[0]) for fields in named],
            )
            for group in ("readers", "writers")
        ]
    )


def _delete_offsets(asking: Asking) -> OffsetDeleteRequest:
    of_topic = OffsetDeleteRequest.Topic
    return OffsetDeleteRequest(
        group_id="readers",
        topics=[
            of_topic(name=name, partitions=[of_topic.Partition(partition_index=1)])
            for name in ("orders", "letters", "absent")
        ],
    )


def _coordinator(asking: Asking, key_type: int, *keys: str) -> FindCoordinatorRequest:
    if asking.version < SEVERAL_KEYS:
        return FindCoordinatorRequest(key=keys[0], key_type=key_type)
    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[*keys])


def _join(asking: Asking) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="readers",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
    )


def _leave(asking: Asking) -> LeaveGroupRequest:
    if asking.version < 3:
        return LeaveGroupRequest(group_id="readers", member_id="nobody")
    return LeaveGroupRequest(group_id="readers", members=[LeaveGroupRequest.Member(member_id="nobody")])


def _initialized(transactional_id: str | None) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000 if transactional_id is None else 0
    )


def _add_partitions(asking: Asking) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("orders", "letters")]
    if asking.version < SEVERAL_TRANSACTIONS:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="mover",
            v3_and_below_producer_id=UNKNOWN_PRODUCER,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        )
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnRequest.Transaction(
                transactional_id="mover", producer_id=UNKNOWN_PRODUCER, producer_epoch=0, topics=topics
            )
        ]
    )


def _markers(asking: Asking) -> WriteTxnMarkersRequest:
    of_marker = WriteTxnMarkersRequest.Marker
    return WriteTxnMarkersRequest(
        markers=[
            of_marker(
                producer_id=UNKNOWN_PRODUCER,
                producer_epoch=0,
                transaction_result=False,
                topics=[of_marker.Topic(name="absent", partition_indexes=[0])],
                coordinator_epoch=0,
            )
        ]
    )


def _commit_in_transaction(asking: Asking) -> TxnOffsetCommitRequest:
    of_topic = TxnOffsetCommitRequest.Topic
    partition = of_topic.Partition(partition_index=0, committed_offset=3, committed_metadata="")
    return TxnOffsetCommitRequest(
        transactional_id="mover",
        group_id="readers",
        producer_id=UNKNOWN_PRODUCER,
        producer_epoch=0,
        topics=[
            of_topic(**asking.topic_id(name, TXN_OFFSETS_BY_ID), partitions=[partition])
            for name in ("orders", "letters")
        ],
    )


def _listed(asking: Asking) -> ListTransactionsRequest:
    return ListTransactionsRequest(state_filters=[], producer_id_filters=[])


_SHARED: Final[dict[type[Any], dict[str, Any]]] = {
    InitializeShareGroupStateRequest: {"state_epoch": 0, "start_offset": 0},
    ReadShareGroupStateRequest: {"leader_epoch": 0},
    WriteShareGroupStateRequest: {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "state_batches": []},
    DeleteShareGroupStateRequest: {},
    ReadShareGroupStateSummaryRequest: {"leader_epoch": 0},
}
"""The requests about the state of share groups, which brokers send each other, and what they say of a partition."""

MEMBERS: Final = tuple(
    Case(step="of a group", request=request, ways=((on_group(O.READ),),))
    for request in (
        _join,
        _leave,
        lambda asking: HeartbeatRequest(group_id="readers", generation_id=1, member_id="nobody"),
        lambda asking: SyncGroupRequest(
            group_id="readers",
            generation_id=1,
            member_id="nobody",
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        ),
        lambda asking: ConsumerGroupHeartbeatRequest(group_id="readers", member_id="nobody", member_epoch=1),
        lambda asking: ShareGroupHeartbeatRequest(group_id="readers", member_id="nobody", member_epoch=1),
        lambda asking: StreamsGroupHeartbeatRequest(
            group_id="readers", member_id="nobody", member_epoch=1, endpoint_information_epoch=0
        ),
        lambda asking: DeleteShareGroupOffsetsRequest(
            group_id="readers", topics=[DeleteShareGroupOffsetsRequest.Topic(topic_name="orders")]
        ),
        lambda asking: AlterShareGroupOffsetsRequest(group_id="readers", topics=[]),
    )
)

CASES: Final = (
    *MEMBERS,
    Case(
        step="of a group that reads two topics",
        request=lambda asking: ConsumerGroupHeartbeatRequest(
            group_id="readers", member_id="nobody", member_epoch=1, subscribed_topic_names=["orders", "letters"]
        ),
        ways=((on_group(O.READ), on_topic(O.DESCRIBE)),),
    ),
    Case(step="for two topics", request=_commit, ways=((on_group(O.READ), on_topic(O.READ)),)),
    Case(
        step="for three topics",
        request=_fetch_offsets,
        ways=((on_group(O.DESCRIBE), on_topic(O.DESCRIBE)), (on_group(O.READ), on_topic(O.READ))),
    ),
    Case(
        step="for all topics",
        request=lambda asking: _fetch_offsets(asking, all_topics=True),
        ways=((on_group(O.DESCRIBE), on_topic(O.DESCRIBE)),),
        versions=(2, 10),
    ),
    Case(step="for three topics", request=_delete_offsets, ways=((on_group(O.DELETE), on_topic(O.READ)),)),
    Case(
        step="of groups",
        request=lambda asking: _coordinator(asking, 0, "readers", "writers"),
        ways=((on_group(O.DESCRIBE),),),
    ),
    Case(
        step="of transactional ids",
        request=lambda asking: _coordinator(asking, 1, "mover", "shaker"),
        ways=((on_transactional_id(O.DESCRIBE),),),
        versions=(1, 6),
    ),
    Case(
        step="two groups, with operations",
        request=lambda asking: DescribeGroupsRequest(groups=["readers", "writers"], include_authorized_operations=True),
        ways=((on_group(O.DESCRIBE),), (on_group(O.READ), on_group(O.DELETE)), (on_group(O.ALTER_CONFIGS),)),
    ),
    Case(
        step="all",
        request=lambda asking: ListGroupsRequest(),
        ways=((on_cluster(O.DESCRIBE),), (on_group(O.DESCRIBE),), (on_group(O.READ),)),
    ),
    Case(
        step="that there are not",
        request=lambda asking: DeleteGroupsRequest(groups_names=["nobody", "writers"]),
        ways=((on_group(O.DELETE, "nobody"),),),
    ),
    *(
        Case(
            step="two groups, with operations",
            request=lambda asking, cls=cls: cls(group_ids=["readers", "writers"], include_authorized_operations=True),
            ways=((on_group(O.DESCRIBE),),),
        )
        for cls in (ConsumerGroupDescribeRequest, ShareGroupDescribeRequest, StreamsGroupDescribeRequest)
    ),
    Case(
        step="of a group",
        request=lambda asking: DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequest.Group(group_id="readers", topics=None)]
        ),
        ways=((on_group(O.DESCRIBE),),),
    ),
    *(
        Case(
            step="of a share group",
            request=lambda asking, cls=cls, fields=fields: cls(
                group_id="readers",
                topics=[
                    cls.Topic(
                        topic_id=asking.exchange.topic_ids["orders"],
                        partitions=[cls.Topic.Partition(partition=0, **fields)],
                    )
                ],
            ),
            ways=((on_cluster(O.CLUSTER_ACTION),),),
        )
        for cls, fields in _SHARED.items()
    ),
    Case(
        step="without a transactional id",
        request=lambda asking: _initialized(None),
        ways=((on_cluster(O.IDEMPOTENT_WRITE),), (on_topic(O.WRITE),), (on_topic(ALL),)),
    ),
    Case(
        step="with a transactional id",
        request=lambda asking: _initialized("mover"),
        ways=((on_transactional_id(O.WRITE),),),
    ),
    Case(
        step="of two topics",
        request=_add_partitions,
        ways=(
            (on_transactional_id(O.WRITE), on_topic(O.WRITE), on_topic(O.WRITE, "letters")),
            (on_cluster(O.CLUSTER_ACTION),),
        ),
    ),
    Case(
        step="of a group",
        request=lambda asking: AddOffsetsToTxnRequest(
            transactional_id="mover", producer_id=UNKNOWN_PRODUCER, producer_epoch=0, group_id="readers"
        ),
        ways=((on_transactional_id(O.WRITE), on_group(O.READ)),),
    ),
    Case(
        step="of an unknown producer",
        request=lambda asking: EndTxnRequest(
            transactional_id="mover", producer_id=UNKNOWN_PRODUCER, producer_epoch=0, committed=True
        ),
        ways=((on_transactional_id(O.WRITE),),),
    ),
    Case(
        step="for a topic that there is not",
        request=_markers,
        ways=((on_cluster(O.CLUSTER_ACTION),), (on_cluster(O.ALTER),)),
    ),
    Case(
        step="for two topics",
        request=_commit_in_transaction,
        ways=((on_transactional_id(O.WRITE), on_group(O.READ), on_topic(O.READ)),),
    ),
    Case(
        step="two of them",
        request=lambda asking: DescribeTransactionsRequest(transactional_ids=["mover", "shaker"]),
        ways=((on_transactional_id(O.DESCRIBE), on_topic(O.DESCRIBE)),),
    ),
    Case(step="all", request=_listed, ways=((on_transactional_id(O.DESCRIBE),), (on_transactional_id(O.WRITE),))),
)

AT_LAST: Final = (
    Case(
        step="of share groups",
        request=lambda asking: _coordinator(asking, 2, "readers:AAAAAAAAAAAAAAAAAAAAAA:0"),
        ways=((on_cluster(O.CLUSTER_ACTION),), (on_group(O.DESCRIBE),)),
        versions=(6, 6),
    ),
)
"""What makes Kafka create a topic."""
