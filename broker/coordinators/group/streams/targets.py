"""Target assignments of streams groups: what the assignor is asked, and the records of what its answer changes."""

from __future__ import annotations

from collections.abc import Callable

from broker.coordinators.group.streams.assignor import TaskOffsets, Worker, assign
from broker.coordinators.group.streams.group import StreamsGroup
from broker.coordinators.group.streams.member import NOTHING, StreamsMember, Tasks
from broker.coordinators.group.streams.records import assignment_epoch_record, target_record
from broker.coordinators.group.streams.topology import Configured
from protocol.records.group_metadata import GroupRecord


def new_targets(
    group: StreamsGroup,
    epoch: int,
    *,
    updated: StreamsMember | None,
    replaced: StreamsMember | None,
    configured: Configured,
    standbys: int,
    offsets_of: Callable[[str], TaskOffsets],
    now_ms: int,
) -> tuple[dict[str, Tasks], list[GroupRecord]]:
    """Compute all target assignments of an epoch. Without all of its topics a group has no tasks.

    Args:
        group: The group as it is replayed.
        epoch: The group epoch that the assignments are for.
        updated: A member that is new or changed, and is not replayed yet; None if there is none.
        replaced: The static member whose place ``updated`` takes; None if there is none.
        configured: The topology against the topics of the cluster.
        standbys: How many standby tasks each task with state gets.
        offsets_of: Gives what a member has told of the state on its disk.
        now_ms: Milliseconds since 1970, for the record.

    Returns:
        The target assignments by member id, and the records of all changes.
    """
    members = dict(group.members)
    before = dict(group.targets)
    if replaced is not None and updated is not None:
        del members[replaced.member_id]
        before[updated.member_id] = before.pop(replaced.member_id, NOTHING)
    if updated is not None:
        members[updated.member_id] = updated
    targets: dict[str, Tasks] = dict.fromkeys(members, NOTHING)
    if configured.is_ready:
        workers = {
            member_id: Worker(member.process_id, before.get(member_id, NOTHING), offsets_of(member_id))
            for member_id, member in members.items()
        }
        targets = assign(workers, list(configured.subtopologies.values()), standbys)
    records = [
        target_record(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if before.get(member_id) != target
    ]
    records.append(assignment_epoch_record(group.group_id, epoch, now_ms))
    return targets, records
