"""The APIs that brokers ask controllers."""

from __future__ import annotations

from typing import Final

from broker.request.permissions import Operation as O
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_lifecycle import BrokerHeartbeatRequest, BrokerRegistrationRequest
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.elections import ElectLeadersRequest
from protocol.messages.envelope import EnvelopeRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.messages.topics import CreateTopicsRequest
from tests.parity.authorization.questions import Asking, Case, on_cluster

METADATA_LOG_ID: Final = bytes(15) + b"\1"


def _fetch(asking: Asking) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1)
    name = {"topic_id": METADATA_LOG_ID} if asking.version >= 13 else {"topic": "__cluster_metadata"}
    return FetchRequest(
        cluster_id="another", max_wait_ms=0, min_bytes=0, topics=[FetchRequest.Topic(**name, partitions=[partition])]
    )


def _snapshot(asking: Asking) -> FetchSnapshotRequest:
    return FetchSnapshotRequest(cluster_id="another", topics=[])


def _altered(asking: Asking) -> AlterPartitionRequest:
    of_topic = AlterPartitionRequest.Topic
    partition = of_topic.Partition(
        partition_index=0,
        leader_epoch=0,
        new_isr=[1],
        new_isr_with_epochs=[of_topic.Partition.BrokerState(broker_id=1)],
        partition_epoch=0,
    )
    return AlterPartitionRequest(
        broker_id=77,
        broker_epoch=7,
        topics=[of_topic(topic_id=asking.exchange.topic_ids["orders"], partitions=[partition])],
    )


def _registration(asking: Asking) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=77, cluster_id="another", incarnation_id=b"7" * 16, listeners=[], features=[], rack=None
    )


def _heartbeat(asking: Asking) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=77, broker_epoch=7, current_metadata_offset=0, want_fence=True, want_shut_down=False
    )


_OF_BROKERS: Final = tuple(
    Case(
        step="on the controller's listener",
        request=request,
        ways=((on_cluster(O.CLUSTER_ACTION),),),
        asks_controller=True,
        versions=versions,
    )
    for request, versions in (
        (_fetch, (17, 18)),
        (_snapshot, None),
        (_altered, None),
        (_registration, None),
        (_heartbeat, None),
        (lambda asking: AllocateProducerIdsRequest(broker_id=77, broker_epoch=7), None),
        (lambda asking: AssignReplicasToDirsRequest(broker_id=77, broker_epoch=7, directories=[]), None),
        (
            lambda asking: EnvelopeRequest(request_data=b"", request_principal=None, client_host_address=bytes(4)),
            None,
        ),
    )
)
"""What only brokers ask."""

CASES: Final = (
    *_OF_BROKERS,
    Case(
        step="on the controller's listener",
        request=lambda asking: DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=2),
        ways=((on_cluster(O.ALTER),),),
        asks_controller=True,
        versions=(1, 2),
    ),
    Case(
        step="on the controller's listener",
        request=lambda asking: ElectLeadersRequest(
            topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="orders", partitions=[0])], timeout_ms=30_000
        ),
        ways=((on_cluster(O.ALTER),),),
        asks_controller=True,
    ),
    Case(
        step="on the controller's listener",
        request=lambda asking: CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.Topic(
                    name="fresh", num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
            ],
            validate_only=True,
        ),
        ways=((on_cluster(O.CREATE),),),
        asks_controller=True,
        versions=(7, 7),
    ),
)
