"""Committed offsets: committing, fetching and deleting them.

Decisions read the replayed state. A commit that is being written is not in that state yet, and its record may be
before ours in the log. Where it would make a decision wrong, the decision reads the commits that are being written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

from broker.coordinators.group.classic_group import ClassicGroup, GroupState
from broker.coordinators.group.image import GroupImage
from broker.coordinators.group.kinds import Kinds
from broker.coordinators.group.membership import Membership
from broker.coordinators.group.offset_table import PartitionKey
from broker.coordinators.group.records import GroupResult, offset_record, offset_tombstone
from broker.coordinators.group.requests import NO_GENERATION, Commit, FetchedOffset, OffsetToCommit, TopicPartitionName
from broker.coordinators.group.settings import GroupSettings
from broker.coordinators.group.stats import GroupStats
from broker.coordinators.group.subscription import CONSUMER_PROTOCOL
from broker.coordinators.result import once
from broker.coordinators.write_errors import client_error_of
from broker.runtime.clock import Clock
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord
from protocol.schema import NO_UUID


class Offsets:
    """The requests about offsets, for the groups of one partition."""

    def __init__(
        self,
        image: GroupImage,
        membership: Membership,
        kinds: Kinds,
        *,
        settings: GroupSettings,
        clock: Clock,
        stats: GroupStats,
    ) -> None:
        self._image = image
        self._membership = membership
        self._kinds = kinds
        self._settings = settings
        self._clock = clock
        self._stats = stats
        self._under_way: dict[str, list[Commit]] = {}
        """Commits that are being written, by group id; also those whose clients have been answered since it takes
        long."""

    def commit(self, request: Commit, reply: Callable[[Sequence[ErrorCode]], None]) -> GroupResult | None:
        """Write the offsets of a request in one batch, without the offsets whose metadata is too long.

        Offsets in a transaction are pending until the transaction's marker is replayed.
        """
        group = self._classic(request.group_id)
        refusal = self._refusal(request, group)
        if refusal is not ErrorCode.NONE:
            reply([refusal] * len(request.offsets))
            return None
        if group is not None and group.state is not GroupState.EMPTY and request.transaction is None:
            # As in Kafka, a commit in a transaction keeps no member alive: it comes from a producer.
            self._membership.touch(group, request.member_id)
        now_ms = self._clock.now_ms()
        most_characters = self._settings.offset_metadata_max_bytes
        errors: list[ErrorCode] = []
        records: list[GroupRecord] = []
        for offset in request.offsets:
            if _characters(offset.metadata) > most_characters:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                errors.append(ErrorCode.NONE)
                records.append(offset_record(request.group_id, offset, now_ms))
        if not records:
            reply(errors)
            return None
        self._under_way.setdefault(request.group_id, []).append(request)

        def answer(error: ErrorCode) -> None:
            client_error = client_error_of(error)
            reply([client_error if each is ErrorCode.NONE else each for each in errors])

        answer_once = once(answer)

        def then(error: ErrorCode) -> None:
            self._settle(request)
            if error is ErrorCode.NONE:
                self._stats.committed_offsets += len(records)
            answer_once(error)

        return GroupResult(records, then, request.transaction, partial(answer_once, ErrorCode.REQUEST_TIMED_OUT))

    def _refusal(self, request: Commit, group: ClassicGroup | None) -> ErrorCode:
        if (modern := self._image.modern.get(request.group_id)) is not None:
            return self._kinds.of(modern.kind).check_commit(modern, request)
        if group is None:
            # A consumer that is no member may create a group by committing to it.
            return ErrorCode.NONE if request.generation <= NO_GENERATION else request.unknown_group_error
        return group.check_commit(request)

    def _classic(self, group_id: str) -> ClassicGroup | None:
        return None if group_id in self._image.modern else self._membership.find(group_id)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE if a client may read the group's offsets as this member; None as the id: as no member."""
        modern = self._image.modern.get(group_id)
        return (
            ErrorCode.NONE
            if modern is None
            else self._kinds.of(modern.kind).check_fetch(modern, member_id, member_epoch)
        )

    def _settle(self, request: Commit) -> None:
        left = [commit for commit in self._under_way[request.group_id] if commit is not request]
        if left:
            self._under_way[request.group_id] = left
        else:
            del self._under_way[request.group_id]

    def is_under_way(self, group_id: str) -> bool:
        """Whether a commit of the group is being written."""
        return group_id in self._under_way

    def fetch(
        self, group_id: str, partitions: Sequence[TopicPartitionName] | None, *, require_stable: bool
    ) -> list[FetchedOffset]:
        """The committed offsets of these partitions, or of all that have an offset. With ``require_stable``, the answer
        for a partition with an offset in an open transaction is UNSTABLE_OFFSET_COMMIT."""
        unstable = frozenset(self._image.pending.partitions(group_id) if require_stable else ())
        asked = self._image.offsets.partitions(group_id) if partitions is None else partitions
        return [
            FetchedOffset(topic, partition, ErrorCode.UNSTABLE_OFFSET_COMMIT, None)
            if (topic, partition) in unstable
            else FetchedOffset(topic, partition, ErrorCode.NONE, self._image.offsets.get(group_id, (topic, partition)))
            for topic, partition in asked
        ]

    def delete(
        self,
        group_id: str,
        partitions: Sequence[TopicPartitionName],
        reply: Callable[[ErrorCode, Sequence[ErrorCode]], None],
    ) -> GroupResult | None:
        """Delete the offsets of these partitions; offsets of topics that a member is subscribed to are kept."""
        refusal, is_read = self._readers(group_id)
        if refusal is not ErrorCode.NONE:
            reply(refusal, ())
            return None
        errors = []
        records = []
        known = set(self.known_partitions(group_id))
        for topic, partition in partitions:
            subscribed = is_read(topic)
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE)
            if not subscribed and (topic, partition) in known:
                records.append(offset_tombstone(group_id, topic, partition))
        if not records:
            reply(ErrorCode.NONE, errors)
            return None

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._stats.deleted_offsets += len(records)
                reply(ErrorCode.NONE, errors)
            else:
                reply(client_error_of(error), ())

        return GroupResult(records, then)

    def _readers(self, group_id: str) -> tuple[ErrorCode, Callable[[str], bool]]:
        """Why no offset of the group may be deleted by request, and whether a member reads a topic."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, _never_read
        if (modern := self._image.modern.get(group_id)) is not None:
            return self._kinds.of(modern.kind).check_delete_offsets(modern), modern.subscribes_to
        group = self._membership.find(group_id)
        if group is None or group.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND, _never_read
        if group.state is GroupState.EMPTY:
            return ErrorCode.NONE, _never_read
        if group.protocol_type != CONSUMER_PROTOCOL:
            return ErrorCode.NON_EMPTY_GROUP, _never_read
        topics = group.subscribed_topics()
        # Where the subscriptions can't be read, the members may read anything.
        return ErrorCode.NONE, lambda topic: topics is None or topic in topics

    def known_partitions(self, group_id: str) -> list[PartitionKey]:
        """The partitions with an offset that is committed, in an open transaction, or being written; each once."""
        committed = self._image.offsets.partitions(group_id)
        others = {
            *self._image.pending.partitions(group_id),
            *((offset.topic, offset.partition) for offset in self._offsets_under_way(group_id)),
        }
        return committed + list(others.difference(committed)) if others else committed

    def topic_id(self, group_id: str, partition: PartitionKey) -> bytes:
        """The id of the topic for which the newest offset of the partition was committed, zeros if it is not known."""
        for offset in self._offsets_under_way(group_id):
            if (offset.topic, offset.partition) == partition:
                return offset.topic_id
        pending = self._image.pending.newest(group_id, partition)
        committed = pending or self._image.offsets.get(group_id, partition)
        return NO_UUID if committed is None else committed.topic_id

    def groups(self) -> list[str]:
        """The ids of groups with an offset that is committed, in an open transaction, or being written."""
        return list(dict.fromkeys((*self._image.offsets.groups(), *self._image.pending.groups(), *self._under_way)))

    def _offsets_under_way(self, group_id: str) -> Iterator[OffsetToCommit]:
        return chain.from_iterable(commit.offsets for commit in reversed(self._under_way.get(group_id, ())))


def _never_read(topic: str) -> bool:
    return False


def _characters(text: str) -> int:
    """The length of a text as Kafka counts it: in units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
