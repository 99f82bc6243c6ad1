"""ShareGroupStates: the states that the share coordinator keeps for the share groups of a partition (KIP-932).

A state is begun with the subscription to its topic, or at other offsets by an administrator; it is deleted by an
administrator, or with its group or topic. The group's record says which states are begun, there and being deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from broker.coordinators.group.modern.group import NOTHING, Assignment
from broker.coordinators.group.modern.kinds import Context
from broker.coordinators.group.records import GroupResult
from broker.coordinators.group.share import records, states
from broker.coordinators.group.share.group import NamedPartitions, SharedStates, ShareGroup, StateTopics
from broker.coordinators.group.share.requests import (
    ChangedOffsets,
    ChangeReply,
    DeletedOffsets,
    DeletionReply,
    NewOffsets,
)
from broker.coordinators.share.persister import NO_START_OFFSET, SharePartitionKey, SharePersister
from broker.coordinators.write_errors import client_error_of
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord

FIRST_OFFSET: Final = 0
"""Where a partition begins that a topic gets while the group shares it already: nothing of it is left out."""


class ShareGroupStates:
    """Asks the share coordinator, and writes down what has become of it."""

    def __init__(self, around: Context, persister: Callable[[], SharePersister]) -> None:
        self._around = around
        self._queues = around.queues
        self._topics = around.topics
        self._clock = around.clock
        self._persister = persister
        self._asked: dict[str, dict[bytes, int]] = {}
        """When the share coordinator was asked to begin the states of a topic, in milliseconds of the monotonic clock;
        by group and topic id, for topics that are initialising."""

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._asked.pop(group_id, None)

    def begin(self, group: ShareGroup, names: Iterable[str], found: list[GroupRecord]) -> StateTopics:
        """The partitions of these topics for which the share coordinator is to be asked now; the record of that is put
        into ``found``."""
        topics = [topic for name in names if (topic := self._topics.of_name(name)) is not None]
        now_ms = self._clock.monotonic_ms()
        asked = self._asked.get(group.group_id, {})
        retry_ms = self._around.settings.share_initialize_retry_ms
        under_way = {topic_id for topic_id, asked_ms in asked.items() if now_ms - asked_ms < retry_ms}
        missing = states.uninitialized(group.states, topics, under_way)
        if missing:
            found.append(records.states(group.group_id, states.began(group.states, missing)))
            self._asked.setdefault(group.group_id, {}).update(dict.fromkeys(missing, now_ms))
        return missing

    def initialize(
        self,
        group_id: str,
        state_epoch: int,
        topics: StateTopics,
        starts: Mapping[tuple[bytes, int], int],
        reply: ChangeReply,
    ) -> None:
        """Have the states of partitions begun, each at its offset, and write down what has become of them."""
        keys = [SharePartitionKey(group_id, topic_id, index) for topic_id, index in starts]

        def ask(key: SharePartitionKey, then: Callable[[ErrorCode], None]) -> None:
            self._persister().initialize(key, state_epoch, starts[key.topic_id, key.partition], then)

        def done(codes: Mapping[SharePartitionKey, ErrorCode]) -> None:
            failed = {key[1:]: code for key, code in codes.items() if code is not ErrorCode.NONE}
            asked = self._asked.get(group_id)
            for topic_id in topics:
                if asked is not None:
                    asked.pop(topic_id, None)
            reply(ChangedOffsets(codes=failed))
            self._queues.decide_unasked(group_id, partial(self._initialized, group_id, topics, bool(failed)))

        _ask_all(keys, ask, done)

    def _initialized(self, group_id: str, topics: StateTopics, has_failed: bool) -> GroupResult | None:
        group = self._around.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return None
        if not has_failed:
            following = states.completed(group.states, topics)
        elif group.states is None:
            return None
        else:
            following = states.abandoned(group.states, topics)
        if following == group.states:
            return None
        return GroupResult([records.states(group_id, following)], lambda _: None)

    def forget_topics(self, group: ShareGroup) -> None:
        """Forget the states of topics that are gone."""
        if group.states is None or not self._gone(group.states):
            return
        group_id = group.group_id

        def decision() -> GroupResult | None:
            known = self._around.groups.get(group_id)
            if not isinstance(known, ShareGroup) or known.states is None or not (gone := self._gone(known.states)):
                return None
            return GroupResult([records.states(group_id, states.without(known.states, gone))], lambda _: None)

        self._queues.decide_unasked(group_id, decision)

    def _gone(self, known: SharedStates) -> set[bytes]:
        mentioned = {*known.initializing, *known.initialized, *known.deleting}
        return {topic_id for topic_id in mentioned if self._topics.of_id(topic_id) is None}

    # Administration --------------------------------------------------------------------------------------------------

    def initialized_partitions(self, group_id: str) -> Assignment:
        """The partitions with a state for the group; none if there is no such group."""
        group = self._around.groups.get(group_id)
        if not isinstance(group, ShareGroup) or group.states is None:
            return NOTHING
        return states.as_assignment(group.states.initialized)

    def alter_offsets(self, group_id: str, topics: Sequence[NewOffsets], reply: ChangeReply) -> GroupResult | None:
        """Let a group without members begin anew at other offsets. A group that does not exist is made."""
        known = self._around.groups.get(group_id)
        if known is not None and not isinstance(known, ShareGroup):
            reply(ChangedOffsets(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group."))
            return None
        group = ShareGroup(group_id) if known is None else known
        if group.member_count:
            reply(ChangedOffsets(ErrorCode.NON_EMPTY_GROUP, "The group is not empty."))
            return None
        begun: StateTopics = {
            topic.topic_id: NamedPartitions(topic.name, frozenset(topic.offsets)) for topic in topics if topic.offsets
        }
        starts = {(topic.topic_id, index): offset for topic in topics for index, offset in topic.offsets.items()}
        if not begun:
            reply(ChangedOffsets())
            return None

        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                reply(ChangedOffsets(client_error_of(error), "the records of the group could not be written"))
            else:
                self.initialize(group_id, group.epoch, begun, starts, reply)

        return GroupResult([records.states(group_id, states.began(group.states, begun))], then)

    def delete_offsets(self, group_id: str, names: Sequence[str], reply: DeletionReply) -> GroupResult | None:
        """Delete the states of topics of a group without members."""
        group = self._around.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            reply(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", {})
            return None
        if group.member_count:
            reply(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.", {})
            return None
        known = group.states
        if known is None:
            reply(ErrorCode.NONE, None, {})
            return None
        outcomes: dict[str, DeletedOffsets] = {}
        doomed: dict[bytes, NamedPartitions] = {}
        for name in names:
            topic = self._topics.of_name(name)
            if topic is None:
                outcomes[name] = DeletedOffsets(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            elif topic.topic_id in known.initialized:
                doomed[topic.topic_id] = NamedPartitions(name, known.initialized[topic.topic_id].partitions)
            elif topic.topic_id in known.deleting:
                doomed[topic.topic_id] = NamedPartitions(name, frozenset(range(topic.partitions)))
            else:
                why = "There is no offset information to delete."
                outcomes[name] = DeletedOffsets(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
        if not doomed:
            reply(ErrorCode.NONE, None, outcomes)
            return None
        following = states.deleting(known, {topic_id: topic.name for topic_id, topic in doomed.items()})

        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                reply(client_error_of(error), "the records of the group could not be written", {})
            else:
                self._delete_states(group_id, doomed, deleted)

        def deleted(codes: Mapping[bytes, ErrorCode]) -> None:
            for topic_id, topic in doomed.items():
                code = codes.get(topic_id, ErrorCode.NONE)
                why = None if code is ErrorCode.NONE else f"the states could not be deleted: {code.name}"
                outcomes[topic.name] = DeletedOffsets(code, why, topic_id)
            gone = [topic_id for topic_id in doomed if topic_id not in codes]
            decision = partial(self._forget_deleted, group_id, gone, finished)
            self._queues.decide_unasked(group_id, decision, refusal=finished)

        def finished(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                reply(ErrorCode.NONE, None, outcomes)
            else:
                reply(client_error_of(error), "the records of the group could not be written", {})

        return GroupResult([records.states(group_id, following)], then)

    def _forget_deleted(
        self, group_id: str, topic_ids: Collection[bytes], then: Callable[[ErrorCode], None]
    ) -> GroupResult | None:
        group = self._around.groups.get(group_id)
        if not topic_ids or not isinstance(group, ShareGroup) or group.states is None:
            then(ErrorCode.NONE)
            return None
        return GroupResult([records.states(group_id, states.deleted(group.states, topic_ids))], then)

    def delete_all(self, group_id: str, reply: Callable[[ErrorCode], None]) -> GroupResult | None:
        """Delete the states of a group that is about to be deleted. Whoever may not be deleted keeps them."""
        group = self._around.groups.get(group_id)
        if not isinstance(group, ShareGroup) or group.member_count or group.states is None:
            reply(ErrorCode.NONE)
            return None
        doomed = dict(states.everything(group.states))
        for topic_id in group.states.deleting:
            topic = self._topics.of_id(topic_id)
            if topic is not None:
                doomed[topic_id] = NamedPartitions(topic.name, frozenset(range(topic.partitions)))

        def deleted(codes: Mapping[bytes, ErrorCode]) -> None:
            reply(next(iter(codes.values()), ErrorCode.NONE))

        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                reply(client_error_of(error))
            else:
                self._delete_states(group_id, doomed, deleted)

        return GroupResult([records.states(group_id, states.all_deleting(group.states))], then)

    def _delete_states(
        self, group_id: str, topics: StateTopics, then: Callable[[Mapping[bytes, ErrorCode]], None]
    ) -> None:
        """Have states deleted; ``then`` gets the errors by topic id."""
        keys = [
            SharePartitionKey(group_id, topic_id, index)
            for topic_id, topic in topics.items()
            for index in sorted(topic.partitions)
        ]

        def done(codes: Mapping[SharePartitionKey, ErrorCode]) -> None:
            then({key.topic_id: code for key, code in codes.items() if code is not ErrorCode.NONE})

        _ask_all(keys, self._persister().delete, done)


def _ask_all(
    keys: Sequence[SharePartitionKey],
    ask: Callable[[SharePartitionKey, Callable[[ErrorCode], None]], None],
    then: Callable[[Mapping[SharePartitionKey, ErrorCode]], None],
) -> None:
    """Ask for each key, and call ``then`` with all codes."""
    codes: dict[SharePartitionKey, ErrorCode] = {}
    if not keys:
        then(codes)

    def answered(key: SharePartitionKey, code: ErrorCode) -> None:
        codes[key] = code
        if len(codes) == len(keys):
            then(codes)

    for key in keys:
        ask(key, partial(answered, key))


def starts_of(topics: StateTopics, known: Collection[bytes]) -> dict[tuple[bytes, int], int]:
    """Where new states begin: where the partition's leader decides, but at the first offset in a topic that the group
    has had before."""
    return {
        (topic_id, index): FIRST_OFFSET if topic_id in known else NO_START_OFFSET
        for topic_id, topic in topics.items()
        for index in sorted(topic.partitions)
    }
