"""DescribeTopicPartitions: topics with their partitions, page by page (API key 75; KIP-966)."""

from collections.abc import Sequence

from broker.handlers.replica_views import offline_replicas
from broker.metadata.brokers import Brokers, BrokersOnListener
from broker.metadata.cache import MetadataCache
from broker.metadata.image.topics import PartitionImage, TopicImage
from broker.metadata.topic_rules import INTERNAL_TOPICS, fault_of_name
from broker.request.context import TOPIC_OPERATIONS, Operation, RequestContext, ResourceType
from broker.request.faults import InvalidRequest
from protocol.errors import ErrorCode
from protocol.messages.metadata import OPERATIONS_NOT_ASKED_FOR
from protocol.messages.topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.records.cluster_metadata import NO_LEADER

TopicAnswer = DescribeTopicPartitionsResponse.Topic
Answer = DescribeTopicPartitionsResponse.Topic.Partition


class TopicPartitionsHandler:
    """Reads the published image in the order of topic names, so that a cursor means the same to every request."""

    def __init__(self, metadata: MetadataCache, brokers: Brokers, *, most_partitions: int) -> None:
        """``most_partitions`` stand in one answer, whatever the client asks for."""
        self._metadata = metadata
        self._brokers = brokers
        self._most_partitions = most_partitions

    def describe_topic_partitions(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> DescribeTopicPartitionsResponse:
        """Describe the topics asked for, or all, from the cursor on until the page is full."""
        names = self._names(request, context)
        left = min(max(request.response_partition_limit, 1), self._most_partitions)
        cursor = request.cursor
        answer = DescribeTopicPartitionsResponse(topics=[])
        for name in names:
            first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            if left == 0:
                answer.next_cursor = Cursor(topic_name=name, partition_index=first)
                break
            of_topic, there = self._describe(name, first, left, context)
            answer.topics.append(of_topic)
            left -= len(of_topic.partitions)
            if first + len(of_topic.partitions) < there:
                answer.next_cursor = Cursor(topic_name=name, partition_index=first + len(of_topic.partitions))
                break
        return answer

    def _names(self, request: DescribeTopicPartitionsRequest, context: RequestContext) -> Sequence[str]:
        """The topics of the answer in their order, those before the cursor left out. Raises `InvalidRequest`.

        A cursor points at one of the topics that are asked for; where all are, anywhere.
        """
        cursor = request.cursor
        if cursor is not None and cursor.partition_index < 0:
            raise InvalidRequest(f"a cursor cannot point at partition {cursor.partition_index}")
        if request.topics:
            names = {topic.name for topic in request.topics}
            if cursor is not None and cursor.topic_name not in names:
                raise InvalidRequest(f"the cursor points at {cursor.topic_name!r}, which is not asked for")
        else:
            names = {
                name
                for name in self._metadata.image.topics.by_name
                if context.sees(Operation.DESCRIBE, ResourceType.TOPIC, name)
            }
        return sorted(name for name in names if cursor is None or name >= cursor.topic_name)

    def _describe(self, name: str, first: int, most: int, context: RequestContext) -> tuple[TopicAnswer, int]:
        """A topic with ``most`` of its partitions from ``first`` on, and how many it has."""
        if not _may_describe(context, name):
            return _without_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, context), 0
        topic = self._metadata.image.topics.by_name.get(name)
        if topic is not None:
            return self._found(topic, first, most, context), len(topic.partitions)
        code = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if fault_of_name(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
        )
        return _without_topic(name, code, context), 0

    def _found(self, topic: TopicImage, first: int, most: int, context: RequestContext) -> TopicAnswer:
        brokers = self._brokers.on(context.peer.listener)
        return TopicAnswer(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[_partition_answer(partition, brokers) for partition in topic.partitions[first : first + most]],
            topic_authorized_operations=context.authorized(TOPIC_OPERATIONS, ResourceType.TOPIC, topic.name),
        )


def _partition_answer(partition: PartitionImage, brokers: BrokersOnListener) -> Answer:
    # No error, unlike in Metadata: clients of this API read the leader's -1.
    return Answer(
        partition_index=partition.index,
        leader_id=NO_LEADER if brokers.find(partition.leader) is None else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(partition, brokers),
    )


def _may_describe(context: RequestContext, name: str) -> bool:
    return context.may(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _without_topic(name: str, code: ErrorCode, context: RequestContext) -> TopicAnswer:
    operations = OPERATIONS_NOT_ASKED_FOR
    if code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        operations = context.authorized(TOPIC_OPERATIONS, ResourceType.TOPIC, name)
    return TopicAnswer(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=operations,
    )
