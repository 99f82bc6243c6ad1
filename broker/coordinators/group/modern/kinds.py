"""GroupsOfKind: what the shard asks the state machine of one kind of groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from broker.coordinators.group.events import GroupEvents
from broker.coordinators.group.modern.group import ModernGroup
from broker.coordinators.group.modern.topics import TopicHashes, TopicsView
from broker.coordinators.group.queues import GroupQueues
from broker.coordinators.group.records import GroupResult
from broker.coordinators.group.requests import Commit, ListedGroup
from broker.coordinators.group.settings import GroupSettings
from broker.coordinators.group.stats import GroupStats
from broker.runtime.clock import Clock, Ids
from broker.runtime.timing_wheel import TimingWheel
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord

GroupConfigs = Callable[[str, str], Any]
"""The value in force of a config of a group: ``("orders-app", "consumer.session.timeout.ms")``. The value is within the
broker's limits."""


Resolve = Callable[[Sequence[str], Sequence[str], Callable[[Mapping[str, frozenset[str]] | None], None]], None]
"""Resolves regular expressions in a worker: the expressions, the names of all topics, and what gets the topics that
each expression matches (None: the worker has failed). An expression that is none matches nothing."""


class Context(NamedTuple):
    """What a state machine of groups is given."""

    groups: Mapping[str, ModernGroup]
    """The groups of the newer protocols in the image, of every kind. Only replayed records change them."""
    queues: GroupQueues
    topics: TopicsView
    hashes: TopicHashes
    configs: GroupConfigs
    resolve: Resolve
    settings: GroupSettings
    clock: Clock
    wheel: TimingWheel
    ids: Ids
    events: GroupEvents
    stats: GroupStats


class GroupsOfKind(Protocol):
    """A state machine of all groups of one kind in a partition. It is asked about groups of its kind only."""

    def loaded(self) -> None:
        """All records of the log are replayed: sessions begin now."""

    def unload(self, code: ErrorCode) -> None:
        """Cancel all alarms; parked replies get ``code``."""

    def replayed(self, group_id: str) -> None:
        """A record of the group has been replayed, also one that ends the group."""

    def topics_changed(self, names: Collection[str], *, are_new: bool) -> None:
        """Topics were created (``are_new``), deleted, or have got partitions or other racks."""

    def glance(self, group: ModernGroup) -> ListedGroup:
        """The group as ListGroups lists it."""

    def check_commit(self, group: ModernGroup, commit: Commit) -> ErrorCode:
        """NONE if the offsets may be committed."""

    def check_fetch(self, group: ModernGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE if the member may read committed offsets."""

    def check_delete_offsets(self, group: ModernGroup) -> ErrorCode:
        """NONE if offsets of topics that no member reads may be deleted by request."""

    def check_delete(self, group: ModernGroup) -> ErrorCode:
        """NONE if the group may be deleted by request."""

    def has_expiring_offsets(self, group: ModernGroup) -> bool:
        """Whether offsets of the group expire, and the group with its last offset once it has no members."""

    def tombstones(self, group: ModernGroup) -> list[GroupRecord]:
        """The tombstones of all records of the group, in Kafka's order; offsets are not among them."""

    def expire_members(self, group: ModernGroup, member: str | None) -> tuple[int, GroupResult | None]:
        """Remove all members, or the one with this member id or instance id, as if their sessions were over. Returns
        how many."""
