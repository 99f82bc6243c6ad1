"""Fetch: read batches of partitions, waiting for them if asked to (API key 1; KIP-74, KIP-98, KIP-320, KIP-516)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.fetch.executor import FetchExecutor
from broker.fetch.read_rules import FOLLOWERS_SERVE_SINCE_VERSION, FetchRequirements, count_bytes_out
from broker.fetch.round import FetchResult, PartitionFetch, PartitionKey, PartitionRead
from broker.fetch.sessions import FetchSessions, FetchTerms
from broker.handlers.partition_lookup import PartitionLookup
from broker.metadata.cache import MetadataCache
from broker.replication.isolation import FetchIsolation, consumer_isolation
from broker.request.code_versions import known_code
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    Fault,
    InconsistentTopicId,
    TopicAuthorizationFailed,
    UnknownIsolationLevel,
    error_code_of,
)
from protocol.api_keys import ApiKey
from protocol.codec import decoder
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.schema import NO_UUID
from storage.errors import StorageError
from storage.sentinels import NO_EPOCH

if TYPE_CHECKING:
    from broker.fetch.replica_choice import RackAwareSelector
    from broker.replication.follower import Follower, FollowerId

TopicAnswer = FetchResponse.Response
Answer = FetchResponse.Response.Partition

TOPIC_IDS_SINCE_VERSION = 13
LEADER_SINCE_VERSION = 16
"""Version 12 could carry the leader already, but Kafka sends it from here on."""

FETCH_CONSUMER = "FetchConsumer"
FETCH_FOLLOWER = "FetchFollower"
"""What requests of consumers and of followers are counted as, as in Kafka."""

_CARRY_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_BEFORE_READING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


class FetchHandler:
    """Reads what consumers ask for."""

    def __init__(
        self,
        executor: FetchExecutor,
        sessions: FetchSessions,
        metadata: MetadataCache,
        partitions: PartitionLookup,
        *,
        fetch_max_bytes: int,
        selector: RackAwareSelector | None = None,
    ) -> None:
        """``selector`` chooses the replicas that consumers read; None: they read from leaders."""
        self._selector = selector
        self._executor = executor
        self._sessions = sessions
        self._metadata = metadata
        self._partitions = partitions
        self._fetch_max_bytes = fetch_max_bytes

    def fetch(self, request: FetchRequest, context: RequestContext) -> FetchResponse | None:
        """Answer with what is there, or wait until ``min_bytes`` are, or ``max_wait_ms`` have passed."""
        isolation = consumer_isolation(request.isolation_level)
        if isolation is None:
            raise UnknownIsolationLevel(f"there is no isolation level {request.isolation_level}")
        follower_id = _follower_id(request)
        if follower_id is not None:
            isolation = FetchIsolation.LOG_END
        choice = None
        if follower_id is None and self._selector is not None:
            choice = self._selector.choice(request.rack_id, context.peer.listener)
        terms = FetchTerms(
            principal=context.session.principal,
            generation=0 if context.session.permissions is None else context.session.permissions.generation,
            uses_topic_ids=context.api_version >= TOPIC_IDS_SINCE_VERSION,
            follower=follower_id,
            isolation=isolation,
            only_leader=follower_id is not None or context.api_version < FOLLOWERS_SERVE_SINCE_VERSION,
            rack_id="" if choice is None else choice.rack_id,
        )
        if follower_id is not None and context.slot.kind is not None:
            context.slot.kind = context.slot.kind.named(FETCH_FOLLOWER)
        try:
            fetch = self._sessions.begin(
                request.session_id,
                request.session_epoch,
                _asked(request, terms),
                _forgotten(request),
                terms=terms,
                locate=partial(self._locate, context, terms),
            )
        except Fault as fault:
            return FetchResponse(error_code=fault.code, responses=[])
        quota = context.quota
        if quota is not None and follower_id is not None:
            quota.exempt()
        most_bytes = self._fetch_max_bytes
        if quota is not None and follower_id is None:
            most_bytes = min(most_bytes, quota.most_fetched)
        requirements = FetchRequirements(
            isolation=isolation,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            max_wait_ms=request.max_wait_ms,
            fetch_max_bytes=most_bytes,
            only_leader=terms.only_leader,
            follower=None if follower_id is None else self._follower(follower_id),
            replica_choice=choice,
            quota=quota,
        )
        self._executor.fetch(fetch, requirements, then=partial(self._answer, context, requirements.follower))
        return None

    def _follower(self, follower_id: FollowerId) -> Follower:
        from broker.replication.follower import Follower

        return Follower(follower_id, self._partitions.replication)

    def answer_at_once(self, frame: memoryview, position: int, context: RequestContext) -> None:
        """Answer a request that has waited, whose body begins at ``position``, with what there is."""
        request, _ = decoder(FetchRequest, context.api_version)(frame, position)
        request.max_wait_ms = 0
        answer = self.fetch(request, context)
        if answer is not None:
            context.respond(answer)

    def answer_failure(self, frame: memoryview, position: int, context: RequestContext) -> None:
        """Answer a request that has waited and met a bug."""
        request, _ = decoder(FetchRequest, context.api_version)(frame, position)
        context.refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, None)

    def _locate(self, context: RequestContext, terms: FetchTerms, fetch: PartitionFetch) -> None:
        """Find what is to be read, or say why it can't be: as the image, the partitions and the rights are now."""
        fetch.partition = fetch.fault = None
        try:
            if fetch.topic is None:
                fetch.topic = self._metadata.image.topics.of_id(fetch.topic_id).name
            if terms.is_follower:
                is_allowed = context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
            else:
                is_allowed = context.may(Operation.READ, ResourceType.TOPIC, fetch.topic)
            if not is_allowed:
                raise TopicAuthorizationFailed(f"{context.session.principal} may not read {fetch.topic}")
            partition = fetch.partition = self._partitions.partition(fetch.topic, fetch.index)
            if fetch.topic_id not in (NO_UUID, partition.topic_id):
                raise InconsistentTopicId(f"{fetch.topic} had the id {fetch.topic_id.hex()} when it was found first")
        except (Fault, StorageError) as fault:
            fetch.fault = fault.with_traceback(None)  # the traceback leads back to the fetch: a cycle

    def _answer(self, context: RequestContext, follower: Follower | None, result: FetchResult) -> None:
        """Put the partitions below their topics: neighbours of one topic stand together."""
        answer = FetchResponse(session_id=result.session_id, responses=[])
        if result.fault is not None:
            answer.error_code = error_code_of(result.fault)
        of_topic: TopicAnswer | None = None
        for fetch, read in result.partitions:
            topic = fetch.topic or ""
            if (
                of_topic is None
                or of_topic.topic_id != fetch.topic_id
                or (of_topic.topic != topic and fetch.topic_id == NO_UUID)
            ):
                of_topic = TopicAnswer(topic=topic, topic_id=fetch.topic_id, partitions=[])
                answer.responses.append(of_topic)
            of_topic.partitions.append(self._partition_answer(fetch, read, answer, context))
            if read.error is None and read.region is not None and fetch.partition is not None:
                if follower is None:
                    count_bytes_out(fetch.partition, read.region.size)
                else:
                    follower.is_answered(fetch.partition, read.region.size)
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
        if read.preferred_read_replica is not None:
            of_partition.preferred_read_replica = read.preferred_read_replica
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
        code = known_code(error_code_of(error), ApiKey.FETCH, context.api_version)
        of_partition = Answer(partition_index=fetch.index, error_code=code, high_watermark=-1, records=b"")
        # As Kafka says it: empty where nothing could be read at all, null where reading had begun.
        if code in _BEFORE_READING:
            of_partition.aborted_transactions = []
        if code in _CARRY_LEADER and context.api_version >= LEADER_SINCE_VERSION:
            of_partition.current_leader = self._partitions.current_leader(
                fetch.topic or "", fetch.index, context.peer.listener,
                Answer.CurrentLeader, answer.node_endpoints, FetchResponse.NodeEndpoint,
            )  # fmt: skip
        return of_partition


def _follower_id(request: FetchRequest) -> FollowerId | None:
    """Which broker fetches; None for a consumer."""
    state = request.replica_state
    if state.replica_id < 0 and request.replica_id < 0:
        return None
    from broker.replication.follower import FollowerId

    if state.replica_id >= 0:
        return FollowerId(state.replica_id, state.replica_epoch)
    return FollowerId(request.replica_id, NO_EPOCH)


def _asked(request: FetchRequest, terms: FetchTerms) -> dict[PartitionKey, PartitionFetch]:
    """What the request names, each partition once: of several entries the last counts, as in Kafka."""
    asked: dict[PartitionKey, PartitionFetch] = {}
    for topic in request.topics:
        name = None if terms.uses_topic_ids else topic.topic
        for partition in topic.partitions:
            fetch = PartitionFetch(
                topic=name,
                topic_id=topic.topic_id,
                index=partition.partition,
                fetch_offset=partition.fetch_offset,
                max_bytes=partition.partition_max_bytes,
                current_leader_epoch=partition.current_leader_epoch,
                last_fetched_epoch=partition.last_fetched_epoch,
                log_start_offset=partition.log_start_offset,
            )
            asked[fetch.key] = fetch
    return asked


def _forgotten(request: FetchRequest) -> list[PartitionKey]:
    return [
        (topic.topic or topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
