"""ListPartitionReassignments: which partitions are moving to other brokers (API key 46; KIP-455)."""

from collections.abc import Iterable

from broker.metadata.image import MetadataImage, PartitionImage, TopicImage
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed
from protocol.errors import ErrorCode
from protocol.messages.reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse

TopicAnswer = ListPartitionReassignmentsResponse.Topic
Answer = ListPartitionReassignmentsResponse.Topic.Partition


class ReassignmentsHandler:
    """Reads the published image. One node moves nothing; a directory that it has adopted may have been moving."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, context: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        """List those that are asked for, or all; what does not move, or is not there, is left out."""
        if not context.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.peer.principal} may not describe the cluster")
        topics = []
        for topic, partitions in self._asked(request):
            moving = [_answer(partition) for partition in partitions if _is_moving(partition)]
            if moving:
                topics.append(TopicAnswer(name=topic.name, partitions=moving))
        return ListPartitionReassignmentsResponse(topics=topics)

    def refuse(
        self, request: ListPartitionReassignmentsRequest, code: ErrorCode, message: str | None
    ) -> ListPartitionReassignmentsResponse:
        """The answer that carries ``code`` and lists nothing."""
        return ListPartitionReassignmentsResponse(error_code=code, error_message=message, topics=[])

    def _asked(
        self, request: ListPartitionReassignmentsRequest
    ) -> Iterable[tuple[TopicImage, Iterable[PartitionImage]]]:
        if request.topics is None:
            return [(topic, topic.partitions) for topic in self._image.topics_by_name.values()]
        asked = []
        for wanted in request.topics:
            topic = self._image.topics_by_name.get(wanted.name)
            if topic is not None:
                found = (topic.partition(index) for index in wanted.partition_indexes)
                asked.append((topic, [partition for partition in found if partition is not None]))
        return asked


def _is_moving(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _answer(partition: PartitionImage) -> Answer:
    return Answer(
        partition_index=partition.index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
