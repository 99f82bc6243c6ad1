"""Events of groups: each is one line in the broker's log and is counted."""

import logging
from collections import Counter
from typing import Final

from broker.runtime.counted import counted

log = logging.getLogger(__name__)

LONGEST_SHOWN: Final = 100
"""Characters of a name that are logged. A client may choose names of 32,767 characters."""


class GroupTrace:
    """Logs one line for each event. Clients decide how many events there are, so the logger is limited
    (`broker.request.line_limit`). Implements `broker.coordinators.group.events.GroupEvents`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """How often each event has happened since the start, by the name of its method."""

    def rebalance_began(self, group_id: str, generation: int, members: int, why: str) -> None:
        """The group waits for its members to join."""
        self.counts["rebalance_began"] += 1
        log.info(
            "Group %s rebalances, generation %d of %s ends: %s",
            _shown(group_id),
            generation,
            counted(members, "member"),
            _shown(why),
        )

    def generation_formed(self, group_id: str, generation: int, protocol: str, members: int, waited_ms: int) -> None:
        """The members of the new generation have joined."""
        self.counts["generation_formed"] += 1
        log.info(
            "Group %s forms generation %d of %s with protocol %s, %d ms after the last of them has joined",
            _shown(group_id),
            generation,
            counted(members, "member"),
            _shown(protocol),
            waited_ms,
        )

    def assignment_stored(self, group_id: str, generation: int, members: int) -> None:
        """The leader's assignment is stored in the log."""
        self.counts["assignment_stored"] += 1
        log.info(
            "Group %s is stable: the assignment of generation %d to %s is stored",
            _shown(group_id),
            generation,
            counted(members, "member"),
        )

    def group_emptied(self, group_id: str, generation: int) -> None:
        """The last member has left the group."""
        self.counts["group_emptied"] += 1
        log.info("Group %s is empty from generation %d on", _shown(group_id), generation)

    def member_removed(self, group_id: str, member_id: str, why: str) -> None:
        """A member is no longer in the group."""
        self.counts["member_removed"] += 1
        log.info("Member %s of group %s is removed: %s", _shown(member_id), _shown(group_id), _shown(why))

    def member_fenced(self, group_id: str, instance_id: str, member_id: str) -> None:
        """Another process has taken the place of a static member."""
        self.counts["member_fenced"] += 1
        log.info(
            "Member %s of group %s is fenced: another member has joined with instance id %s",
            _shown(member_id),
            _shown(group_id),
            _shown(instance_id),
        )

    def offsets_expired(self, group_id: str, offsets: int) -> None:
        """Offsets of the group were deleted because their retention was over."""
        self.counts["offsets_expired"] += 1
        log.info("the retention of %s of group %s is over", counted(offsets, "offset"), _shown(group_id))

    def group_removed(self, group_id: str, why: str) -> None:
        """The group no longer exists."""
        self.counts["group_removed"] += 1
        log.info("Group %s is removed: %s", _shown(group_id), why)

    def write_failed(self, group_id: str, what: str, error: str) -> None:
        """A record of the group could not be written; the write is tried again."""
        self.counts["write_failed"] += 1
        log.warning("Group %s: %s could not be written, the write will be repeated: %s", _shown(group_id), what, error)


def _shown(name: str) -> str:
    return name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}… ({len(name)} characters)"
