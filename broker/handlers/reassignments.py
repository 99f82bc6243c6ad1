"""AlterPartitionReassignments and ListPartitionReassignments (API keys 45 and 46; KIP-455)."""

import logging
from collections.abc import Iterable, Sequence

from broker.controller.client import ControllerClient
from broker.metadata.cache import MetadataCache
from broker.metadata.image.topics import PartitionImage, TopicImage
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed, Fault, RequestTimedOut
from protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

log = logging.getLogger(__name__)

TopicAnswer = ListPartitionReassignmentsResponse.Topic
Answer = ListPartitionReassignmentsResponse.Topic.Partition
AlteredPartition = AlterPartitionReassignmentsResponse.Response.Partition


class ReassignmentsHandler:
    """Asks the controller, and the published image. One node moves nothing; a directory that it has adopted may have
    been moving."""

    def __init__(self, controller: ControllerClient, metadata: MetadataCache) -> None:
        self._controller = controller
        self._metadata = metadata

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> None:
        """Answer once what could be changed is durable."""
        if not context.may(Operation.ALTER, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not reassign partitions")
        if request.timeout_ms <= 0:
            log.info("A reassignment of %s has a timeout of %d ms: nothing is moved", context.peer, request.timeout_ms)
            raise RequestTimedOut
        wishes = [
            (topic.name, partition.partition_index, partition.replicas)
            for topic in request.topics
            for partition in topic.partitions
        ]

        def altered(results: Sequence[Fault | None]) -> None:
            left = iter(results)
            answer = AlterPartitionReassignmentsResponse(
                allow_replication_factor_change=request.allow_replication_factor_change, responses=[]
            )
            for topic in request.topics:
                answer.responses.append(
                    AlterPartitionReassignmentsResponse.Response(
                        name=topic.name,
                        partitions=[_altered(partition.partition_index, next(left)) for partition in topic.partitions],
                    )
                )
            context.respond(answer)

        self._controller.reassign_partitions(
            wishes, then=altered, may_change_replication_factor=request.allow_replication_factor_change
        )

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, context: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        """List those that are asked for, or all; what does not move, or is not there, is left out."""
        if not context.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not describe the cluster")
        topics = []
        for topic, partitions in self._asked(request):
            moving = [_answer(partition) for partition in partitions if _is_moving(partition)]
            if moving:
                topics.append(TopicAnswer(name=topic.name, partitions=moving))
        return ListPartitionReassignmentsResponse(topics=topics)

    def _asked(
        self, request: ListPartitionReassignmentsRequest
    ) -> Iterable[tuple[TopicImage, Iterable[PartitionImage]]]:
        if request.topics is None:
            return [(topic, topic.partitions) for topic in self._metadata.image.topics.by_name.values()]
        asked = []
        for wanted in request.topics:
            topic = self._metadata.image.topics.by_name.get(wanted.name)
            if topic is not None:
                found = (topic.partition(index) for index in wanted.partition_indexes)
                asked.append((topic, [partition for partition in found if partition is not None]))
        return asked


def _altered(index: int, fault: Fault | None) -> AlteredPartition:
    if fault is None:
        return AlteredPartition(partition_index=index)
    return AlteredPartition(partition_index=index, error_code=fault.code, error_message=str(fault) or None)


def _is_moving(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _answer(partition: PartitionImage) -> Answer:
    return Answer(
        partition_index=partition.index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
