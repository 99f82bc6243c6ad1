"""The live groups of a partition, and the session timeouts of their members (Kafka's DelayedHeartbeat)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from broker.coordinators.group.classic_group import ClassicGroup
from broker.coordinators.group.events import GroupEvents
from broker.coordinators.group.image import GroupImage
from broker.coordinators.group.member import Member
from broker.coordinators.group.requests import Joined, Synced
from broker.runtime.timing_wheel import TimingWheel
from protocol.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long the first join of a member may wait. The member's connection is not read meanwhile, so the broker does not
see it close: without this limit a member that is gone would stay for ever."""


class SessionTimers:
    """The groups with members, pending member ids or a round. All state of the other groups is in the image."""

    def __init__(
        self,
        image: GroupImage,
        *,
        wheel: TimingWheel,
        events: GroupEvents,
        member_is_silent: Callable[[ClassicGroup, Member], None],
        pending_is_silent: Callable[[ClassicGroup, str], None],
    ) -> None:
        self._image = image
        self._wheel = wheel
        self._events = events
        self._member_is_silent = member_is_silent
        self._pending_is_silent = pending_is_silent
        self._groups: dict[str, ClassicGroup] = {}

    def group_ids(self) -> Iterator[str]:
        """The ids of the live groups."""
        return iter(self._groups)

    def live(self, group_id: str) -> ClassicGroup | None:
        """The group, if it is live."""
        return self._groups.get(group_id)

    def find(self, group_id: str) -> ClassicGroup | None:
        """The group as it is now; None if it is neither live nor in the image."""
        group = self._groups.get(group_id)
        if group is None and self._image.exists(group_id):
            group = ClassicGroup(group_id, self._image)
        return group

    def load(self) -> list[ClassicGroup]:
        """Make the groups whose records name members. Each member's session begins now."""
        for group_id, metadata in self._image.groups.items():
            if metadata.members:
                group = self._groups[group_id] = ClassicGroup(group_id, self._image)
                for member in group.members.values():
                    self.hear_of(group, member)
        return list(self._groups.values())

    def adopt(self, group_id: str) -> ClassicGroup:
        """Make a group live whose record is replayed. Each member's session begins now."""
        group = self._groups[group_id] = ClassicGroup(group_id, self._image)
        for member in group.members.values():
            self.hear_of(group, member)
        return group

    def unload(self, code: ErrorCode) -> None:
        """Drop all groups: parked replies get ``code``, and all alarms are cancelled."""
        for group_id in tuple(self._groups):
            self.drop(group_id, code)

    def drop(self, group_id: str, code: ErrorCode) -> None:
        """Drop a group, if it is live: its parked replies get ``code``, and its alarms are cancelled."""
        group = self._groups.pop(group_id, None)
        if group is None:
            return
        group.stop_alarms()
        group.round = None
        for member_id in tuple(group.pending):
            self.forget_pending(group, member_id)
        for member in tuple(group.members.values()):
            group.remove(member)
            self._dismiss(group, member, code, member.member_id)

    def release(self, group: ClassicGroup) -> None:
        """Drop the group if it is idle: called when a member has gone or a round has ended."""
        if group.is_idle:
            self._groups.pop(group.group_id, None)

    # Members ----------------------------------------------------------------------------------------------------------

    def arrive(self, group: ClassicGroup, member: Member, protocol_type: str) -> None:
        """Add a new member to the group. Its first join will be parked."""
        self._groups[group.group_id] = group
        member.is_new = True
        group.add(member, protocol_type)
        self._set_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)

    def hear_of(self, group: ClassicGroup, member: Member) -> None:
        """Begin the member's session anew: it has sent a request, or has been answered."""
        self._set_session(group, member, member.session_timeout_ms)

    def depart(self, group: ClassicGroup, member: Member, why: str) -> None:
        """Remove a member. Its parked requests are answered with UNKNOWN_MEMBER_ID: if the client still runs, it joins
        again as a new member."""
        group.remove(member)
        self._dismiss(group, member, ErrorCode.UNKNOWN_MEMBER_ID, "")
        self._events.member_removed(group.group_id, member.member_id, why)

    def replace(self, group: ClassicGroup, member: Member, by: Member) -> None:
        """Give a static member another member id. Parked requests with the old id are answered FENCED_INSTANCE_ID."""
        group.replace(member, by)
        self._dismiss(group, member, ErrorCode.FENCED_INSTANCE_ID, member.member_id)
        self.hear_of(group, by)

    def _dismiss(self, group: ClassicGroup, member: Member, error: ErrorCode, member_id: str) -> None:
        if member.session is not None:
            member.session.cancel()
        group.answer_join(member, Joined(error=error, member_id=member_id))
        group.answer_sync(member, Synced(error=error))

    def _set_session(self, group: ClassicGroup, member: Member, timeout_ms: int) -> None:
        if member.session is not None:
            member.session.cancel()
        member.session = self._wheel.add_after(timeout_ms, partial(self._member_is_silent, group, member))

    # Pending member ids -----------------------------------------------------------------------------------------------

    def expect(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """A client was given a member id and has to join again with it, within ``timeout_ms``."""
        self._groups[group.group_id] = group
        group.pending[member_id] = self._wheel.add_after(timeout_ms, partial(self._pending_is_silent, group, member_id))

    def forget_pending(self, group: ClassicGroup, member_id: str) -> None:
        """Drop a pending member id: it has joined, has left, or its time is over."""
        group.pending.pop(member_id).cancel()
