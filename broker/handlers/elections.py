"""ElectLeaders: let partitions be led by another of their replicas (API key 43; KIP-183, KIP-460)."""

import logging
from collections.abc import Callable
from enum import IntEnum

from broker.metadata.cache import MetadataCache
from broker.metadata.image.topics import PartitionImage
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed, InvalidRequest, RequestTimedOut
from broker.request.node import Node
from protocol.errors import ErrorCode
from protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse
from protocol.records.cluster_metadata import NO_LEADER

log = logging.getLogger(__name__)

TopicResult = ElectLeadersResponse.ReplicaElectionResult
Result = ElectLeadersResponse.ReplicaElectionResult.PartitionResult


class ElectionType(IntEnum):
    """Whom to elect, by the codes of the protocol."""

    PREFERRED = 0
    """The first replica."""
    UNCLEAN = 1
    """Any replica, in sync or not, where there is no leader."""


Elect = Callable[[ElectLeadersRequest, Callable[[ElectLeadersResponse], None]], None]
"""Has the controller in this process elect leaders; the second argument gets the answer once it is durable."""


class ElectionsHandler:
    """Asks the controller where other brokers can be leaders. A node alone leads whatever it has a replica of, so that
    no election changes anything: then the published image has the answer."""

    def __init__(self, metadata: MetadataCache, node: Node, elect: Elect | None = None) -> None:
        self._metadata = metadata
        self._node = node
        self._elect = elect

    def elect_leaders(self, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse | None:
        """Elect leaders, or say of each partition why it keeps its leader. If all are meant, those that need no
        election are left out."""
        if not context.may(Operation.ALTER, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not elect leaders")
        if request.election_type not in tuple(ElectionType):
            raise InvalidRequest(f"Unknown election type {request.election_type}")
        if request.timeout_ms <= 0:
            log.info("An election of %s has a timeout of %d ms: nobody is elected", context.peer, request.timeout_ms)
            raise RequestTimedOut
        election_type = ElectionType(request.election_type)
        if self._elect is not None:
            self._elect(request, context.respond)
            return None
        if request.topic_partitions is None:
            results = [
                TopicResult(
                    topic=topic.name,
                    partition_result=[
                        result
                        for partition in topic.partitions
                        if (result := self._result(election_type, partition)).error_code
                        != ErrorCode.ELECTION_NOT_NEEDED
                    ],
                )
                for topic in self._metadata.image.topics.by_name.values()
            ]
        else:
            results = [
                TopicResult(
                    topic=asked.topic,
                    partition_result=[self._named(election_type, asked.topic, index) for index in asked.partitions],
                )
                for asked in request.topic_partitions
            ]
        return ElectLeadersResponse(replica_election_results=results)

    def _named(self, election_type: ElectionType, topic: str, index: int) -> Result:
        known = self._metadata.image.topics.by_name.get(topic)
        partition = known.partition(index) if known is not None else None
        if partition is None:
            text = f"No such topic as {topic}" if known is None else f"No such partition as {topic}-{index}"
            return Result(partition_id=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=text)
        return self._result(election_type, partition)

    def _result(self, election_type: ElectionType, partition: PartitionImage) -> Result:
        if election_type is ElectionType.PREFERRED and partition.replicas[0] != self._node.node_id:
            code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            text = "The preferred leader was not available."
        elif partition.leader == NO_LEADER:
            code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            text = "Eligible topic partition leaders are not available."
        else:
            code = ErrorCode.ELECTION_NOT_NEEDED
            text = "Leader election not needed for topic partition."
        return Result(partition_id=partition.index, error_code=code, error_message=text)
