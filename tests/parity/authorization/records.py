"""The APIs of producers and consumers."""

from __future__ import annotations

from typing import Final

from broker.request.permissions import Operation as O
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.producers import DescribeProducersRequest
from protocol.messages.topic_partitions import DescribeTopicPartitionsRequest
from storage.batch.records import Record
from tests.parity.authorization.questions import Asking, Case, on_cluster, on_topic, on_transactional_id
from tests.support.batches import produced

TOPIC_IDS: Final = 13
"""Since this version Produce and Fetch name topics by their ids."""


def _produce(asking: Asking, *topics: str, is_transactional: bool = False) -> ProduceRequest:
    record = Record(value=b"x", timestamp=1_700_000_000_000)
    batch = produced([record])
    if is_transactional:
        batch = produced(
            [record],
            producer_id=4_000_000,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
    of_topic = ProduceRequest.TopicData
    return ProduceRequest(
        transactional_id="mover" if is_transactional else None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            of_topic(
                **asking.topic_id(topic, TOPIC_IDS),
                partition_data=[of_topic.PartitionData(index=0, records=memoryview(batch))],
            )
            for topic in topics
        ],
    )


def _fetch(asking: Asking, *topics: str, offset: int = 0, replica_id: int = -1, topic_id: bytes = b"") -> FetchRequest:
    of_topic = FetchRequest.Topic
    named = [asking.topic_id(topic, TOPIC_IDS) for topic in topics]
    if topic_id:
        named = [{"topic_id": topic_id}]
    return FetchRequest(
        **({"replica_id": replica_id} if asking.version < 15 else {}),
        **(
            {"replica_state": FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=-1)}
            if asking.version >= 15
            else {}
        ),
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            of_topic(
                **{"topic" if key == "name" else key: value for key, value in fields.items()},
                partitions=[
                    of_topic.Partition(
                        partition=0,
                        current_leader_epoch=-1 if replica_id < 0 else 0,
                        fetch_offset=offset,
                        partition_max_bytes=1,
                    )
                ],
            )
            for fields in named
        ],
    )


def _list_offsets(asking: Asking, *topics: str) -> ListOffsetsRequest:
    of_topic = ListOffsetsRequest.Topic
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            of_topic(name=topic, partitions=[of_topic.Partition(partition_index=0, timestamp=-2)]) for topic in topics
        ],
    )


def _metadata(*topics: str, creates: bool = False, operations: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequest.Topic(name=topic) for topic in topics],
        allow_auto_topic_creation=creates,
        include_topic_authorized_operations=operations,
        include_cluster_authorized_operations=operations,
    )


def _metadata_by_id(topic_id: bytes) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.Topic(topic_id=topic_id, name=None)])


def _all_metadata(asking: Asking) -> MetadataRequest:
    return MetadataRequest(
        topics=None if asking.version else [],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )


def _epochs(asking: Asking) -> OffsetForLeaderEpochRequest:
    of_topic = OffsetForLeaderEpochRequest.Topic
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            of_topic(topic=topic, partitions=[of_topic.Partition(partition=0, leader_epoch=0)])
            for topic in ("orders", "letters")
        ],
    )


def _delete_records(asking: Asking) -> DeleteRecordsRequest:
    of_topic = DeleteRecordsRequest.Topic
    return DeleteRecordsRequest(
        topics=[
            of_topic(name=topic, partitions=[of_topic.Partition(partition_index=0, offset=0)])
            for topic in ("orders", "absent")
        ],
        timeout_ms=30_000,
    )


def _producers(asking: Asking) -> DescribeProducersRequest:
    of_topic = DescribeProducersRequest.Topic
    return DescribeProducersRequest(
        topics=[of_topic(name=topic, partition_indexes=[0]) for topic in ("orders", "letters", "absent")]
    )


def _topic_partitions(*topics: str) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.Topic(name=name) for name in topics])


UNKNOWN_ID: Final = bytes(15) + b"\7"

CASES: Final = (
    Case(
        step="to two topics",
        request=lambda asking: _produce(asking, "orders", "letters"),
        ways=((on_topic(O.WRITE),),),
    ),
    Case(
        step="in a transaction",
        request=lambda asking: _produce(asking, "orders", is_transactional=True),
        ways=((on_transactional_id(O.WRITE), on_topic(O.WRITE)),),
        versions=(3, 11),
    ),
    Case(
        step="of two topics",
        request=lambda asking: _fetch(asking, "orders", "letters"),
        ways=((on_topic(O.READ),),),
    ),
    Case(
        step="of a topic that there is not",
        request=lambda asking: _fetch(asking, "absent"),
        ways=((on_topic(O.READ, "absent"),),),
        versions=(4, 12),
    ),
    Case(
        step="of an unknown id",
        request=lambda asking: _fetch(asking, topic_id=UNKNOWN_ID),
        ways=((on_topic(O.READ),),),
        versions=(13, 18),
    ),
    Case(
        step="by a follower",
        request=lambda asking: _fetch(asking, "orders", "letters", replica_id=2),
        ways=((on_cluster(O.CLUSTER_ACTION),), (on_topic(O.READ),)),
        versions=(9, 18),
    ),
    Case(
        step="of three topics",
        request=lambda asking: _list_offsets(asking, "orders", "letters", "absent"),
        ways=((on_topic(O.DESCRIBE), on_topic(O.DESCRIBE, "absent")), (on_topic(O.READ),)),
    ),
    Case(
        step="of three topics",
        request=lambda asking: _metadata("orders", "letters", "absent"),
        ways=(
            (on_topic(O.DESCRIBE), on_topic(O.DESCRIBE, "absent")),
            (on_topic(O.READ),),
            (on_topic(O.WRITE),),
            (on_topic(O.DELETE),),
            (on_topic(O.ALTER),),
            (on_topic(O.CREATE),),
            (on_topic(O.DESCRIBE_CONFIGS),),
        ),
        versions=(4, 13),
    ),
    Case(
        step="of a known id",
        request=lambda asking: _metadata_by_id(asking.exchange.topic_ids["orders"]),
        ways=((on_topic(O.DESCRIBE),),),
        versions=(12, 13),
    ),
    Case(
        step="of an unknown id",
        request=lambda asking: _metadata_by_id(UNKNOWN_ID),
        ways=((on_topic(O.DESCRIBE),),),
        versions=(12, 13),
    ),
    Case(
        step="of all topics",
        request=_all_metadata,
        ways=(
            (on_topic(O.DESCRIBE),),
            (on_topic(O.READ), on_topic(O.ALTER_CONFIGS), on_cluster(O.ALTER), on_cluster(O.CREATE)),
            (on_cluster(O.DESCRIBE),),
        ),
    ),
    Case(
        step="of topics, with operations",
        request=lambda asking: _metadata("orders", "absent", operations=True),
        ways=((on_topic(O.DESCRIBE), on_cluster(O.DESCRIBE)), (on_topic(O.WRITE), on_topic(O.CREATE, "absent"))),
        versions=(8, 13),
    ),
    Case(
        step="that creates topics",
        request=lambda asking: _metadata(f"made-{asking.number}", creates=True),
        ways=(
            (on_topic(O.DESCRIBE, "made-{number}"), on_cluster(O.CREATE)),
            (on_topic(O.DESCRIBE, "made-{number}"), on_topic(O.CREATE, "made-{number}")),
        ),
        versions=(12, 12),
    ),
    Case(
        step="of two topics",
        request=_epochs,
        ways=((on_topic(O.DESCRIBE),), (on_cluster(O.CLUSTER_ACTION),)),
    ),
    Case(step="of two topics", request=_delete_records, ways=((on_topic(O.DELETE), on_topic(O.DELETE, "absent")),)),
    Case(
        step="of three topics",
        request=_producers,
        ways=((on_topic(O.READ), on_topic(O.READ, "absent")), (on_topic(O.DESCRIBE),)),
    ),
    Case(
        step="of three topics",
        request=lambda asking: _topic_partitions("orders", "letters", "absent"),
        ways=((on_topic(O.DESCRIBE), on_topic(O.DESCRIBE, "absent")), (on_topic(O.READ), on_topic(O.ALTER_CONFIGS))),
    ),
    Case(
        step="of all topics",
        request=lambda asking: _topic_partitions(),
        ways=((on_topic(O.DESCRIBE),), (on_topic(O.DESCRIBE), on_topic(O.DESCRIBE, "letters"))),
    ),
)
