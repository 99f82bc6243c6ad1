"""Reports: what members of streams groups tell of the state on their disks, again and again. It is in no record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from broker.coordinators.group.streams.assignor import NO_OFFSETS, TaskOffsets
from broker.coordinators.group.streams.requests import StreamsHeartbeat


class Report(NamedTuple):
    """What a member has told last."""

    offsets: TaskOffsets = NO_OFFSETS
    end_offsets: TaskOffsets = NO_OFFSETS


NO_REPORT: Final = Report()


class Reports:
    """The last reports of all members of streams groups in a partition."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, str], Report] = {}
        """By group id and member id."""

    def of(self, group_id: str, member_id: str) -> Report:
        """What the member has told."""
        return self._reports.get((group_id, member_id), NO_REPORT)

    def with_beat(self, heartbeat: StreamsHeartbeat, member_id: str) -> Report:
        """What the member has told, with what the heartbeat tells."""
        before = self.of(heartbeat.group_id, member_id)
        return Report(
            before.offsets if heartbeat.offsets is None else heartbeat.offsets,
            before.end_offsets if heartbeat.end_offsets is None else heartbeat.end_offsets,
        )

    def keep(self, group_id: str, member_id: str, report: Report, stands: bool) -> None:
        """Keep a report, if the records of the heartbeat that has brought it stand."""
        if stands and report != NO_REPORT:
            self._reports[group_id, member_id] = report

    def forget(self, group_id: str, member_id: str, stands: bool) -> None:
        """The member is gone, if the records that say so stand."""
        if stands:
            self._reports.pop((group_id, member_id), None)

    def offsets_in(self, group_id: str, told_now: Mapping[str, Report]) -> Callable[[str], TaskOffsets]:
        """Gives the offsets that members of the group have told, by member id. ``told_now``: with heartbeats whose
        records are not written yet."""
        return lambda member_id: (told_now.get(member_id) or self.of(group_id, member_id)).offsets
