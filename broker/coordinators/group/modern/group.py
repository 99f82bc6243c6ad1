"""ModernGroup: the replayed state that consumer, share and streams groups have in common.

    group epoch        grows when members, subscriptions or topics change
    assignment epoch   the group epoch that the target assignments were computed for; behind the group epoch while a
                       new target is still to be computed
    member epoch       the assignment epoch that a member has reached, one member after another

Only ``replay…`` functions change the state. A group is made by any record of it, and goes with the tombstone of its
epoch record. Records may come in another order than the order in which they were written, since compaction leaves
of each key the last record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by topic id. No topic is without a partition."""

NOTHING: Final[Assignment] = MappingProxyType({})

FIRST_EPOCH: Final = 1
"""The epoch of a group before its first epoch record, and of its assignment, which is empty."""

LEAVES_EPOCH: Final = -1
"""The epoch with which a member leaves."""


class ModernMember(Protocol):
    """What the groups of all kinds know of a member. Immutable: a record replaces the member."""

    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def rack_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def previous_epoch(self) -> int: ...

    def is_at(self, assignment_epoch: int) -> bool:
        """Whether the member has all of its target assignment of this epoch, and nothing else."""


class SubscribedMember(ModernMember, Protocol):
    """A member that subscribes to topics."""

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """By name; what a regular expression adds does not count."""


MemberT = TypeVar("MemberT", bound=ModernMember)
SubscribedMemberT = TypeVar("SubscribedMemberT", bound=SubscribedMember)
TargetT = TypeVar("TargetT")


class ModernGroup(ABC):
    """A group of one of the newer protocols. The image knows no more of a group."""

    __slots__ = ("assignment_epoch", "assignment_timestamp", "epoch", "group_id", "is_gone", "metadata_hash")
    kind: ClassVar[str]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        """The hash of the subscribed topics when the epoch grew last (`topics`)."""
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp = 0
        """When the target assignment was computed, in milliseconds since 1970."""
        self.is_gone = False
        """The tombstone of the epoch record has been replayed: the image drops the group."""

    @abstractmethod
    def replay(self, key: Any, value: Any) -> None:
        """Apply a record of the group; None as the value: a tombstone."""

    def replay_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch, self.metadata_hash = epoch, metadata_hash

    def replay_gone(self) -> None:
        self.is_gone = True

    def replay_assignment_epoch(self, epoch: int, timestamp: int) -> None:
        self.assignment_epoch, self.assignment_timestamp = epoch, timestamp

    def subscribes_to(self, topic: str) -> bool:
        """Whether any member subscribes to the topic."""
        return False

    @property
    def member_count(self) -> int:
        """How many members the group has."""
        return 0


class GroupWithTargets(ModernGroup, Generic[MemberT, TargetT]):
    """A group whose members each have a target assignment."""

    __slots__ = ("_at_epoch", "members", "members_by_instance", "targets")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.members: dict[str, MemberT] = {}
        """By member id, in the order in which they came."""
        self.targets: dict[str, TargetT] = {}
        """The target assignment of each member, by member id."""
        self.members_by_instance: dict[str, str] = {}
        """Member ids of static members by instance id."""
        self._at_epoch: Counter[int] = Counter()
        """How many members are at which assignment epoch."""

    @property
    def member_count(self) -> int:
        """How many members the group has."""
        return len(self.members)

    def static_member(self, instance_id: str | None) -> MemberT | None:
        """The static member with this instance id."""
        if instance_id is None:
            return None
        return self.members.get(self.members_by_instance.get(instance_id, ""))

    @property
    def is_assigned(self) -> bool:
        """Whether every member is at the assignment epoch."""
        return self._at_epoch[self.assignment_epoch] == len(self.members)

    def replay_member(self, member: MemberT) -> None:
        """A record has made or changed the member."""
        self._replay_count(self.members.get(member.member_id), member)
        self.members[member.member_id] = member

    def replay_member_removed(self, member_id: str) -> None:
        """The tombstone of the member's metadata."""
        self._replay_count(self.members.pop(member_id, None), None)

    def replay_target(self, member_id: str, target: TargetT | None) -> None:
        """A member's target assignment, None for its tombstone."""
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def _replay_count(self, old: MemberT | None, new: MemberT | None) -> None:
        """Take a member's change over into what is counted of all members."""
        if old is not None:
            replay_subtract(self._at_epoch, _epochs_of(old))
            if old.instance_id is not None and self.members_by_instance.get(old.instance_id) == old.member_id:
                del self.members_by_instance[old.instance_id]
        if new is not None:
            self._at_epoch.update(_epochs_of(new))
            if new.instance_id is not None:
                self.members_by_instance[new.instance_id] = new.member_id


class GroupWithMembers(GroupWithTargets[SubscribedMemberT, Assignment]):
    """A group whose members are assigned partitions of topics: a consumer group or a share group."""

    __slots__ = ("subscribers",)

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.subscribers: Counter[str] = Counter()
        """How many members subscribe to each topic by its name."""

    def subscribes_to(self, topic: str) -> bool:
        """Whether any member subscribes to the topic."""
        return topic in self.subscribers

    def subscribed_topics(self) -> Collection[str]:
        """The names of all topics that any member subscribes to."""
        return self.subscribers.keys()

    def target(self, member_id: str) -> Assignment:
        """A member's target assignment."""
        return self.targets.get(member_id, NOTHING)

    def _replay_count(self, old: SubscribedMemberT | None, new: SubscribedMemberT | None) -> None:
        super()._replay_count(old, new)
        if old is not None:
            replay_subtract(self.subscribers, old.subscribed_topics)
        if new is not None:
            self.subscribers.update(new.subscribed_topics)


def _epochs_of(member: ModernMember) -> tuple[int, ...]:
    return (member.epoch,) if member.is_at(member.epoch) else ()


KeyT = TypeVar("KeyT")


def replay_subtract(counter: Counter[KeyT], keys: Iterable[KeyT]) -> None:
    """Count each of ``keys`` once less; a count of 0 is not kept."""
    for key in keys:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]


def by_epoch(partitions: Sequence[int], assignment_epochs: Sequence[int] | None, member_epoch: int) -> dict[int, int]:
    """Partitions of a record with their assignment epochs. Where the record has none, as before Kafka 4.3, the member's
    epoch stands for them."""
    if assignment_epochs and len(assignment_epochs) == len(partitions):
        return dict(zip(partitions, assignment_epochs, strict=True))
    return dict.fromkeys(partitions, member_epoch)


def partitions_by_topic(topics: Iterable[Any]) -> dict[bytes, frozenset[int]]:
    """The structs of a record or a request with ``topic_id`` and ``partitions`` as an assignment."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}
