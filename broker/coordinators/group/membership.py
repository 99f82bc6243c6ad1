"""Who is in which group: joining, syncing, heartbeats and leaving, and the alarms that go with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from broker.clock import Clock, Ids
from broker.coordinators.change import Change
from broker.coordinators.group.classic_group import ClassicGroup
from broker.coordinators.group.events import GroupEvents
from broker.coordinators.group.image import GroupImage
from broker.coordinators.group.requests import Heartbeat, Join, JoinReply, LeavingMember, Left, Sync, SyncReply
from broker.coordinators.group.settings import GroupSettings
from broker.coordinators.group.stats import GroupStats
from broker.timing_wheel import TimingWheel
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord

GroupChange = Change[GroupRecord]


class Membership:
    """The live side of all groups of one partition."""

    def __init__(
        self,
        image: GroupImage,
        *,
        settings: GroupSettings,
        clock: Clock,
        wheel: TimingWheel,
        ids: Ids,
        events: GroupEvents,
        submit: Callable[[GroupChange], None],
        stats: GroupStats,
    ) -> None:
        raise NotImplementedError

    def find(self, group_id: str) -> ClassicGroup | None:
        """The group as it is now; None if neither the records nor anybody present knows it."""
        raise NotImplementedError

    def group_ids(self) -> Iterator[str]:
        """The groups that somebody is in, or has been handed an id for; they need not be in the records yet."""
        raise NotImplementedError

    def join(self, request: Join, reply: JoinReply) -> GroupChange | None:
        raise NotImplementedError

    def sync(self, request: Sync, reply: SyncReply) -> GroupChange | None:
        raise NotImplementedError

    def heartbeat(self, request: Heartbeat) -> ErrorCode:
        raise NotImplementedError

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], reply: Callable[[Left], None]
    ) -> GroupChange | None:
        raise NotImplementedError

    def touch(self, group: ClassicGroup, member_id: str) -> None:
        """A good commit shows that the member is alive."""
        raise NotImplementedError

    def removed(self, group_id: str) -> None:
        """The group's tombstone stands: pending ids are forgotten with it."""
        raise NotImplementedError

    def loaded(self) -> None:
        """Everything is replayed: who was a member has its session's time to show up."""
        raise NotImplementedError

    def unload(self, code: ErrorCode) -> None:
        """Nothing is known here any more: parked replies get ``code``, alarms are off."""
        raise NotImplementedError
