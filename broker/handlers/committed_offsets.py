"""OffsetCommit, OffsetFetch and OffsetDelete: how far a group has read (API keys 8, 9 and 47; KIP-447, KIP-709)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from broker.coordinators.group.requests import NO_GENERATION, Commit, FetchedOffset, TopicPartitionName
from broker.coordinators.group_coordinator import Groups
from broker.handlers.offset_topics import OffsetTopics, PartitionErrors, TopicKey, merge
from broker.metadata.cache import MetadataCache
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import Fault, GroupAuthorizationFailed, MemberRefused
from broker.runtime.clock import Clock
from protocol.errors import ErrorCode
from protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.schema import NO_UUID
from storage.sentinels import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP

TOPIC_IDS_SINCE_VERSION: Final = 10
"""Of OffsetCommit and of OffsetFetch."""

GROUP_ID_NOT_FOUND_SINCE_VERSION: Final = 9
"""Of OffsetCommit; before, a generation of no group is an illegal one, and members of consumer groups of the newer
protocol can't commit."""

GROUP_ERROR_SINCE_VERSION: Final = 2
MANY_GROUPS_SINCE_VERSION: Final = 8
"""Of OffsetFetch."""

_LAST_TIMESTAMP: Final = 0x7FFF_FFFF_FFFF_FFFF


class _FetchedTopic(NamedTuple):
    """A topic of an answer to OffsetFetch."""

    name: str
    topic_id: bytes
    offsets: Sequence[FetchedOffset]


class CommittedOffsetsHandler:
    """Looks topics up in the published image, and asks the coordinator of the group."""

    def __init__(self, groups: Groups, metadata: MetadataCache, clock: Clock) -> None:
        self._groups = groups
        self._metadata = metadata
        self._topics = OffsetTopics(metadata)
        self._clock = clock

    def offset_commit(self, request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse | None:
        """Commit the offsets of partitions that exist; the others have their errors beside them."""
        if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
            raise GroupAuthorizationFailed(f"{context.session.principal} may not read as group {request.group_id!r}")
        expire_timestamp = self._expire_timestamp(request.retention_time_ms)
        by_topic = self._topics.split(
            request.topics, context, by_id=_goes_by_id(context), expire_timestamp=expire_timestamp
        )
        if not by_topic.taken:
            return _commit_answer(by_topic.refused.items())

        def committed(errors: Iterable[ErrorCode]) -> None:
            context.respond(_commit_answer(by_topic.merge(errors)))

        commit = Commit(
            group_id=request.group_id,
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            offsets=by_topic.offsets,
            knows_member_epochs=context.api_version >= GROUP_ID_NOT_FOUND_SINCE_VERSION,
            unknown_group_error=(
                ErrorCode.GROUP_ID_NOT_FOUND
                if context.api_version >= GROUP_ID_NOT_FOUND_SINCE_VERSION
                else ErrorCode.ILLEGAL_GENERATION
            ),
        )
        try:
            coordinator = self._groups.of(request.group_id)
        except Fault as fault:
            committed([fault.code] * len(commit.offsets))
        else:
            coordinator.write(coordinator.shard.commit(commit, committed))
        return None

    def offset_fetch(self, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        """Tell what is committed; for what is not, that there is nothing."""
        version = context.api_version
        if version >= MANY_GROUPS_SINCE_VERSION:
            return OffsetFetchResponse(
                groups=[self._fetch_group(asked, request.require_stable, context) for asked in request.groups]
            )
        asked = request.topics
        topics = None if asked is None else [(topic.name, NO_UUID, topic.partition_indexes) for topic in asked]
        try:
            fetched = self._fetch(request.group_id, topics, request.require_stable, context)
        except Fault as fault:
            if version < GROUP_ERROR_SINCE_VERSION:
                raise
            return OffsetFetchResponse(error_code=fault.code)
        return OffsetFetchResponse(topics=[_fetch_answer(topic) for topic in fetched])

    def offset_delete(self, request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse | None:
        """Delete the offsets of partitions that exist; the others have their errors beside them."""
        group_id = request.group_id
        if not context.may(Operation.DELETE, ResourceType.GROUP, group_id):
            raise GroupAuthorizationFailed(f"{context.session.principal} may not delete offsets of group {group_id!r}")
        coordinator = self._groups.of(group_id)
        refused: dict[TopicKey, PartitionErrors] = {}
        taken: list[tuple[TopicKey, list[int]]] = []
        for topic in request.topics:
            key = topic.name, NO_UUID
            try:
                known = self._topics.topic(*key, context, by_id=False)
            except Fault as fault:
                refused.setdefault(key, []).extend((one.partition_index, fault.code) for one in topic.partitions)
                continue
            found = []
            for one in topic.partitions:
                if known.partition(one.partition_index) is None:
                    unknown = one.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    refused.setdefault(key, []).append(unknown)
                else:
                    found.append(one.partition_index)
            if found:
                taken.append((key, found))

        def deleted(error: ErrorCode, errors: Iterable[ErrorCode]) -> None:
            if error is not ErrorCode.NONE:
                context.respond(OffsetDeleteResponse(error_code=error))
                return
            in_order = iter(errors)
            told = [(key, [(index, next(in_order)) for index in found]) for key, found in taken]
            context.respond(_delete_answer(merge(refused, told)))

        # Asked for nothing that exists, the coordinator still says whether there is such a group.
        partitions = [TopicPartitionName(name, index) for (name, _), found in taken for index in found]
        coordinator.write(coordinator.shard.delete_offsets(group_id, partitions, deleted))
        return None

    # Parts

    def _fetch_group(
        self, asked: OffsetFetchRequest.Group, require_stable: bool, context: RequestContext
    ) -> OffsetFetchResponse.Group:
        topics = asked.topics
        wanted = None if topics is None else [(one.name, one.topic_id, one.partition_indexes) for one in topics]
        try:
            fetched = self._fetch(asked.group_id, wanted, require_stable, context, asked.member_id, asked.member_epoch)
        except Fault as fault:
            return OffsetFetchResponse.Group(group_id=asked.group_id, topics=[], error_code=fault.code)
        return OffsetFetchResponse.Group(
            group_id=asked.group_id, topics=[_group_fetch_answer(topic) for topic in fetched]
        )

    def _fetch(
        self,
        group_id: str,
        asked: Sequence[tuple[str, bytes, Sequence[int]]] | None,
        require_stable: bool,
        context: RequestContext,
        member_id: str | None = None,
        member_epoch: int = NO_GENERATION,
    ) -> list[_FetchedTopic]:
        """What a group has committed for topics, or for all (None); those of which nothing can be told come last.

        Raises what says that nobody answers for the group, or not to this client, or not to this member in this epoch.
        """
        if not context.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            raise GroupAuthorizationFailed(f"{context.session.principal} may not see group {group_id!r}")
        shard = self._groups.of(group_id).shard
        if (refusal := shard.check_fetch(group_id, member_id, member_epoch)) is not ErrorCode.NONE:
            raise MemberRefused(refusal)
        if asked is None:
            return list(self._visible(shard.fetch(group_id, None, require_stable=require_stable), context))
        seen: list[tuple[str, bytes, Sequence[int]]] = []
        failed: list[_FetchedTopic] = []
        for name, topic_id, partitions in asked:
            try:
                by_id = _goes_by_id(context)
                topic = self._topics.name(name, topic_id, Operation.DESCRIBE, context, by_id=by_id)
                seen.append((topic, topic_id, partitions))
            except Fault as fault:
                failed.append(_failed(name, topic_id, partitions, fault.code))
        wanted = [TopicPartitionName(name, index) for name, _, partitions in seen for index in partitions]
        fetched = iter(shard.fetch(group_id, wanted, require_stable=require_stable))
        return [
            _FetchedTopic(name, topic_id, list(islice(fetched, len(partitions)))) for name, topic_id, partitions in seen
        ] + failed

    def _visible(self, fetched: Iterable[FetchedOffset], context: RequestContext) -> Iterator[_FetchedTopic]:
        """By topic, without those that the client may not see, and where topics go by id, those that are gone."""
        by_topic: dict[str, list[FetchedOffset]] = {}
        for one in fetched:
            by_topic.setdefault(one.topic, []).append(one)
        for name, offsets in by_topic.items():
            known = self._metadata.image.topics.by_name.get(name)
            if (known is not None or not _goes_by_id(context)) and context.may(
                Operation.DESCRIBE, ResourceType.TOPIC, name
            ):
                yield _FetchedTopic(name, NO_UUID if known is None else known.topic_id, offsets)

    def _expire_timestamp(self, retention_time_ms: int) -> int:
        if retention_time_ms == NO_TIMESTAMP:
            return NO_TIMESTAMP
        return min(self._clock.now_ms() + retention_time_ms, _LAST_TIMESTAMP)


def _goes_by_id(context: RequestContext) -> bool:
    return context.api_version >= TOPIC_IDS_SINCE_VERSION


def _commit_answer(topics: Iterable[tuple[TopicKey, PartitionErrors]]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.Topic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitResponse.Topic.Partition(partition_index=index, error_code=code)
                    for index, code in errors
                ],
            )
            for (name, topic_id), errors in topics
        ]
    )


def _delete_answer(topics: Iterable[tuple[TopicKey, PartitionErrors]]) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponse.Topic(
                name=name,
                partitions=[
                    OffsetDeleteResponse.Topic.Partition(partition_index=index, error_code=code)
                    for index, code in errors
                ],
            )
            for (name, _), errors in topics
        ]
    )


def _failed(name: str, topic_id: bytes, partitions: Iterable[int], code: ErrorCode) -> _FetchedTopic:
    return _FetchedTopic(name, topic_id, [FetchedOffset(name, index, code, None) for index in partitions])


def _fetch_answer(topic: _FetchedTopic) -> OffsetFetchResponse.Topic:
    return OffsetFetchResponse.Topic(
        name=topic.name,
        partitions=[
            OffsetFetchResponse.Topic.Partition(
                partition_index=one.partition,
                committed_offset=NO_OFFSET if one.committed is None else one.committed.offset,
                committed_leader_epoch=NO_EPOCH if one.committed is None else one.committed.leader_epoch,
                metadata="" if one.committed is None else one.committed.metadata,
                error_code=one.error,
            )
            for one in topic.offsets
        ],
    )


def _group_fetch_answer(topic: _FetchedTopic) -> OffsetFetchResponse.Group.Topic:
    return OffsetFetchResponse.Group.Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponse.Group.Topic.Partition(
                partition_index=one.partition,
                committed_offset=NO_OFFSET if one.committed is None else one.committed.offset,
                committed_leader_epoch=NO_EPOCH if one.committed is None else one.committed.leader_epoch,
                metadata="" if one.committed is None else one.committed.metadata,
                error_code=one.error,
            )
            for one in topic.offsets
        ],
    )
