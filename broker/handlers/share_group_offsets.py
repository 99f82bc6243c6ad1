"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets (API keys 90 to 92; KIP-932)."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from broker.coordinators.end_offsets import EndOffsets
from broker.coordinators.group.share.requests import ChangedOffsets, DeletedOffsets, NewOffsets
from broker.coordinators.group_coordinator import Groups
from broker.coordinators.share.persister import (
    NO_START_OFFSET,
    NOT_COUNTED,
    SharePartitionKey,
    SharePersister,
    ShareState,
)
from broker.handlers.share_groups import check_share_groups
from broker.metadata.cache import MetadataCache
from broker.metadata.image.topics import TopicImage
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import Fault, GroupAuthorizationFailed, InvalidGroupId
from protocol.errors import ErrorCode
from protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from protocol.schema import NO_UUID
from storage.topic_partition import TopicPartition

AskedGroup = DescribeShareGroupOffsetsRequest.Group
Described = DescribeShareGroupOffsetsResponse.Group
Altered = AlterShareGroupOffsetsResponse.Response
Deleted = DeleteShareGroupOffsetsResponse.Response

NO_LAG: Final = -1

_UNKNOWN: Final = "This server does not host this topic-partition."


class _Wanted(NamedTuple):
    """A topic whose partitions are to be described."""

    name: str
    topic_id: bytes
    """No id: there is no such topic."""
    partitions: list[int]


class ShareGroupOffsetsHandler:
    """Reads states of share groups, and has them changed by the coordinators of the groups."""

    def __init__(
        self, groups: Groups, persister: SharePersister, end_offsets: EndOffsets, metadata: MetadataCache
    ) -> None:
        self._groups = groups
        self._persister = persister
        self._end_offsets = end_offsets
        self._metadata = metadata

    # DescribeShareGroupOffsets

    def describe_share_group_offsets(self, request: DescribeShareGroupOffsetsRequest, context: RequestContext) -> None:
        """Describe where groups begin, each with its own success or error."""
        check_share_groups(self._metadata)
        answers: dict[int, Described] = {}

        def described(place: int, answer: Described) -> None:
            answers[place] = answer
            if len(answers) == len(request.groups):
                groups = [answers[place] for place in range(len(answers))]
                context.respond(DescribeShareGroupOffsetsResponse(groups=groups))

        if not request.groups:
            context.respond(DescribeShareGroupOffsetsResponse(groups=[]))
        for place, asked in enumerate(request.groups):
            self._describe(asked, context, partial(described, place))

    def _describe(self, asked: AskedGroup, context: RequestContext, then: Callable[[Described], None]) -> None:
        group_id = asked.group_id
        answer = Described(group_id=group_id, topics=[])
        if not context.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            then(answer)
            return
        try:
            wanted, refused = self._wanted(asked, context)
        except Fault as fault:
            answer.error_code, answer.error_message = fault.code, str(fault)
            then(answer)
            return
        left = 1

        def done() -> None:
            nonlocal left
            left -= 1
            if not left:
                answer.topics += refused
                then(answer)

        for topic in wanted:
            partitions = [_unknown_partition(index, ErrorCode.NONE, None) for index in topic.partitions]
            answer.topics.append(Described.Topic(topic_name=topic.name, topic_id=topic.topic_id, partitions=partitions))
            found = self._metadata.image.topics.by_id.get(topic.topic_id)
            count = 0 if found is None else len(found.partitions)
            for of_partition in partitions:
                if not 0 <= of_partition.partition_index < count:
                    continue  # Kafka asks for half a minute in vain, and says the same
                left += 1
                key = SharePartitionKey(group_id, topic.topic_id, of_partition.partition_index)
                self._persister.summarize(key, 0, partial(self._summarized, topic.name, of_partition, done))
        done()

    def _wanted(self, asked: AskedGroup, context: RequestContext) -> tuple[list[_Wanted], list[Described.Topic]]:
        """The topics to be described, and the answers for those that the client may not see."""
        topics = self._metadata.image.topics
        if asked.topics is None:
            found = self._groups.of(asked.group_id).shard.initialized_partitions(asked.group_id)
            return [
                _Wanted(topic.name, topic_id, sorted(partitions))
                for topic_id, partitions in found.items()
                if (topic := topics.by_id.get(topic_id)) is not None
                and context.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
            ], []
        wanted: list[_Wanted] = []
        missing: list[_Wanted] = []
        refused: list[Described.Topic] = []
        for one in asked.topics:
            if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, one.topic_name):
                why = "Topic authorization failed."
                partitions = [
                    _unknown_partition(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, why) for index in one.partitions
                ]
                refused.append(Described.Topic(topic_name=one.topic_name, topic_id=NO_UUID, partitions=partitions))
                continue
            topic = topics.by_name.get(one.topic_name)
            if topic is None:
                missing.append(_Wanted(one.topic_name, NO_UUID, list(one.partitions)))
            else:
                wanted.append(_Wanted(one.topic_name, topic.topic_id, list(one.partitions)))
        return [*wanted, *missing], refused

    def _summarized(
        self,
        topic: str,
        answer: Described.Topic.Partition,
        done: Callable[[], None],
        code: ErrorCode,
        state: ShareState | None,
    ) -> None:
        if code is not ErrorCode.NONE or state is None:
            done()
            return
        answer.start_offset, answer.leader_epoch = state.start_offset, state.leader_epoch
        if state.start_offset == NO_START_OFFSET or state.delivery_complete_count == NOT_COUNTED:
            done()
            return
        done_with = state.start_offset + state.delivery_complete_count

        def found(code: ErrorCode, end_offset: int) -> None:
            if code is ErrorCode.NONE:
                answer.lag = end_offset - done_with
            else:
                # As in Kafka, the start offset is not told either.
                answer.start_offset = answer.leader_epoch = 0
                answer.error_code = code
                answer.error_message = f"the leader of the partition does not tell its end: {code.name}"
            done()

        self._end_offsets.find(TopicPartition(topic, answer.partition_index), found)

    # AlterShareGroupOffsets

    def alter_share_group_offsets(self, request: AlterShareGroupOffsetsRequest, context: RequestContext) -> None:
        """Let a group without members begin anew at other offsets. Raises Fault."""
        check_share_groups(self._metadata)
        if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
            raise GroupAuthorizationFailed(f"{context.session.principal} may not read in {request.group_id!r}")
        if not request.group_id:
            raise InvalidGroupId("a group without a name")
        answer = AlterShareGroupOffsetsResponse(responses=[])
        topics: list[NewOffsets] = []
        for asked in request.topics:
            topic = self._metadata.image.topics.by_name.get(asked.topic_name)
            code = ErrorCode.NONE
            if not context.may(Operation.READ, ResourceType.TOPIC, asked.topic_name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.responses.append(_altered(asked, topic, code))
            if code is ErrorCode.NONE and topic is not None:
                offsets = {
                    one.partition_index: one.start_offset
                    for one in asked.partitions
                    if 0 <= one.partition_index < len(topic.partitions)
                }
                topics.append(NewOffsets(topic.topic_id, topic.name, offsets))

        def changed(outcome: ChangedOffsets) -> None:
            if outcome.error is not ErrorCode.NONE:
                context.respond(
                    AlterShareGroupOffsetsResponse(
                        error_code=outcome.error, error_message=outcome.message, responses=[]
                    )
                )
                return
            for of_topic in answer.responses:
                for of_partition in of_topic.partitions:
                    code = outcome.codes.get((of_topic.topic_id, of_partition.partition_index))
                    if code is not None:
                        of_partition.error_code = code
                        of_partition.error_message = f"the state could not be changed: {code.name}"
            context.respond(answer)

        coordinator = self._groups.of(request.group_id)
        coordinator.write(coordinator.shard.alter_share_offsets(request.group_id, topics, changed))

    # DeleteShareGroupOffsets

    def delete_share_group_offsets(self, request: DeleteShareGroupOffsetsRequest, context: RequestContext) -> None:
        """Delete the states of topics of a group without members. Raises Fault."""
        check_share_groups(self._metadata)
        if not context.may(Operation.DELETE, ResourceType.GROUP, request.group_id):
            raise GroupAuthorizationFailed(f"{context.session.principal} may not delete {request.group_id!r}")
        if not request.group_id:
            raise InvalidGroupId("a group without a name")
        refused: list[Deleted] = []
        names: dict[str, None] = {}
        for topic in request.topics:
            if context.may(Operation.READ, ResourceType.TOPIC, topic.topic_name):
                names[topic.topic_name] = None
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(_deleted(topic.topic_name, DeletedOffsets(code, "Topic authorization failed.")))

        def deleted(error: ErrorCode, message: str | None, outcomes: Mapping[str, DeletedOffsets]) -> None:
            responses = _in_kafkas_order(names, outcomes)
            context.respond(
                DeleteShareGroupOffsetsResponse(
                    error_code=error,
                    error_message=message,
                    responses=[] if error is not ErrorCode.NONE else [*refused, *responses],
                )
            )

        coordinator = self._groups.of(request.group_id)
        coordinator.write(coordinator.shard.delete_share_offsets(request.group_id, list(names), deleted))


def _unknown_partition(index: int, code: ErrorCode, message: str | None) -> Described.Topic.Partition:
    return Described.Topic.Partition(
        partition_index=index,
        start_offset=NO_START_OFFSET,
        leader_epoch=0,
        lag=NO_LAG,
        error_code=code,
        error_message=message,
    )


def _altered(asked: AlterShareGroupOffsetsRequest.Topic, topic: TopicImage | None, code: ErrorCode) -> Altered:
    partitions: list[Altered.Partition] = []
    for one in asked.partitions:
        of_partition = code
        if code is ErrorCode.NONE and topic is not None and not 0 <= one.partition_index < len(topic.partitions):
            of_partition = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = None if of_partition is ErrorCode.NONE else _UNKNOWN
        if of_partition is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            message = "Topic authorization failed."
        partitions.append(
            Altered.Partition(partition_index=one.partition_index, error_code=of_partition, error_message=message)
        )
    topic_id = NO_UUID if topic is None else topic.topic_id
    return Altered(topic_name=asked.topic_name, topic_id=topic_id, partitions=partitions)


def _in_kafkas_order(names: Iterable[str], outcomes: Mapping[str, DeletedOffsets]) -> list[Deleted]:
    """Topics whose states are deleted come first."""
    found = [_deleted(name, outcomes[name]) for name in names if name in outcomes]
    return sorted(found, key=lambda one: one.error_code != ErrorCode.NONE)


def _deleted(name: str, outcome: DeletedOffsets) -> Deleted:
    return Deleted(topic_name=name, topic_id=outcome.topic_id, error_code=outcome.error, error_message=outcome.message)
