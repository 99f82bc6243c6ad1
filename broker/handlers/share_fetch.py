"""ShareFetch and ShareAcknowledge: records for the members of share groups (API keys 78 and 79; KIP-932, KIP-1206,
KIP-1222)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from broker.fetch.read_rules import count_bytes_out
from broker.handlers.partition_lookup import PartitionLookup
from broker.metadata.cache import MetadataCache
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    Fault,
    GroupAuthorizationFailed,
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_code_of,
)
from broker.runtime.timing_wheel import TimingWheel
from broker.share.group_configs import ShareGroupConfigs
from broker.share.requests import Acknowledgement, AcknowledgeType, AcquireMode, Acquisition
from broker.share.sessions import FINAL_EPOCH, Member, ShareFetchContext, ShareSessions, TopicIdPartition
from broker.share.share_fetch import ShareFetch, ShareFetchAnswer
from broker.share.share_partitions import SharePartitions
from protocol.errors import ErrorCode
from protocol.messages.share_fetch import (
    CurrentLeader,
    NodeEndpoint,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

log = logging.getLogger(__name__)

FetchAnswer: TypeAlias = ShareFetchResponse.Response.Partition
AcknowledgeAnswer: TypeAlias = ShareAcknowledgeResponse.Response.Partition
Said: TypeAlias = dict[TopicIdPartition, Sequence[Acknowledgement]]
Errors: TypeAlias = dict[TopicIdPartition, Exception | None]

LONGEST_MEMBER_ID: Final = 36
RENEWS_SINCE_VERSION: Final = 2

_CARRY_LEADER: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

T = TypeVar("T")


class ShareFetchHandler:
    """Delivers records to the members of share groups, and takes their acknowledgements."""

    def __init__(
        self,
        share_partitions: SharePartitions,
        sessions: ShareSessions,
        configs: ShareGroupConfigs,
        metadata: MetadataCache,
        partitions: PartitionLookup,
        wheel: TimingWheel,
        *,
        fetch_max_bytes: int,
    ) -> None:
        self._share_partitions = share_partitions
        self._sessions = sessions
        self._configs = configs
        self._metadata = metadata
        self._partitions = partitions
        self._wheel = wheel
        self._fetch_max_bytes = fetch_max_bytes

    # ShareFetch -------------------------------------------------------------------------------------------------------

    def share_fetch(self, request: ShareFetchRequest, context: RequestContext) -> None:
        """Answer with what the member acquires: now, or when ``min_bytes`` are there or ``max_wait_ms`` have passed."""
        member = self._member(request.group_id, request.member_id, context)
        if request.is_renew_ack:
            _check_renewal(request)
        acknowledges = any(
            partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
        )
        stream = context.slot.stream
        try:
            fetching = self._sessions.begin(
                member,
                request.share_session_epoch,
                self._asked(request),
                _forgotten(request),
                acknowledges=acknowledges,
                connection=stream,
            )
        except ShareSessionLimitReached as fault:
            self._refuse_later(request, context, fault)
            return
        if fetching.is_new:
            stream.when_closed(self._sessions.connection_closed)
        pending = _PendingAnswer(
            lambda answers, errors: self._answer(request, context, fetching, member, answers, errors)
        )
        said: Said = {}
        errors: Errors = {}
        if acknowledges:
            said, errors = self._said(request.topics, request.is_renew_ack, context)
        self._acknowledge(member, said, errors, pending.acknowledged)
        if request.is_renew_ack:
            pending.fetched([])
        else:
            self._fetch(request, context, fetching, member, pending.fetched)

    def _refuse_later(self, request: ShareFetchRequest, context: RequestContext, fault: Fault) -> None:
        """Too many sessions: the client is told when its fetch would have ended, so that it does not ask at once."""

        if request.max_wait_ms <= 0:
            raise fault

        def refuse() -> None:
            context.refuse(request, fault.code, str(fault))

        self._wheel.add_after(request.max_wait_ms, refuse)

    def _fetch(
        self,
        request: ShareFetchRequest,
        context: RequestContext,
        fetching: ShareFetchContext,
        member: Member,
        then: Callable[[list[ShareFetchAnswer]], None],
    ) -> None:
        failed: list[ShareFetchAnswer] = []
        named: list[tuple[TopicIdPartition, str]] = []
        for key, topic in fetching.partitions:
            try:
                named.append((key, self._readable(key, topic, context)))
            except Fault as fault:
                failed.append(ShareFetchAnswer(key, fault.with_traceback(None)))
        if not named:
            then(failed)
            return
        try:
            mode = AcquireMode(request.share_acquire_mode)
        except ValueError:
            # Neither whole batches nor a limit of records. Kafka has no better code for it, and no words.
            context.refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, None)
            return
        quota = context.quota
        most_bytes = self._fetch_max_bytes if quota is None else min(self._fetch_max_bytes, quota.most_fetched)
        fetch = ShareFetch(
            Acquisition(member.member_id, mode, request.batch_size, request.max_records),
            isolation=self._configs.isolation(member.group_id),
            min_bytes=request.min_bytes,
            max_bytes=min(request.max_bytes, most_bytes),
            max_wait_ms=request.max_wait_ms,
            is_superseded=lambda: fetching.session is not self._sessions.find(member) or fetching.is_overtaken,
        )
        self._share_partitions.fetch(
            fetch, member, _rotated(named, request.share_session_epoch), lambda answers: then([*answers, *failed])
        )

    def _answer(
        self,
        request: ShareFetchRequest,
        context: RequestContext,
        fetching: ShareFetchContext,
        member: Member,
        answers: list[ShareFetchAnswer],
        errors: Errors,
    ) -> None:
        if fetching.is_overtaken:
            ShareFetch.take_back(answers, member.member_id)
            fault = InvalidShareSessionEpoch("another request of the share session has come in between")
            context.refuse(request, fault.code, str(fault))
            return
        answer = ShareFetchResponse(
            acquisition_lock_timeout_ms=self._configs.lock_duration_ms(member.group_id), responses=[], node_endpoints=[]
        )
        size = sum(answered.region.size for answered in answers if answered.region is not None)
        if context.quota is not None and not context.quota.admits_fetch(size):
            ShareFetch.take_back(answers, member.member_id)
            answers = []
        found: dict[TopicIdPartition, FetchAnswer] = {}
        for answered in answers:
            key = answered.topic_id_partition
            if fetching.names(key, has_records=answered.region is not None, has_error=answered.error is not None):
                found[key] = self._partition_answer(answered, answer, context)
        for key, error in errors.items():
            of_partition = found.setdefault(key, _empty(key))
            if error is not None:
                of_partition.acknowledge_error_code = error_code_of(error)
                of_partition.acknowledge_error_message = _said_of(error)
        for topic_id, partitions in _by_topic(found).items():
            answer.responses.append(ShareFetchResponse.Response(topic_id=topic_id, partitions=partitions))
        context.respond(answer)
        if request.share_session_epoch == FINAL_EPOCH:
            self._end(member)

    def _partition_answer(
        self, answered: ShareFetchAnswer, answer: ShareFetchResponse, context: RequestContext
    ) -> FetchAnswer:
        of_partition = _empty(answered.topic_id_partition)
        if answered.error is not None:
            of_partition.error_code = error_code_of(answered.error)
            of_partition.error_message = _said_of(answered.error)
            self._name_leader(of_partition, answered.topic_id_partition, answer, context)
        elif answered.region is not None and answered.taken_from is not None:
            of_partition.records = answered.region
            of_partition.acquired_records = [
                FetchAnswer.AcquiredRecord(
                    first_offset=run.first_offset, last_offset=run.last_offset, delivery_count=run.delivery_count
                )
                for run in answered.acquired
            ]
            count_bytes_out(answered.taken_from.partition, answered.region.size)
        return of_partition

    def _asked(self, request: ShareFetchRequest) -> dict[TopicIdPartition, str | None]:
        return {
            TopicIdPartition(topic.topic_id, partition.partition_index): self._name_of(topic.topic_id)
            for topic in request.topics
            for partition in topic.partitions
        }

    def _name_of(self, topic_id: bytes) -> str | None:
        known = self._metadata.image.topics.by_id.get(topic_id)
        return None if known is None else known.name

    # ShareAcknowledge -------------------------------------------------------------------------------------------------

    def share_acknowledge(self, request: ShareAcknowledgeRequest, context: RequestContext) -> None:
        """Take what a member says of its records; answer when that is persisted."""
        member = self._member(request.group_id, request.member_id, context)
        self._sessions.acknowledge(member, request.share_session_epoch)
        said, errors = self._said(request.topics, request.is_renew_ack, context)

        def then(errors: Errors) -> None:
            if request.share_session_epoch == FINAL_EPOCH:
                self._end(member)
            answer = ShareAcknowledgeResponse(
                acquisition_lock_timeout_ms=self._configs.lock_duration_ms(member.group_id),
                responses=[],
                node_endpoints=[],
            )
            found = {key: self._acknowledged(key, error, answer, context) for key, error in errors.items()}
            for topic_id, partitions in _by_topic(found).items():
                answer.responses.append(ShareAcknowledgeResponse.Response(topic_id=topic_id, partitions=partitions))
            context.respond(answer)

        self._acknowledge(member, said, errors, then)

    def _acknowledged(
        self, key: TopicIdPartition, error: Exception | None, answer: ShareAcknowledgeResponse, context: RequestContext
    ) -> AcknowledgeAnswer:
        of_partition = AcknowledgeAnswer(partition_index=key.partition)
        if error is not None:
            of_partition.error_code = error_code_of(error)
            of_partition.error_message = _said_of(error)
            self._name_leader(of_partition, key, answer, context)
        return of_partition

    # What both do -----------------------------------------------------------------------------------------------------

    def _member(self, group_id: str | None, member_id: str | None, context: RequestContext) -> Member:
        if not self._configs.share_version:
            raise UnsupportedVersion("this cluster has no share groups (share.version)")
        if group_id is None:
            raise InvalidRequest("Invalid group id in the request.")
        if not context.may(Operation.READ, ResourceType.GROUP, group_id):
            raise GroupAuthorizationFailed(f"{context.session.principal} may not read group {group_id}")
        if not member_id or len(member_id) > LONGEST_MEMBER_ID:
            raise InvalidRequest("Invalid member id in the request.")
        return Member(group_id, member_id)

    def _readable(self, key: TopicIdPartition, topic: str | None, context: RequestContext) -> str:
        """The topic's name. Raises faults without words, as Kafka answers."""
        if topic is None:
            raise UnknownTopicId
        if not context.may(Operation.READ, ResourceType.TOPIC, topic):
            raise TopicAuthorizationFailed
        known = self._metadata.image.topics.by_name.get(topic)
        if known is None or known.topic_id != key.topic_id or known.partition(key.partition) is None:
            raise UnknownTopicOrPartition
        return topic

    def _said(
        self,
        topics: Iterable[ShareFetchRequest.Topic | ShareAcknowledgeRequest.Topic],
        is_renew_ack: bool,
        context: RequestContext,
    ) -> tuple[Said, Errors]:
        """What a request says of records that exist, and why the rest is refused."""
        said: Said = {}
        errors: Errors = {}
        most = AcknowledgeType.RENEW if context.api_version >= RENEWS_SINCE_VERSION else AcknowledgeType.REJECT
        for topic in topics:
            name = self._name_of(topic.topic_id)
            for partition in topic.partitions:
                key = TopicIdPartition(topic.topic_id, partition.partition_index)
                batches = [
                    Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                    for batch in partition.acknowledgement_batches
                ]
                try:
                    if name is not None:
                        _check_acknowledgements(batches, most, is_renew_ack)
                    self._readable(key, name, context)
                    said[key] = batches
                    errors.pop(key, None)
                except Fault as fault:
                    # Kafka answers without words.
                    log.info("Refused acknowledgements of %s with %s: %s", context.peer, fault.code.name, fault)
                    errors[key] = type(fault)()
                    said.pop(key, None)
        return said, errors

    def _acknowledge(self, member: Member, said: Said, errors: Errors, then: Callable[[Errors], None]) -> None:
        given = {key: batches for key, batches in said.items() if batches}
        if not given:
            then(errors)
            return

        def done(results: Mapping[TopicIdPartition, Exception | None]) -> None:
            then({**results, **errors, **dict.fromkeys(said.keys() - given.keys())})

        self._share_partitions.acknowledge(member, given, done)

    def _end(self, member: Member) -> None:
        session = self._sessions.remove(member)
        if session is not None:
            self._share_partitions.release(session)

    def _name_leader(
        self,
        of_partition: FetchAnswer | AcknowledgeAnswer,
        key: TopicIdPartition,
        answer: ShareFetchResponse | ShareAcknowledgeResponse,
        context: RequestContext,
    ) -> None:
        """Say who leads the partition where the error is about the leader."""
        if of_partition.error_code in _CARRY_LEADER:
            of_partition.current_leader = self._partitions.current_leader(
                self._name_of(key.topic_id) or "", key.partition, context.peer.listener,
                CurrentLeader, answer.node_endpoints, NodeEndpoint,
            )  # fmt: skip


class _PendingAnswer:
    """A ShareFetch that is answered when both its acknowledgements and its fetch are done."""

    __slots__ = ("_answers", "_errors", "_then")

    def __init__(self, then: Callable[[list[ShareFetchAnswer], Errors], None]) -> None:
        self._then = then
        self._answers: list[ShareFetchAnswer] | None = None
        self._errors: Errors | None = None

    def acknowledged(self, errors: Errors) -> None:
        self._errors = errors
        self._settle()

    def fetched(self, answers: list[ShareFetchAnswer]) -> None:
        self._answers = answers
        self._settle()

    def _settle(self) -> None:
        if self._answers is not None and self._errors is not None:
            self._then(self._answers, self._errors)


def _check_renewal(request: ShareFetchRequest) -> None:
    wrong = [
        name
        for name, value in (
            ("maxBytes", request.max_bytes),
            ("minBytes", request.min_bytes),
            ("maxRecords", request.max_records),
            ("maxWaitMs", request.max_wait_ms),
        )
        if value
    ]
    if wrong:
        raise InvalidRequest(f"a renewal of acquisition locks fetches nothing: {', '.join(wrong)} must be 0")


def _check_acknowledgements(batches: Sequence[Acknowledgement], most: AcknowledgeType, is_renew_ack: bool) -> None:
    last_offset = -1
    for first, last, types in batches:
        if first > last or first < last_offset:
            raise InvalidRequest(f"acknowledgements from {first} to {last} behind {last_offset}")
        if len(types) != 1 and len(types) != last - first + 1:
            raise InvalidRequest(f"{len(types)} acknowledgements for {last - first + 1} records")
        if not types or min(types) < AcknowledgeType.GAP or max(types) > most:
            raise InvalidRequest(f"acknowledgements other than {AcknowledgeType.GAP.value} to {most.value}")
        if AcknowledgeType.RENEW in types and not is_renew_ack:
            raise InvalidRequest("a renewal in a request that does not renew")
        last_offset = last


def _forgotten(request: ShareFetchRequest) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]


def _rotated(named: list[tuple[TopicIdPartition, str]], epoch: int) -> list[tuple[TopicIdPartition, str]]:
    """Another partition is the first in each request of a session, so that each gets its share of the records."""
    first = epoch % len(named) if epoch > 0 else 0
    return named[first:] + named[:first]


def _by_topic(found: Mapping[TopicIdPartition, T]) -> dict[bytes, list[T]]:
    topics: dict[bytes, list[T]] = {}
    for key, of_partition in found.items():
        topics.setdefault(key.topic_id, []).append(of_partition)
    return topics


def _empty(key: TopicIdPartition) -> FetchAnswer:
    return FetchAnswer(
        partition_index=key.partition,
        acknowledge_error_code=ErrorCode.NONE,
        records=b"",
        acquired_records=[],
    )


def _said_of(error: Exception) -> str | None:
    return str(error) or None
