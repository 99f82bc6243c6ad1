"""Offsets committed in transactions that have not ended (KIP-98): they are held until the transaction's marker."""

from collections.abc import Iterator

from broker.coordinators.group.offset_table import PackedOffset, PartitionKey, unpack_offset
from broker.coordinators.group.requests import CommittedOffset


class PendingOffsets:
    """Offsets in open transactions, by group and partition, and there by producer in the order of the log.

    None instead of an offset: a newer offset is committed already, so this offset does not count even if its
    transaction commits. The partition is unstable all the same.
    """

    __slots__ = ("_by_group", "_by_producer")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[PartitionKey, dict[int, PackedOffset | None]]] = {}
        self._by_producer: dict[int, set[tuple[str, PartitionKey]]] = {}

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group

    def groups(self) -> Iterator[str]:
        """The groups with an offset in an open transaction."""
        return iter(self._by_group)

    def has(self, group_id: str, partition: PartitionKey) -> bool:
        """Whether an open transaction has an offset for the partition."""
        return partition in self._by_group.get(group_id, ())

    def partitions(self, group_id: str) -> list[PartitionKey]:
        """The group's partitions with an offset in an open transaction."""
        return list(self._by_group.get(group_id, ()))

    def newest(self, group_id: str, partition: PartitionKey) -> CommittedOffset | None:
        """The partition's offset if every open transaction commits; None if that changes nothing."""
        offsets = self._by_group.get(group_id, {}).get(partition, {})
        return next((unpack_offset(packed) for packed in reversed(offsets.values()) if packed is not None), None)

    def replay_put(self, producer_id: int, group_id: str, partition: PartitionKey, packed: PackedOffset) -> None:
        """Apply an offset that was written in a transaction."""
        offsets = self._by_group.setdefault(group_id, {}).setdefault(partition, {})
        offsets.pop(producer_id, None)
        offsets[producer_id] = packed
        self._by_producer.setdefault(producer_id, set()).add((group_id, partition))

    def replay_overtaken(self, group_id: str, partition: PartitionKey) -> None:
        """Apply a commit outside of transactions: no offset that was written before it counts any more."""
        if offsets := self._by_group.get(group_id, {}).get(partition):
            offsets.update(dict.fromkeys(offsets))

    def replay_removed(self, group_id: str, partition: PartitionKey) -> None:
        """Apply the partition's tombstone: open transactions lose their offsets for it."""
        for producer_id in tuple(self._by_group.get(group_id, {}).get(partition, ())):
            self._replay_taken(producer_id, group_id, partition)

    def replay_end(self, producer_id: int, *, commits: bool) -> list[tuple[str, PartitionKey, PackedOffset]]:
        """Apply the end of the producer's transaction. Returns the offsets that are committed by it."""
        standing = []
        for group_id, partition in tuple(self._by_producer.get(producer_id, ())):
            offsets = self._by_group[group_id][partition]
            if commits and (packed := offsets[producer_id]) is not None:
                standing.append((group_id, partition, packed))
                before = list(offsets)[: list(offsets).index(producer_id)]
                offsets.update(dict.fromkeys(before))
            self._replay_taken(producer_id, group_id, partition)
        return standing

    def _replay_taken(self, producer_id: int, group_id: str, partition: PartitionKey) -> None:
        """Remove one offset, and the maps that are empty then."""
        partitions = self._by_group[group_id]
        del partitions[partition][producer_id]
        if not partitions[partition]:
            del partitions[partition]
        if not partitions:
            del self._by_group[group_id]
        self._by_producer[producer_id].remove((group_id, partition))
        if not self._by_producer[producer_id]:
            del self._by_producer[producer_id]
