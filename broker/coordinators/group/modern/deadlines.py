"""MemberDeadlines: a member that misses a deadline is removed from its group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from broker.coordinators.group.modern.group import GroupWithTargets, ModernMember
from broker.coordinators.group.modern.kinds import Context
from broker.coordinators.group.modern.steps import Step, nobody
from broker.coordinators.group.modern.timers import Deadline, MemberTimers
from broker.coordinators.group.records import GroupResult

REMOVED_AGAIN_AFTER_MS: Final = 500
"""After how long the removal of a member is tried again whose records could not be written."""


class RevokingMember(ModernMember, Protocol):
    """A member that may have to give up what it has."""

    @property
    def rebalance_timeout_ms(self) -> int: ...
    @property
    def is_revoking(self) -> bool:
        """Whether it has to give something up, and has not acknowledged that yet."""


MemberT = TypeVar("MemberT", bound=RevokingMember)

GroupT = TypeVar("GroupT", bound=GroupWithTargets[Any, Any])


class MemberDeadlines(Generic[GroupT, MemberT]):
    """The deadlines of all members of one kind of groups in a partition."""

    def __init__(
        self,
        around: Context,
        *,
        gives_up: str,
        find: Callable[[str], GroupT | None],
        fence: Callable[[GroupT, Sequence[MemberT], str], Step],
    ) -> None:
        """
        Args:
            around: Queues, wheel and clock.
            gives_up: What members give up, in words.
            find: The group with this id as it is now; None if it is gone.
            fence: Removes members from their group, and says why.
        """
        self._timers = MemberTimers(around.wheel, around.clock)
        self._queues = around.queues
        self._gives_up = gives_up
        self._find = find
        self._fence = fence

    def expect(
        self,
        group_id: str,
        member_id: str,
        deadline: Deadline,
        after_ms: int,
        why: str,
        *,
        is_missed: Callable[[MemberT], bool] = lambda _: True,
    ) -> None:
        """Remove the member if it misses the deadline, and if ``is_missed`` says so of the member as it is then."""

        def decision() -> GroupResult | None:
            group = self._find(group_id)
            member = None if group is None else group.members.get(member_id)
            if group is None or member is None or not is_missed(member):
                return None
            if self._timers.has(group_id, member_id, deadline):
                return None  # a request that waited before this decision has set the deadline anew
            step = self._fence(group, [member], why)
            return step._replace(on_written=[*step.on_written, removed]).result(nobody)

        def removed(stands: bool) -> None:
            if not stands and not self._timers.has(group_id, member_id, deadline):
                self.expect(group_id, member_id, deadline, REMOVED_AGAIN_AFTER_MS, why, is_missed=is_missed)

        self._timers.set(
            group_id, member_id, deadline, after_ms, lambda: self._queues.decide_unasked(group_id, decision)
        )

    def expect_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Begin the member's session anew."""
        if not self._timers.prolong(group_id, member_id, Deadline.SESSION, timeout_ms):
            self.expect(group_id, member_id, Deadline.SESSION, timeout_ms, "nothing has been heard of it too long")

    def expect_revocation(self, group_id: str, member: MemberT) -> None:
        """Remove the member if it is still in its epoch when its rebalance timeout is over."""
        self.expect(
            group_id,
            member.member_id,
            Deadline.REVOCATION,
            member.rebalance_timeout_ms,
            f"it has not given up {self._gives_up} within {member.rebalance_timeout_ms} ms",
            is_missed=lambda known: known.epoch == member.epoch,
        )

    def watch_revocation(self, group_id: str, member: MemberT, stands: bool) -> None:
        """Set or cancel the deadline of a member whose record stands."""
        if not stands:
            return
        if member.is_revoking:
            self.expect_revocation(group_id, member)
        else:
            self.cancel(group_id, member.member_id, Deadline.REVOCATION)

    def has(self, group_id: str, member_id: str, deadline: Deadline) -> bool:
        """Whether the member has to keep the deadline."""
        return self._timers.has(group_id, member_id, deadline)

    def cancel(self, group_id: str, member_id: str, *deadlines: Deadline) -> None:
        """The member has kept these deadlines; without any it is gone, and has no deadline any more."""
        self._timers.cancel(group_id, member_id, deadlines or tuple(Deadline))

    def cancel_all(self) -> None:
        """Cancel every deadline, for good: the groups are unloaded."""
        self._timers.cancel_all()
