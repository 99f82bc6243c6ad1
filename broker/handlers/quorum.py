"""DescribeQuorum, AddRaftVoter and RemoveRaftVoter (API keys 55, 80 and 81; KIP-642, KIP-836, KIP-853)."""

from broker.metadata.cache import MetadataCache
from broker.raft.client import RaftClient
from broker.raft.observers import Observers
from broker.raft.single_voter_log import METADATA_PARTITION
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    ClusterAuthorizationFailed,
    DuplicateVoter,
    InconsistentClusterId,
    InvalidRequest,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
)
from broker.request.node import Node
from broker.runtime.clock import Clock
from protocol.errors import ErrorCode
from protocol.messages.quorum import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    ReplicaState,
)
from protocol.schema import NO_UUID

TopicAnswer = DescribeQuorumResponse.Topic
Answer = DescribeQuorumResponse.Topic.Partition


class QuorumHandler:
    """Describes a quorum of one, and the nodes that follow it."""

    def __init__(
        self, raft: RaftClient, metadata: MetadataCache, node: Node, clock: Clock, observers: Observers
    ) -> None:
        self._raft = raft
        self._observers = observers
        self._metadata = metadata
        self._node = node
        self._clock = clock

    def describe_quorum(self, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
        """Describe the metadata log; a request that names another partition gets errors only, as in Kafka."""
        if not context.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not describe the cluster")
        asked = [
            (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
        ]
        if asked != [METADATA_PARTITION]:
            return self._unknown(request)
        answer = DescribeQuorumResponse(
            error_message="",
            topics=[
                TopicAnswer(topic_name=topic.topic_name, partitions=[self._partition() for _ in topic.partitions])
                for topic in request.topics
            ],
        )
        if asked:
            answer.nodes = [self._this_node()]
        return answer

    def add_raft_voter(self, request: AddRaftVoterRequest, context: RequestContext) -> None:
        """Say why the controller does not vote: this node stays the only voter.

        Raises `InconsistentClusterId`, `InvalidRequest`, `UnsupportedVersion`, `DuplicateVoter` and `RequestTimedOut`.
        """
        self._check_voter(request.cluster_id, request.voter_id, request.voter_directory_id, context)
        missing = {listener.name for listener in self._this_node().listeners} - {one.name for one in request.listeners}
        if missing:
            raise InvalidRequest(f"The voter has no endpoint for the listener {', '.join(sorted(missing))}")
        self._check_voters_change()
        if request.voter_id == self._node.node_id:
            raise DuplicateVoter(f"The voter id {request.voter_id} is already part of the set of voters")
        raise RequestTimedOut(f"Aborted add voter operation for {request.voter_id} since it is lagging behind")

    def remove_raft_voter(self, request: RemoveRaftVoterRequest, context: RequestContext) -> None:
        """Say why the controller is not removed: it is no voter, or the only one.

        Raises `InconsistentClusterId`, `InvalidRequest`, `UnsupportedVersion` and `VoterNotFound`.
        """
        self._check_voter(request.cluster_id, request.voter_id, request.voter_directory_id, context)
        self._check_voters_change()
        raise VoterNotFound(f"Cannot remove voter {request.voter_id} from the set of voters [{self._node.node_id}]")

    def _check_voter(self, cluster_id: str | None, voter_id: int, directory_id: bytes, context: RequestContext) -> None:
        if not context.may(Operation.ALTER, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not change who votes")
        if cluster_id not in (None, self._node.cluster_id):
            raise InconsistentClusterId(f"{cluster_id!r} is asked for, the cluster id is {self._node.cluster_id!r}")
        if voter_id < 0 or directory_id == NO_UUID:
            raise InvalidRequest(f"There is no voter {voter_id} with the directory {directory_id.hex()}")

    def _check_voters_change(self) -> None:
        if self._raft.quorum.voters is None:
            raise UnsupportedVersion("At kraft.version 0 the voters are those of the settings")

    def _unknown(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        return DescribeQuorumResponse(
            error_message="",
            topics=[
                TopicAnswer(
                    topic_name=topic.topic_name,
                    partitions=[
                        Answer(
                            partition_index=partition.partition_index,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                            error_message="This server does not host this topic-partition. "
                            f"Only {METADATA_PARTITION} has a quorum.",
                            current_voters=[],
                            observers=[],
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _partition(self) -> Answer:
        now_ms = self._clock.now_ms()
        return Answer(
            partition_index=METADATA_PARTITION.partition,
            error_message="",
            leader_id=self._raft.leader_id,
            leader_epoch=self._raft.leader_epoch,
            high_watermark=self._raft.high_watermark,
            current_voters=[
                ReplicaState(
                    replica_id=self._node.node_id,
                    replica_directory_id=self._directory_id(),
                    log_end_offset=self._raft.end_offset,
                    last_fetch_timestamp=now_ms,
                    last_caught_up_timestamp=now_ms,
                )
            ],
            observers=[
                ReplicaState(
                    replica_id=observer.key.node_id,
                    replica_directory_id=observer.key.directory_id,
                    log_end_offset=observer.end_offset,
                    last_fetch_timestamp=observer.last_fetch_ms,
                    last_caught_up_timestamp=observer.last_caught_up_ms,
                )
                for observer in self._observers.positions(now_ms)
            ],
        )

    def _directory_id(self) -> bytes:
        voters = self._raft.quorum.voters
        if voters is not None:
            for voter in voters.voters:
                if voter.voter_id == self._node.node_id:
                    return voter.voter_directory_id
        return NO_UUID

    def _this_node(self) -> DescribeQuorumResponse.Node:
        """The node with the endpoints that its controller has registered."""
        controller = self._metadata.image.cluster.controllers.get(self._node.node_id)
        endpoints = controller.end_points if controller is not None else []
        return DescribeQuorumResponse.Node(
            node_id=self._node.node_id,
            listeners=[
                DescribeQuorumResponse.Node.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                for endpoint in endpoints
            ],
        )
