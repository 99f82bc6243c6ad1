"""Changes of replicas in sync, as leaders ask for them: every check of AlterPartition in Kafka's order (KIP-497)."""

from __future__ import annotations

from collections.abc import Sequence

from broker.controller.broker_changes import election_of
from broker.controller.cluster_view import ClusterView
from broker.controller.partition_change import RECOVERED, RECOVERING, Wanted, plan_change
from broker.metadata.image.records import Record
from broker.metadata.image.topics import PartitionImage, TopicImage, changed_partition
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

AskedTopic = AlterPartitionRequest.Topic
Asked = AlterPartitionRequest.Topic.Partition
BrokerEpochs = Sequence[AlterPartitionRequest.Topic.Partition.BrokerState]
Answer = AlterPartitionResponse.Topic.Partition

ANY_EPOCH = -1
"""Instead of the epoch of a replica's broker: the leader does not know it."""


class IsrPlanner:
    """Plans the changes of one request, of a broker whose epoch has been checked; collects ``records``."""

    def __init__(self, view: ClusterView, broker_id: int) -> None:
        self._view = view
        self._broker_id = broker_id
        self._changed: dict[tuple[bytes, int], PartitionImage] = {}
        self.records: list[Record] = []

    def plan(self, topics: Sequence[AskedTopic]) -> AlterPartitionResponse:
        """The response to send once the records are durable: the partitions in their order, each with its result."""
        return AlterPartitionResponse(
            topics=[
                AlterPartitionResponse.Topic(
                    topic_id=asked.topic_id,
                    partitions=[self._answer(bytes(asked.topic_id), partition) for partition in asked.partitions],
                )
                for asked in topics
            ]
        )

    def _answer(self, topic_id: bytes, asked: Asked) -> Answer:
        topic = self._view.image.topics.by_id.get(topic_id)
        if topic is None:
            return Answer(partition_index=asked.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._partition(topic, asked.partition_index)
        if partition is None:
            return Answer(partition_index=asked.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = self._refusal(partition, asked)
        if error is not ErrorCode.NONE:
            return Answer(partition_index=asked.partition_index, error_code=error)
        record = plan_change(
            self._view,
            topic,
            partition,
            Wanted(
                isr=[replica.broker_id for replica in _new_isr(asked)],
                leader_recovery_state=asked.leader_recovery_state,
                election=election_of(self._view, topic),
            ),
        )
        if record is not None:
            self.records.append(record)
            partition = self._changed[topic_id, partition.index] = changed_partition(partition, record)
            if partition.leader != self._broker_id:
                # The change has completed a reassignment that takes the leader's replica away.
                return Answer(partition_index=partition.index, error_code=ErrorCode.NEW_LEADER_ELECTED)
        return Answer(
            partition_index=partition.index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def _partition(self, topic: TopicImage, index: int) -> PartitionImage | None:
        """The partition, with what the same request has changed already."""
        return self._changed.get((topic.topic_id, index)) or topic.partition(index)

    def _refusal(self, partition: PartitionImage, asked: Asked) -> ErrorCode:
        """Why the change is refused; NONE if it is not."""
        if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
            return ErrorCode.NOT_CONTROLLER  # the leader knows a newer controller than this one
        if asked.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if partition.leader != self._broker_id:
            return ErrorCode.INVALID_REQUEST
        if asked.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        new_isr = _new_isr(asked)
        brokers = [replica.broker_id for replica in new_isr]
        is_unknown_state = asked.leader_recovery_state not in (RECOVERED, RECOVERING)
        is_recovering = asked.leader_recovery_state == RECOVERING
        if (
            len(set(brokers)) != len(brokers)
            or not set(brokers) <= set(partition.replicas)
            or partition.leader not in brokers
            or is_unknown_state
            or (is_recovering and (len(brokers) > 1 or partition.leader_recovery_state == RECOVERED))
        ):
            return ErrorCode.INVALID_REQUEST
        if not all(self._is_eligible(partition, replica.broker_id, replica.broker_epoch) for replica in new_isr):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def _is_eligible(self, partition: PartitionImage, broker_id: int, broker_epoch: int) -> bool:
        """Whether a replica can be in sync, for all that the controller knows.

        A fetch may still be on its way when the replica's directory has failed. Kafka's controller does not look at
        directories here, and a replica that cannot lead may become the last one in sync.
        """
        broker = self._view.broker(broker_id)
        return (
            broker is not None
            and self._view.is_active(broker_id)
            and broker_epoch in (ANY_EPOCH, broker.broker_epoch)
            and (
                broker_id in partition.isr
                or self._view.has_online_directory(broker_id, partition.directory_of(broker_id))
            )
        )


def _new_isr(asked: Asked) -> BrokerEpochs:
    """The replicas with the epochs of their brokers (KIP-903), which a decoded request of version 2 does not have.

    The request of this node's own broker is not encoded, and has both fields.
    """
    if asked.new_isr_with_epochs:
        return asked.new_isr_with_epochs
    return [Asked.BrokerState(broker_id=broker_id) for broker_id in asked.new_isr]
