"""Fetch: read batches of partitions, waiting for them if asked to (API key 1; KIP-74, KIP-98, KIP-320, KIP-516)."""

from collections.abc import Sequence
from functools import partial

from broker.metadata.image import MetadataImage
from broker.replication.fetch import FetchRequirements, Isolation, PartitionFetch, PartitionRead
from broker.replication.replica_manager import ReplicaManager
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    Fault,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownTopicId,
    error_code_of,
)
from broker.request.node import Node
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.schema import NO_UUID
from storage.errors import UnsupportedCompression

AskedTopic = FetchRequest.Topic
AskedPartition = FetchRequest.Topic.Partition
TopicAnswer = FetchResponse.Response
Answer = FetchResponse.Response.Partition

STORAGE_ERROR_SINCE_VERSION = 6
ZSTD_SINCE_VERSION = 10
TOPIC_IDS_SINCE_VERSION = 13

NO_SESSION = 0
FULL_FETCH_EPOCHS = (0, -1)
"""Session epochs that ask for everything: 0 would like a session to begin, -1 wants none."""

_TELLS_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_BEFORE_READING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


class FetchHandler:
    """Reads what consumers ask for."""

    def __init__(self, replicas: ReplicaManager, image: MetadataImage, node: Node, *, fetch_max_bytes: int) -> None:
        self._replicas = replicas
        self._image = image
        self._node = node
        self._fetch_max_bytes = fetch_max_bytes

    def fetch(self, request: FetchRequest, context: RequestContext) -> FetchResponse | None:
        """Answer with what is there, or wait until ``min_bytes`` are, or ``max_wait_ms`` have passed."""
        if request.session_epoch not in FULL_FETCH_EPOCHS:
            # No sessions are granted, so none can be continued.
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        if request.isolation_level not in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED):
            return self.refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, None)
        asked: list[tuple[TopicAnswer, list[PartitionFetch]]] = []
        fetches: list[PartitionFetch] = []
        for topic in request.topics:
            of_topic = self._fetches_of(topic, request, context)
            if of_topic:
                asked.append((TopicAnswer(topic=topic.topic, topic_id=topic.topic_id, partitions=[]), of_topic))
                fetches += of_topic
        requirements = FetchRequirements(
            isolation=Isolation(request.isolation_level),
            min_bytes=min(request.min_bytes, request.max_bytes, self._fetch_max_bytes),
            max_bytes=min(request.max_bytes, self._fetch_max_bytes),
            max_wait_ms=request.max_wait_ms,
        )
        self._replicas.fetch(fetches, requirements, then=partial(self._answer, context, asked))
        return None

    def refuse(self, request: FetchRequest, code: ErrorCode, message: str | None) -> FetchResponse:
        """The answer in which everything carries ``code``; topics that were asked by their ids are left out of it."""
        return FetchResponse(
            error_code=code,
            responses=[
                TopicAnswer(
                    topic=topic.topic,
                    partitions=[
                        Answer(
                            partition_index=asked.partition,
                            error_code=code,
                            high_watermark=-1,
                            aborted_transactions=[],
                            records=b"",
                        )
                        for asked in topic.partitions
                    ],
                )
                for topic in request.topics
                if topic.topic_id == NO_UUID
            ],
        )

    def _fetches_of(self, topic: AskedTopic, request: FetchRequest, context: RequestContext) -> list[PartitionFetch]:
        if context.api_version >= TOPIC_IDS_SINCE_VERSION:
            known = self._image.topics_by_id.get(topic.topic_id)
            if known is None:
                fault = UnknownTopicId(f"no topic has the id {topic.topic_id.hex()}")
                return [_without_partition(asked, fault) for asked in topic.partitions]
            name = known.name
        elif topic.topic:
            name = topic.topic
        else:
            return []  # as Kafka does: a topic without a name is left out of the answer
        if not context.may(Operation.READ, ResourceType.TOPIC, name):
            refused = TopicAuthorizationFailed(f"{context.peer.principal} may not read {name}")
            return [_without_partition(asked, refused) for asked in topic.partitions]
        return [self._fetch_of(name, asked, request, context.api_version) for asked in topic.partitions]

    def _fetch_of(self, name: str, asked: AskedPartition, request: FetchRequest, version: int) -> PartitionFetch:
        try:
            partition = self._replicas.partition(name, asked.partition)
            if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
                raise NotLeaderOrFollower(f"no node is a follower of {name}-{asked.partition}")
            if version < ZSTD_SINCE_VERSION and partition.log.config.compression_type == "zstd":
                raise UnsupportedCompression(f"{name} is compressed with zstd, which fetch knows from version 10 on")
        except (Fault, UnsupportedCompression) as fault:
            return _without_partition(asked, fault)
        return PartitionFetch(
            index=asked.partition,
            partition=partition,
            fault=None,
            fetch_offset=asked.fetch_offset,
            max_bytes=asked.partition_max_bytes,
            current_leader_epoch=asked.current_leader_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
        )

    def _answer(
        self,
        context: RequestContext,
        asked: Sequence[tuple[TopicAnswer, Sequence[PartitionFetch]]],
        reads: Sequence[PartitionRead],
    ) -> None:
        """Put the reads, which stand in the order of the fetches, below their topics."""
        answer = FetchResponse(session_id=NO_SESSION, responses=[])
        position = 0
        for of_topic, fetches in asked:
            for fetch in fetches:
                of_topic.partitions.append(self._partition_answer(fetch, reads[position], answer, context))
                position += 1
            answer.responses.append(of_topic)
        context.respond(answer)

    def _partition_answer(
        self, fetch: PartitionFetch, read: PartitionRead, answer: FetchResponse, context: RequestContext
    ) -> Answer:
        if read.error is not None:
            return self._error_answer(fetch, read, read.error, answer, context)
        of_partition = Answer(
            partition_index=fetch.index,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            records=b"" if read.region is None else read.region,
        )
        if read.aborted_transactions is not None:
            of_partition.aborted_transactions = [
                Answer.AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in read.aborted_transactions
            ]
        if read.diverging_epoch is not None:
            of_partition.diverging_epoch = Answer.DivergingEpoch(
                epoch=read.diverging_epoch.epoch, end_offset=read.diverging_epoch.end_offset
            )
        return of_partition

    def _error_answer(
        self,
        fetch: PartitionFetch,
        read: PartitionRead,
        error: Exception,
        answer: FetchResponse,
        context: RequestContext,
    ) -> Answer:
        code = error_code_of(error)
        if code is ErrorCode.KAFKA_STORAGE_ERROR and context.api_version < STORAGE_ERROR_SINCE_VERSION:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        of_partition = Answer(partition_index=fetch.index, error_code=code, high_watermark=-1, records=b"")
        # As Kafka says it: empty where nothing could be read at all, null where reading had begun.
        if code in _BEFORE_READING:
            of_partition.aborted_transactions = []
        if code in _TELLS_LEADER and fetch.partition is not None:
            of_partition.current_leader = Answer.CurrentLeader(
                leader_id=fetch.partition.leader, leader_epoch=fetch.partition.leader_epoch
            )
            if fetch.partition.leader == self._node.node_id and not answer.node_endpoints:
                endpoint = self._node.endpoints[context.peer.listener]
                answer.node_endpoints.append(
                    FetchResponse.NodeEndpoint(
                        node_id=self._node.node_id, host=endpoint.host, port=endpoint.port, rack=self._node.rack
                    )
                )
        return of_partition


def _without_partition(asked: AskedPartition, fault: Exception) -> PartitionFetch:
    return PartitionFetch(
        index=asked.partition,
        partition=None,
        fault=fault,
        fetch_offset=asked.fetch_offset,
        max_bytes=asked.partition_max_bytes,
        current_leader_epoch=asked.current_leader_epoch,
        last_fetched_epoch=asked.last_fetched_epoch,
    )
