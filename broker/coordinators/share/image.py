"""ShareImage: the replayed state of the share partitions of one partition of ``__share_group_state``."""

from broker.coordinators.share.persister import SharePartitionKey
from broker.coordinators.share.state import SharePartitionState, after_snapshot, after_update
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.share_state import ShareSnapshotValue, ShareStateRecord, ShareUpdateKey, ShareUpdateValue


class ShareImage:
    """What the log says. It changes in `replay` only."""

    __slots__ = ("_last_snapshot_offset", "_updates_per_snapshot", "by_key")

    def __init__(self, updates_per_snapshot: int) -> None:
        """``updates_per_snapshot``: after so many updates of a share partition a snapshot is due."""
        self._updates_per_snapshot = updates_per_snapshot
        self.by_key: dict[SharePartitionKey, SharePartitionState] = {}
        self._last_snapshot_offset = 0
        """Of the last snapshot or tombstone of any share partition."""

    def replay(self, record: ShareStateRecord | UnknownRecord, offset: int) -> None:
        """Apply the record at ``offset`` of the log."""
        if isinstance(record, UnknownRecord):
            return
        key = SharePartitionKey(record.key.group_id, record.key.topic_id, record.key.partition)
        value, before = record.value, self.by_key.get(key)
        if isinstance(value, ShareUpdateValue):
            self.by_key[key] = after_update(before, value, offset)
            return
        if isinstance(record.key, ShareUpdateKey):
            return  # a tombstone of an update, which nobody writes and which says nothing
        self._last_snapshot_offset = offset
        if isinstance(value, ShareSnapshotValue):
            self.by_key[key] = after_snapshot(before, value, offset, updates_per_snapshot=self._updates_per_snapshot)
        else:
            self.by_key.pop(key, None)

    @property
    def needed_since(self) -> int:
        """All records below this offset are superseded."""
        return min((state.snapshot_offset for state in self.by_key.values()), default=self._last_snapshot_offset)
