"""SharePartitionState: what the share coordinator knows of a share partition, and how a record changes it."""

from typing import Final, NamedTuple

from broker.coordinators.share.batches import combine
from broker.coordinators.share.persister import NO_START_OFFSET, StateBatch
from protocol.records.share_state import ShareSnapshotValue, ShareUpdateValue
from storage.sentinels import NO_EPOCH

NEVER_INITIALIZED: Final = 0
"""The state epoch of a share partition of which an update has been found and no snapshot."""


class SharePartitionState(NamedTuple):
    """A share partition as of its last record. Fields without a comment are those of `ShareState`."""

    snapshot_epoch: int
    """How many snapshots the state has had before."""
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int
    """When the last snapshot was written that was no cold one."""
    written_ms: int
    """When the last snapshot was written."""
    snapshot_offset: int
    """Of the last snapshot in ``__share_group_state``; what is before it is superseded."""
    fenced_leader_epoch: int
    """The highest leader epoch that has been seen: lower ones are fenced. Initialising does not take it back."""
    fenced_state_epoch: int
    """The highest state epoch that has been seen."""
    updates: int
    """Updates since a snapshot was last due."""

    @property
    def is_cold_snapshot(self) -> bool:
        """Whether the last snapshot was written because nothing happened."""
        return self.created_ms != self.written_ms


def after_snapshot(
    before: SharePartitionState | None, value: ShareSnapshotValue, offset: int, *, updates_per_snapshot: int
) -> SharePartitionState:
    """The state after a snapshot at ``offset``."""
    updates = 0 if before is None else before.updates
    return SharePartitionState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=_batches(value),
        created_ms=value.create_timestamp,
        written_ms=value.write_timestamp,
        snapshot_offset=offset,
        fenced_leader_epoch=max(NO_EPOCH if before is None else before.fenced_leader_epoch, value.leader_epoch),
        fenced_state_epoch=max(NO_EPOCH if before is None else before.fenced_state_epoch, value.state_epoch),
        # As in Kafka only the snapshot that was due begins a new count.
        updates=0 if updates >= updates_per_snapshot else updates,
    )


def after_update(before: SharePartitionState | None, value: ShareUpdateValue, offset: int) -> SharePartitionState:
    """The state after an update at ``offset``."""
    if before is None:
        # Its snapshot is lost. What the update says is all that is known.
        return SharePartitionState(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=NEVER_INITIALIZED,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            batches=_batches(value),
            created_ms=0,
            written_ms=0,
            snapshot_offset=offset,
            fenced_leader_epoch=value.leader_epoch,
            fenced_state_epoch=NO_EPOCH,
            updates=1,
        )
    start_offset = before.start_offset if value.start_offset == NO_START_OFFSET else value.start_offset
    return before._replace(
        leader_epoch=before.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=combine(before.batches, _batches(value), start_offset),
        fenced_leader_epoch=max(before.fenced_leader_epoch, value.leader_epoch),
        updates=before.updates + 1,
    )


def _batches(value: ShareSnapshotValue | ShareUpdateValue) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in value.state_batches
    )
