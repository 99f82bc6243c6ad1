"""DeleteRecords: partitions begin later from now on (API key 21; KIP-107)."""

from collections.abc import Collection

from broker.handlers.partition_lookup import PartitionLookup
from broker.replication.delayed import RecordDeletion
from broker.replication.log_start_checkpoints import Failures
from broker.replication.replica_manager import ReplicaManager
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import Fault, RequestTimedOut, TopicAuthorizationFailed, error_code_of
from protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from storage.errors import StorageError
from storage.sentinels import NO_OFFSET

TopicAnswer = DeleteRecordsResponse.Topic
Answer = DeleteRecordsResponse.Topic.Partition


class DeleteRecordsHandler:
    """Deletes records, and answers when they are gone for good."""

    def __init__(self, partitions: PartitionLookup, replicas: ReplicaManager) -> None:
        self._partitions = partitions
        self._replicas = replicas

    def delete_records(self, request: DeleteRecordsRequest, context: RequestContext) -> None:
        """Move the beginning of each partition by itself; of a partition that comes twice, the last offset counts."""
        deletions: list[RecordDeletion] = []
        under_way: list[tuple[RecordDeletion, Answer]] = []
        answer = DeleteRecordsResponse(topics=[])
        for topic, offsets in _by_topic(request).items():
            of_topic = TopicAnswer(name=topic, partitions=[])
            for index, offset in offsets.items():
                of_partition = Answer(partition_index=index, low_watermark=NO_OFFSET)
                of_topic.partitions.append(of_partition)
                try:
                    deletion = self._begin(topic, index, offset, context)
                except (Fault, StorageError) as error:
                    of_partition.error_code = error_code_of(error)
                else:
                    deletions.append(deletion)
                    under_way.append((deletion, of_partition))
            answer.topics.append(of_topic)

        def finished(late: Collection[RecordDeletion], failures: Failures) -> None:
            for deletion, of_partition in under_way:
                failure = failures.get(deletion.partition.log_dir)
                _conclude(deletion, of_partition, is_late=deletion in late, failure=failure)
            context.respond(answer)

        if deletions:
            self._replicas.delete_records(deletions, timeout_ms=request.timeout_ms, then=finished)
        else:
            context.respond(answer)

    def _begin(self, topic: str, index: int, offset: int, context: RequestContext) -> RecordDeletion:
        if not context.may(Operation.DELETE, ResourceType.TOPIC, topic):
            raise TopicAuthorizationFailed(f"{context.session.principal} may not delete records of {topic}")
        partition = self._partitions.partition(topic, index)
        return RecordDeletion(partition, partition.delete_records_before(offset))


def _by_topic(request: DeleteRecordsRequest) -> dict[str, dict[int, int]]:
    """Offset by partition by topic; as in Kafka, a topic without partitions is none."""
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            wanted.setdefault(topic.name, {})[asked.partition_index] = asked.offset
    return wanted


def _conclude(deletion: RecordDeletion, answer: Answer, *, is_late: bool, failure: StorageError | None) -> None:
    try:
        deletion.partition.check_leadership()
        if failure is not None:
            raise failure
        if is_late:
            raise RequestTimedOut(f"not all replicas of {deletion.partition.topic_partition} have deleted in time")
    except (Fault, StorageError) as error:
        answer.error_code = error_code_of(error)
    else:
        answer.low_watermark = deletion.partition.low_watermark
