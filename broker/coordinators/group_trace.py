"""What happens to groups, as an operator reads it in the log, and counted."""

import logging
from collections import Counter
from typing import Final

log = logging.getLogger(__name__)

LONGEST_SHOWN: Final = 100
"""Characters of a name that a client thinks up: it may have thought up 32,767."""


class GroupTrace:
    """One line an event. How many there are is up to the clients, so the logger is limited
    (`broker.request.line_limit`). A `broker.coordinators.group.events.GroupEvents`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """How often each of them has happened since the start, by the name of its function."""

    def rebalance_began(self, group_id: str, generation: int, members: int, why: str) -> None:
        """The group waits for its members to join."""
        self.counts["rebalance_began"] += 1
        log.info(
            "Preparing to rebalance group %s with old generation %d (%d members): %s",
            _shown(group_id),
            generation,
            members,
            _shown(why),
        )

    def generation_formed(self, group_id: str, generation: int, protocol: str, members: int, waited_ms: int) -> None:
        """Its members have joined."""
        self.counts["generation_formed"] += 1
        log.info(
            "Stabilized group %s generation %d with %d members and protocol %s, %d ms after the last one had joined",
            _shown(group_id),
            generation,
            members,
            _shown(protocol),
            waited_ms,
        )

    def assignment_stored(self, group_id: str, generation: int, members: int) -> None:
        """The leader's assignment stands."""
        self.counts["assignment_stored"] += 1
        log.info(
            "Assignment received from the leader of group %s for generation %d with %d members",
            _shown(group_id),
            generation,
            members,
        )

    def group_emptied(self, group_id: str, generation: int) -> None:
        """The last member has gone."""
        self.counts["group_emptied"] += 1
        log.info("Group %s with generation %d is now empty", _shown(group_id), generation)

    def member_removed(self, group_id: str, member_id: str, why: str) -> None:
        """A member counts no more."""
        self.counts["member_removed"] += 1
        log.info("Member %s of group %s is removed: %s", _shown(member_id), _shown(group_id), _shown(why))

    def member_fenced(self, group_id: str, instance_id: str, member_id: str) -> None:
        """Another process has taken its place."""
        self.counts["member_fenced"] += 1
        log.info(
            "Member %s of group %s is fenced: another one has come as instance %s",
            _shown(member_id),
            _shown(group_id),
            _shown(instance_id),
        )

    def offsets_expired(self, group_id: str, offsets: int) -> None:
        """Their retention was over."""
        self.counts["offsets_expired"] += 1
        log.info("%d offsets of group %s have expired", offsets, _shown(group_id))

    def group_removed(self, group_id: str, why: str) -> None:
        """There is no such group any more."""
        self.counts["group_removed"] += 1
        log.info("Group %s is removed: %s", _shown(group_id), why)

    def write_failed(self, group_id: str, what: str, error: str) -> None:
        """It is tried again."""
        self.counts["write_failed"] += 1
        log.warning("Group %s: %s could not be written, and will be again: %s", _shown(group_id), what, error)


def _shown(name: str) -> str:
    return name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}… ({len(name)} characters)"
