"""The log directories of replicas, as their broker reports them: every answer of AssignReplicasToDirs (KIP-858)."""

from __future__ import annotations

from collections.abc import Sequence

from broker.controller.broker_changes import election_of
from broker.controller.cluster_view import ClusterView
from broker.controller.partition_change import Wanted, plan_change
from broker.metadata.image.records import Record
from protocol.errors import ErrorCode
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.records.cluster_metadata import RegisterBrokerRecord

Directory = AssignReplicasToDirsResponse.Directory
Topic = AssignReplicasToDirsResponse.Directory.Topic
Partition = AssignReplicasToDirsResponse.Directory.Topic.Partition


class DirectoryPlanner:
    """Plans the assignments of one request, of a broker whose epoch has been checked; collects ``records``."""

    def __init__(self, view: ClusterView, broker: RegisterBrokerRecord) -> None:
        self._view = view
        self._broker = broker
        self.records: list[Record] = []

    def plan(self, directories: Sequence[AssignReplicasToDirsRequest.Directory]) -> AssignReplicasToDirsResponse:
        """The response to send once the records are durable: what was asked, each with its result."""
        return AssignReplicasToDirsResponse(
            directories=[
                Directory(
                    id=directory.id,
                    topics=[
                        Topic(
                            topic_id=topic.topic_id,
                            partitions=[
                                Partition(
                                    partition_index=partition.partition_index,
                                    error_code=self.assign(
                                        bytes(directory.id), bytes(topic.topic_id), partition.partition_index
                                    ),
                                )
                                for partition in topic.partitions
                            ],
                        )
                        for topic in directory.topics
                    ],
                )
                for directory in directories
            ]
        )

    def assign(self, directory: bytes, topic_id: bytes, index: int) -> ErrorCode:
        """Plan that a replica of the broker is in ``directory``; the error if it is no replica of the broker."""
        topic = self._view.image.topics.by_id.get(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        partition = topic.partition(index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker_id = self._broker.broker_id
        if broker_id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        view, isr = self._view, None
        if not view.has_online_directory(broker_id, directory):
            # The broker has not registered the directory, so the directory has failed.
            view = view.with_leaving(broker_id)
            isr = [replica for replica in partition.isr if replica != broker_id]
        record = plan_change(
            view,
            topic,
            partition,
            Wanted(isr=isr, directories={broker_id: directory}, election=election_of(view, topic)),
        )
        if record is not None:
            self.records.append(record)
        return ErrorCode.NONE
