"""Kinds: the state machines of consumer, share and streams groups in one partition, each made when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, TypeGuard

from broker.coordinators.group.image import CONSUMER, SHARE, STREAMS
from broker.coordinators.group.membership import Membership
from broker.coordinators.group.modern.group import ModernGroup
from broker.coordinators.group.modern.kinds import Context, GroupsOfKind

if TYPE_CHECKING:
    from broker.coordinators.group.consumer.group import ConsumerGroup
    from broker.coordinators.group.consumer.groups import ConsumerGroups
    from broker.coordinators.group.consumer.migration import Migration
    from broker.coordinators.group.share.groups import ShareGroups
    from broker.coordinators.group.streams.groups import StreamsGroups
    from broker.coordinators.share.persister import SharePersister


class Kinds:
    """Most partitions have classic groups only, and most brokers no group of some kind: the modules of a kind are
    imported with its first record or request."""

    def __init__(self, context: Context, classic: Membership, persister: Callable[[], SharePersister]) -> None:
        self._context = context
        self._classic = classic
        self._persister = persister

    @cached_property
    def migration(self) -> Migration:
        """The way of classic groups to consumer groups and back."""
        from broker.coordinators.group.consumer.groups import ConsumerGroups
        from broker.coordinators.group.consumer.migration import Migration

        return Migration(self._context, ConsumerGroups(self._context, self._classic), self._classic)

    @property
    def consumer(self) -> ConsumerGroups:
        """The consumer groups, which may come from classic groups and become such."""
        return self.migration.groups

    @cached_property
    def share(self) -> ShareGroups:
        """The share groups."""
        from broker.coordinators.group.share.groups import ShareGroups

        return ShareGroups(self._context, self._persister)

    @cached_property
    def streams(self) -> StreamsGroups:
        """The streams groups."""
        from broker.coordinators.group.streams.groups import StreamsGroups

        return StreamsGroups(self._context, self._classic)

    def of(self, kind: str) -> GroupsOfKind:
        """The state machine of the groups of a kind."""
        if kind == CONSUMER:
            return self.consumer
        return self.share if kind == SHARE else self.streams

    def made(self) -> Iterator[GroupsOfKind]:
        """The state machines that there are; the others have no groups."""
        for kind, made in ((CONSUMER, "migration"), (SHARE, "share"), (STREAMS, "streams")):
            if made in self.__dict__:
                yield self.of(kind)


def is_consumer_group(group: ModernGroup) -> TypeGuard[ConsumerGroup]:
    """Whether the group is one of KIP-848."""
    return group.kind == CONSUMER
