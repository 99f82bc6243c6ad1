"""OffsetForLeaderEpoch: where a leader epoch ends (API key 23; KIP-101, KIP-320)."""

from broker.handlers.partition_lookup import PartitionLookup
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import Fault, TopicAuthorizationFailed, error_code_of
from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from storage.errors import StorageError
from storage.sentinels import NO_EPOCH, NO_OFFSET

AskedPartition = OffsetForLeaderEpochRequest.Topic.Partition
TopicAnswer = OffsetForLeaderEpochResponse.Topic
Answer = OffsetForLeaderEpochResponse.Topic.Partition


class OffsetForLeaderEpochHandler:
    """Looks epochs up."""

    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions

    def offset_for_leader_epoch(
        self, request: OffsetForLeaderEpochRequest, context: RequestContext
    ) -> OffsetForLeaderEpochResponse:
        """Answer each partition by itself. Consumers ask, and replicas."""
        answer = OffsetForLeaderEpochResponse(topics=[])
        for topic in request.topics:
            of_topic = TopicAnswer(topic=topic.topic, partitions=[])
            for asked in topic.partitions:
                try:
                    of_partition = self._find(topic.topic, asked, context)
                except (Fault, StorageError) as error:
                    of_partition = _without_offset(asked, error_code_of(error))
                of_topic.partitions.append(of_partition)
            answer.topics.append(of_topic)
        return answer

    def _find(self, topic: str, asked: AskedPartition, context: RequestContext) -> Answer:
        if not (
            context.sees(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
            or context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ):
            raise TopicAuthorizationFailed(f"{context.session.principal} may not describe {topic}")
        partition = self._partitions.partition(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        partition.check_leadership()
        end = partition.log.end_offset_for_epoch(asked.leader_epoch)
        return Answer(partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset)


def _without_offset(asked: AskedPartition, code: ErrorCode) -> Answer:
    return Answer(partition=asked.partition, error_code=code, leader_epoch=NO_EPOCH, end_offset=NO_OFFSET)
