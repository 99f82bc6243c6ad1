"""The one maker of PartitionChangeRecords: replicas in sync, leader, reassignment, directories, eligible leaders.

wanted ─ a reassignment whose added replicas are all in sync is completed
       ─ eligible leaders (KIP-966): who leaves the ISR while it is below min.insync.replicas
       ─ the leader is elected
       ─ what differs from the partition as it is goes into the record; no record if nothing differs

A record with a leader begins a leader epoch; every record begins a partition epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from broker.controller.cluster_view import ClusterView
from broker.metadata.image.records import EMPTY
from broker.metadata.image.topics import PartitionImage, TopicImage
from broker.metadata.record_versions import DIRECTORIES_SINCE
from protocol.records.cluster_metadata import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord

RECOVERED: Final = 0
RECOVERING: Final = 1
"""The leader recovery state (KIP-704): the leader was not in sync, so that committed records may be gone."""

RECOVERY_STATE_SINCE: Final = 3
"""The metadata.version (3.2-IV0) from which on a partition has a leader recovery state."""

SHRINKING_KEEPS_EPOCH_SINCE: Final = 12
"""The metadata.version (3.6-IV0) from which on an ISR that shrinks begins no leader epoch."""


class Election(Enum):
    """Who shall lead."""

    ONLINE = auto()
    """The leader, as long as it can; else the first replica in sync."""
    PREFERRED = auto()
    """The first replica if it is in sync, else the leader, else any replica in sync."""
    UNCLEAN = auto()
    """As ONLINE; if no replica in sync can lead, one that is not in sync: acknowledged records may be lost."""


class Wanted(NamedTuple):
    """How a partition is to be. None leaves a property as it is, unless the rest changes it."""

    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    """With the replicas that are added and removed, as long as a reassignment lasts."""
    adding: Sequence[int] | None = None
    removing: Sequence[int] | None = None
    directories: Mapping[int, bytes] = EMPTY
    """The log directories of some brokers' replicas."""
    leader_recovery_state: int | None = None
    unclean_stops: Collection[int] = ()
    """Brokers that may have lost records: they cannot be eligible leaders."""
    election: Election = Election.ONLINE
    begins_epoch: bool = False
    """Whether a leader epoch begins although the leader stays."""


def plan_change(
    view: ClusterView, topic: TopicImage, partition: PartitionImage, wanted: Wanted
) -> PartitionChangeRecord | None:
    """The record that makes ``partition`` as ``wanted``, with the leader that it shall have then; None if it is so."""
    return _Change(view, topic, partition, wanted).record()


class _Change:
    """The partition as it will be, while that is worked out."""

    def __init__(self, view: ClusterView, topic: TopicImage, partition: PartitionImage, wanted: Wanted) -> None:
        self._view = view
        self._topic = topic
        self._partition = partition
        self._wanted = wanted
        self._isr = _or(wanted.isr, partition.isr)
        self._replicas = _or(wanted.replicas, partition.replicas)
        self._adding = _or(wanted.adding, partition.adding_replicas)
        self._removing = _or(wanted.removing, partition.removing_replicas)
        self._elr = list(partition.eligible_leader_replicas)
        self._recovery_state = wanted.leader_recovery_state
        if self._recovery_state is None:
            self._recovery_state = partition.leader_recovery_state

    def record(self) -> PartitionChangeRecord | None:
        partition = self._partition
        self._complete_reassignment()
        self._find_eligible_leaders()
        leader = self._elect()
        if not self._isr and not self._view.has_elr:
            # Without eligible leaders the last replica in sync stays in sync: it is the one that can lead again.
            self._isr = [broker for broker in partition.isr if broker in self._replicas] or self._replicas[:1]
        last_known_elr = self._last_known_elr(leader)
        directories = self._directories()
        is_new_epoch = leader != partition.leader or self._needs_new_epoch()
        record = PartitionChangeRecord(
            partition_id=partition.index,
            topic_id=self._topic.topic_id,
            isr=_if_changed(self._isr, partition.isr),
            leader=leader if is_new_epoch else NO_LEADER_CHANGE,
            replicas=_if_changed(self._replicas, partition.replicas),
            removing_replicas=_if_changed(self._removing, partition.removing_replicas),
            adding_replicas=_if_changed(self._adding, partition.adding_replicas),
            leader_recovery_state=-1
            if self._recovery_state == partition.leader_recovery_state
            else self._recovery_state or RECOVERED,
            directories=None if directories == list(partition.directories) else directories,
            eligible_leader_replicas=_if_changed(self._elr, partition.eligible_leader_replicas),
            last_known_elr=_if_changed(last_known_elr, partition.last_known_elr),
        )
        unchanged = PartitionChangeRecord(partition_id=partition.index, topic_id=self._topic.topic_id)
        return None if record == unchanged else record

    def _complete_reassignment(self) -> None:
        """Leave out the removed replicas, if all added replicas are in sync (KIP-455).

        If the partition gets fewer replicas, all of them must be in sync first.
        """
        if not (self._adding or self._removing):
            return
        isr = [broker for broker in self._isr if broker not in self._removing]
        replicas = [broker for broker in self._replicas if broker not in self._removing]
        needed = replicas if len(self._removing) > len(self._adding) else self._adding
        if isr and set(needed) <= set(isr):
            self._isr, self._replicas, self._adding, self._removing = isr, replicas, [], []

    def _find_eligible_leaders(self) -> None:
        """Replicas that have all committed records: the ISR was below min.insync.replicas when they left it."""
        if not self._view.has_elr or len(self._isr) >= self._min_isr():
            self._elr = []
            return
        candidates = {*self._elr, *self._partition.isr} & {*self._replicas}
        self._elr = sorted(candidates - {*self._isr} - {*self._wanted.unclean_stops})

    def _min_isr(self) -> int:
        return min(self._view.min_isr(self._topic), len(self._replicas))

    # The election

    def _elect(self) -> int:
        """The leader. One that was not in sync makes up the ISR alone."""
        leader, is_clean = self._best_leader()
        if leader in (NO_LEADER, self._partition.leader):
            return leader
        if not is_clean:
            self._isr = [leader]
            self._elr = []
            if self._view.metadata_version >= RECOVERY_STATE_SINCE:
                self._recovery_state = RECOVERING
        elif leader not in self._isr:
            self._isr = [leader]
            self._elr = [broker for broker in self._elr if broker != leader]
        return leader

    def _best_leader(self) -> tuple[int, bool]:
        """The best leader, and whether it has all committed records."""
        order = [self._partition.leader, *self._replicas]
        if self._wanted.election is Election.PREFERRED:
            order = [*self._replicas[:1], *order]
        has_all_records = self._isr or self._elr
        for broker in order:
            if broker in has_all_records and self._can_lead(broker):
                return broker, True
        last = self._partition.last_known_elr
        if self._view.has_elr and not self._isr and not self._elr and len(last) == 1 and self._can_lead(last[0]):
            # Whoever was in sync has stopped uncleanly. The last leader has most of the records.
            return last[0], False
        if self._wanted.election is Election.UNCLEAN:
            for broker in self._replicas:
                if self._can_lead(broker):
                    return broker, False
        return NO_LEADER, True

    def _can_lead(self, broker: int) -> bool:
        directory = self._wanted.directories.get(broker) or self._partition.directory_of(broker)
        return (
            broker in self._replicas
            and self._view.is_active(broker)
            and self._view.has_online_directory(broker, directory)
        )

    def _needs_new_epoch(self) -> bool:
        """Whether the same leader must begin an epoch: a replica is gone, or before 3.6 the ISR has shrunk."""
        if self._wanted.begins_epoch or not set(self._partition.replicas) <= set(self._replicas):
            return True
        has_shrunk = not set(self._partition.isr) <= set(self._isr)
        return has_shrunk and self._view.metadata_version < SHRINKING_KEEPS_EPOCH_SINCE

    def _last_known_elr(self, leader: int) -> Sequence[int]:
        """The last leader, once the ISR is empty: it leads if nobody who was in sync comes back clean."""
        partition = self._partition
        if not self._view.has_elr or leader != NO_LEADER:
            return ()
        if not self._isr and partition.isr and partition.leader != NO_LEADER:
            return (partition.leader,)
        return partition.last_known_elr

    def _directories(self) -> list[bytes]:
        """The log directory of each replica: those that are known or told, the default of its broker for the others."""
        partition, told = self._partition, self._wanted.directories
        if self._view.metadata_version < DIRECTORIES_SINCE:
            return list(partition.directories)
        if not told and list(partition.replicas) == self._replicas:
            return list(partition.directories)
        known = dict(zip(partition.replicas, partition.directories, strict=False)) | dict(told)
        return [known.get(broker) or self._view.default_directory(broker) for broker in self._replicas]


def _or(wanted: Sequence[int] | None, is_now: Sequence[int]) -> list[int]:
    return list(is_now if wanted is None else wanted)


def _if_changed(after: Sequence[int], before: Sequence[int]) -> list[int] | None:
    return None if list(after) == list(before) else list(after)
