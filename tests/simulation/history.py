"""History: what clients have sent, what was acknowledged and seen, and whether the logs agree with it in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tests.simulation.cluster import require

Partition = tuple[str, int]


class StoredRecord(NamedTuple):
    """A record as a consumer gets it."""

    offset: int
    value: bytes
    leader_epoch: int
    key: bytes = b""


@dataclass(slots=True)
class PartitionHistory:
    """What has happened to one partition."""

    sent: dict[bytes, None] = field(default_factory=dict)
    """All values that may be in the log, in the order of their producers."""
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """Values by the offset that the broker has named."""
    seen: dict[int, bytes] = field(default_factory=dict)
    """Values by the offset at which a consumer has got them."""
    begins_at: int = 0
    """The log begins here or later, since a deletion up to this offset was answered."""
    may_begin_at: int = 0
    """The log begins here or earlier: up to here a deletion was asked for."""


class Outcome(Enum):
    """How a transaction ended."""

    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Transaction:
    """A transaction: its records, and what its producer knows of its end."""

    values: list[tuple[Partition, bytes]] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class TeamHistory:
    """What the members of the group whose members share partitions have committed."""

    acknowledged: dict[Partition, int] = field(default_factory=dict)
    """The largest offsets whose commits were answered."""
    sent: dict[Partition, set[int]] = field(default_factory=dict)
    """All offsets that may have been committed."""


@dataclass(slots=True)
class History:
    """What has happened in a run."""

    partitions: dict[Partition, PartitionHistory] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    team: TeamHistory = field(default_factory=TeamHistory)
    committed_offsets: dict[tuple[str, Partition], list[int]] = field(default_factory=dict)
    """For each group and partition the acknowledged commits, in their order."""
    unanswered_offsets: dict[tuple[str, Partition], set[int]] = field(default_factory=dict)
    """Commits that nobody has answered: each may have been carried out, at any time since."""

    def of(self, partition: Partition) -> PartitionHistory:
        """The history of a partition."""
        return self.partitions.setdefault(partition, PartitionHistory())

    @property
    def acknowledged(self) -> int:
        """How many records were acknowledged."""
        return sum(len(one.acknowledged) for one in self.partitions.values())

    def saw(self, partition: Partition, record: StoredRecord, *, may_change: bool) -> None:
        """A consumer has got a record, which stays what it is unless the run allows for changes."""
        seen = self.of(partition).seen
        before = seen.setdefault(record.offset, record.value)
        if may_change:
            seen[record.offset] = record.value
        else:
            require(
                before == record.value,
                f"{partition} had {before!r} at offset {record.offset}, and has {record.value!r} there now",
            )

    def check_log(
        self, partition: Partition, records: Sequence[StoredRecord], *, start_offset: int, is_kept: bool
    ) -> None:
        """Compare a whole log, which begins at ``start_offset`` and was read in the end, with what was sent.
        ``is_kept``: no acknowledged record may be lost, and none that was deleted may come back."""
        history = self.of(partition)
        by_offset: dict[int, bytes] = {}
        last = -1
        for record in records:
            require(record.offset > last, f"{partition} has offset {record.offset} behind {last}")
            last = record.offset
            by_offset[record.offset] = record.value
            require(record.value in history.sent, f"{partition} has {record.value!r}, which nobody has sent")
        if not is_kept:
            return
        require(
            history.begins_at <= start_offset <= history.may_begin_at,
            f"{partition} begins at {start_offset}, expected an offset from {history.begins_at} to "
            f"{history.may_begin_at}",
        )
        for offset, value in history.acknowledged.items():
            if offset < start_offset:
                continue
            found = by_offset.get(offset)
            require(
                found == value,
                f"{partition}: {value!r} was acknowledged at offset {offset}, and {found!r} is there",
            )
        places: dict[bytes, int] = {}
        numbers: dict[bytes, int] = {}
        for offset, value in by_offset.items():
            require(value not in places, f"{partition} has {value!r} at offsets {places.get(value)} and {offset}")
            places[value] = offset
            producer, _, number = value.rpartition(b":")
            require(
                int(number) > numbers.get(producer, -1),
                f"{partition} has {value!r} at offset {offset} behind number {numbers.get(producer)}",
            )
            numbers[producer] = int(number)

    def check_transactions(self, visible: Mapping[Partition, Sequence[StoredRecord]]) -> None:
        """A transaction is visible as a whole or not at all, and as its producer knows."""
        values = {(partition, record.value) for partition, records in visible.items() for record in records}
        for transaction in self.transactions:
            there = [one for one in transaction.values if one in values]
            if transaction.outcome is Outcome.COMMITTED or (there and transaction.outcome is Outcome.UNKNOWN):
                missing = [one for one in transaction.values if one not in values]
                require(not missing, f"of a {transaction.outcome.value} transaction {missing} are missing, {there} not")
            elif transaction.outcome is Outcome.ABORTED:
                require(not there, f"{there} of an aborted transaction are visible")

    def check_offset(self, group: str, partition: Partition, found: int) -> None:
        """The last offset whose commit was acknowledged is there, or one whose commit was not answered."""
        committed = self.committed_offsets.get((group, partition), [])
        if committed:
            unanswered = self.unanswered_offsets.get((group, partition), set())
            require(
                found == committed[-1] or found in unanswered,
                f"{group} has committed {committed[-1]} for {partition}, and {found} is there",
            )

    def check_team(self, partition: Partition, found: int) -> None:
        """The group's offset is the largest that was acknowledged, or a larger one that was not answered."""
        least = self.team.acknowledged.get(partition, -1)
        require(
            found >= least and (found < 0 or found in self.team.sent[partition]),
            f"members have committed {least} for {partition}, and {found} is there",
        )
