"""Partition: a partition that this node has a replica of, with its log, replicas in sync and high watermark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from broker.replication.disk_reserve import DiskReserve
from broker.replication.isolation import FetchIsolation
from broker.replication.other_brokers import NoOtherBrokers, OtherBrokers
from broker.request.faults import (
    FencedLeaderEpoch,
    InvalidTopic,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    PolicyViolation,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from broker.runtime.clock import Clock
from protocol.records.cluster_metadata import NO_LEADER
from storage.errors import LogDirFailed, LogMoved, LogRemoved, OffsetOutOfRange, StorageError
from storage.flushing import FlushTarget
from storage.log import Log
from storage.log_dir import LogDir
from storage.sentinels import NO_EPOCH
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.replication.in_sync_replicas import InSyncReplicas

DiskFailed = Callable[["Partition", StorageError], None]
"""Called when a read from, or a write to, a partition's log has failed."""

ALONE: Final = NoOtherBrokers()

HIGH_WATERMARK = -1
"""Instead of an offset in DeleteRecords: up to the high watermark."""

# Looking up an attribute of an enumeration takes 50 ns in Python 3.11, which every read would pay.
_READS_LOG_END: Final = FetchIsolation.LOG_END
_READS_COMMITTED: Final = FetchIsolation.TXN_COMMITTED


def offline(topic_partition: TopicPartition, log_dir: LogDir | None = None) -> LogDirFailed:
    """The error of a partition whose data directory cannot be used."""
    where = "a data directory that is not there" if log_dir is None else f"{log_dir.path}, which has failed"
    return LogDirFailed(f"{topic_partition} is offline: it stands in {where}")


class LeaderAndIsr(NamedTuple):
    """Leader, epoch and replicas in sync of a partition, as the metadata has them."""

    leader: int
    """The broker that leads, `NO_LEADER` if none does."""
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: frozenset[int]
    partition_epoch: int = 0
    """The version of the partition at the controller."""
    adding_replicas: frozenset[int] = frozenset()
    """The replicas that a reassignment adds."""
    is_recovering: bool = False
    """The leader was elected though it was not in sync, and the controller does not know yet that it has taken over."""


class PartitionWatcher(Protocol):
    """Called when a partition has changed, so that it need not poll: a waiting fetch or a fetch session."""

    def partition_changed(self) -> None:
        """A fetch could get another answer from the partition now."""


@dataclass(slots=True, eq=False, repr=False)
class PartitionStats:
    """What a partition counts beside its log."""

    refused_batches: int = 0
    failed_batches: int = 0
    """Refused batches that count as failed (see `broker.replication.traffic`)."""
    refused_bytes: int = 0
    """Bytes of refused batches above ``max.message.bytes``."""
    fetches: int = 0
    """How many fetches have read the partition; a fetch that has waited counts once."""
    failed_fetches: int = 0
    fetched_bytes: int = 0
    """Bytes of records in answers to fetches of consumers."""
    followed_batches: int = 0
    """Batches that were fetched from the leader. The log counts these, too, among those that were appended."""
    followed_records: int = 0
    followed_bytes: int = 0


class Partition:
    """A partition that this node holds a replica of, as its leader or as a follower.

    The high watermark is the least log end of the replicas in sync. Where the leader is the only replica in sync, it
    follows the log end at once; a follower gets it from its leader.
    """

    __slots__ = (
        "_clock",
        "_decides_alone",
        "_flush_owed",
        "_has_moved",
        "_lag_max_ms",
        "_on_disk_failure",
        "_view",
        "adding_replicas",
        "disk_reserve",
        "followers",
        "in_sync_replicas",
        "is_flush_late",
        "is_gone",
        "is_internal",
        "is_recovering",
        "leader",
        "leader_epoch",
        "led_since_epoch",
        "log",
        "log_dir",
        "node_id",
        "owes_epoch_start",
        "replicas",
        "stats",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        *,
        clock: Clock,
        log: Log,
        log_dir: LogDir,
        topic_id: bytes,
        node_id: int,
        state: LeaderAndIsr,
        is_internal: bool = False,
        disk_reserve: DiskReserve | None = None,
        on_disk_failure: DiskFailed,
        view: OtherBrokers = ALONE,
        lag_max_ms: int = 30_000,
    ) -> None:
        """``lag_max_ms``: `replica.lag.time.max.ms`."""
        self._clock = clock
        self._view = view
        self._lag_max_ms = lag_max_ms
        self._on_disk_failure = on_disk_failure
        self.log = log
        self.log_dir = log_dir
        """The data directory of the log."""
        self.disk_reserve = disk_reserve
        """Limits clients' appends; None for internal topics, which may use the reserve."""
        self.topic_id = topic_id
        self.node_id = node_id
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self._take(state)
        self._decides_alone = False
        """Whether this node is the leader and the only replica, so that it moves the high watermark alone."""
        self.followers: InSyncReplicas | None = None
        """What the leader knows of the other replicas; None where there are none, or this node does not lead."""
        self.led_since_epoch = NO_EPOCH
        """The leader epoch from which on this node has led without a break."""
        self.owes_epoch_start = False
        """A write was under way when this node became leader: the epoch begins behind it."""
        self.is_internal = is_internal
        self.stats = PartitionStats()
        self._flush_owed: FlushTarget | None = None
        self.is_flush_late = False
        """A flush could not begin or go on, since there was no file descriptor: it is still to be done."""
        self._has_moved = False
        self.is_gone = False
        """The topic was deleted, or the directory has failed. Objects that still refer to the partition check it."""
        self.watchers: dict[PartitionWatcher, None] | None = None
        """The watchers, a set that keeps its order; None without watchers, so that an append pays one check."""
        if self.is_leader:
            self._begin_leading(state)

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and index."""
        return self.log.topic_partition

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the partition."""
        return self.leader == self.node_id

    def apply(self, state: LeaderAndIsr) -> None:
        """Take over the leadership of the metadata: lead, or follow another leader."""
        if state.leader == self.node_id:
            self.make_leader(state)
        else:
            self.make_follower(state)

    def make_leader(self, state: LeaderAndIsr) -> None:
        """Lead from now on; a new epoch begins at the log's end. In the same epoch only the replicas change."""
        assert state.leader == self.node_id, f"node {self.node_id} is to lead {self.topic_partition} for {state.leader}"
        if self.leader != self.node_id or self.leader_epoch != state.leader_epoch:
            self._begin_leading(state)
            return
        followers = self.followers
        if followers is not None and len(state.replicas) > 1:
            if not followers.committed(state.in_sync_replicas, state.partition_epoch):
                return  # the controller's answer to this leader was newer
            followers.replicas_changed(state.replicas)
        self._take(state)
        if followers is None or len(state.replicas) == 1:
            self._know_followers(state)
        self.advance_high_watermark()

    def _begin_leading(self, state: LeaderAndIsr) -> None:
        if self.leader != self.node_id or self.led_since_epoch == NO_EPOCH:
            self.led_since_epoch = state.leader_epoch
        self._take(state)
        self._know_followers(state)
        self.log.lost_from = None  # the other replicas follow this log as it is
        self.begin_epoch()

    def _know_followers(self, state: LeaderAndIsr) -> None:
        self._decides_alone = len(state.replicas) == 1 and not state.is_recovering
        if self._decides_alone:
            self.followers = None
            return
        # A broker without others imports as little as it can before it is ready (docs/decisions/starting.md).
        from broker.replication.in_sync_replicas import InSyncReplicas

        self.followers = InSyncReplicas(
            node_id=self.node_id,
            replicas=state.replicas,
            isr=state.in_sync_replicas,
            partition_epoch=state.partition_epoch,
            epoch_start_offset=self.log.log_end_offset,
            now_ms=self._clock.monotonic_ms(),
            lag_max_ms=self._lag_max_ms,
        )

    def make_follower(self, state: LeaderAndIsr) -> None:
        """Stop leading, whether there is another leader or not: clients cannot append, and the high watermark stays."""
        assert state.leader != self.node_id, f"node {self.node_id} leads {self.topic_partition}"
        self._take(state)
        self._decides_alone = False
        self.followers = None
        self.led_since_epoch = NO_EPOCH
        self.owes_epoch_start = False

    def _take(self, state: LeaderAndIsr) -> None:
        self.leader, self.leader_epoch, self.replicas, self.in_sync_replicas = state[:4]
        self.adding_replicas, self.is_recovering = state.adding_replicas, state.is_recovering

    def isr_committed(self) -> None:
        """The controller has answered this leader with another ISR, before the metadata tells of it."""
        assert self.followers is not None, f"{self.topic_partition} has no followers here"
        self.in_sync_replicas = self.followers.isr
        self.is_recovering = False

    def begin_epoch(self) -> None:
        """Let the leader's epoch begin at the log's end; behind a write that is under way, as soon as that is done."""
        self.owes_epoch_start = self.log.is_writing
        if not self.owes_epoch_start:
            self.log.assign_epoch_start(self.leader_epoch)
            if self.followers is not None:
                self.followers.epoch_start_offset = self.log.log_end_offset
            self.advance_high_watermark()

    def moved_to(self, log_dir: LogDir, disk_reserve: DiskReserve) -> None:
        """The log goes on in another data directory."""
        self.log_dir = log_dir
        if self.disk_reserve is not None:
            self.disk_reserve = disk_reserve
        self._flush_owed = None

    def disk_failed(self, error: StorageError) -> None:
        """The log could not be read or written. If the data directory is the cause, the data directory goes offline."""
        if not self.is_gone:
            self._on_disk_failure(self, error)

    def go(self, *, has_moved: bool = False) -> None:
        """The partition leaves this node: its topic was deleted, its directory has failed, or the replica has moved to
        another node."""
        self.is_gone = True
        self._has_moved = has_moved
        self.leader = NO_LEADER
        self._decides_alone = False
        self.followers = None

    def why_gone(self) -> StorageError:
        """The error for requests to a partition that is gone."""
        if self.log_dir.has_failed:
            return offline(self.topic_partition, self.log_dir)
        if self._has_moved:
            return LogMoved(f"{self.topic_partition} has no replica on node {self.node_id} any more")
        return LogRemoved(f"{self.topic_partition} was deleted")

    def check_leadership(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise unless this node leads in the epoch that the client knows (KIP-320); -1: the client does not say."""
        if not self.is_readable_in(current_leader_epoch, True):
            raise self._why_unreadable(current_leader_epoch)

    def check_readable(self, current_leader_epoch: int, only_leader: bool) -> None:
        """Raise unless a client may read here that knows this leader epoch, -1: does not say it; see
        `is_readable_in`."""
        if not self.is_readable_in(current_leader_epoch, only_leader):
            raise self._why_unreadable(current_leader_epoch)

    def _why_unreadable(self, current_leader_epoch: int) -> Exception:
        if self.is_gone:
            if self.log_dir.has_failed or self._has_moved:
                return self.why_gone()
            return UnknownTopicOrPartition(f"{self.topic_partition} was deleted")
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return NotLeaderOrFollower(f"{self.topic_partition} is led by node {self.leader}")
        return self._wrong_epoch(current_leader_epoch)

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise `FencedLeaderEpoch` or `UnknownLeaderEpoch` if the client knows another epoch than this node, whether
        this node leads the partition or not; -1: the client does not say."""
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            raise self._wrong_epoch(current_leader_epoch)

    def _wrong_epoch(self, current_leader_epoch: int) -> Exception:
        text = f"{self.topic_partition}: leader epoch {current_leader_epoch}, here {self.leader_epoch}"
        return FencedLeaderEpoch(text) if current_leader_epoch < self.leader_epoch else UnknownLeaderEpoch(text)

    def is_readable_at(self, offset: int, current_leader_epoch: int, only_leader: bool) -> bool:
        """Whether a waiting fetch at ``offset`` still has something to wait for here."""
        return (
            self.is_readable_in(current_leader_epoch, only_leader)
            and self.log.log_start_offset <= offset <= self.log.log_end_offset
        )

    def check_append(self, *, by_all: bool) -> None:
        """Raise unless this node leads, and with ``by_all`` enough replicas are in sync (``min.insync.replicas``)."""
        self.check_leadership()
        if by_all and not self.has_enough_in_sync:
            needed = self.log.config.required_in_sync(len(self.replicas))
            raise NotEnoughReplicas(
                f"{self.topic_partition} has {len(self.in_sync_replicas)} of {needed} replicas in sync"
            )

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether as many replicas are in sync as ``min.insync.replicas`` demands."""
        in_sync, replicas = len(self.in_sync_replicas), len(self.replicas)
        return in_sync >= replicas or in_sync >= self.log.config.required_in_sync(replicas)

    def advance_high_watermark(self) -> bool:
        """Set the high watermark to what all replicas in sync have, where this node knows that; True if it moved."""
        if self._decides_alone:
            return self.log.advance_high_watermark(self.log.log_end_offset)
        followers = self.followers
        if followers is None:
            return False
        offset = followers.high_watermark(
            leaders_end_offset=self.log.log_end_offset,
            now_ms=self._clock.monotonic_ms(),
            min_isr=self.log.config.min_insync_replicas,
            is_eligible=self._view.is_eligible,
        )
        return offset is not None and self.log.advance_high_watermark(offset)

    @property
    def low_watermark(self) -> int:
        """The least log start offset of the replicas on brokers that run: what was deleted below it is gone there."""
        start = self.log.log_start_offset
        if self.followers is not None:
            for replica, follower in self.followers.followers.items():
                if follower.log_start_offset < start and self._view.is_alive(replica):
                    start = follower.log_start_offset
        return start

    def delete_records_before(self, offset: int, *, by_coordinator: bool = False) -> int:
        """Let the log begin at ``offset``, or at the high watermark if it is -1 (KIP-107); return that offset. The
        coordinator of a partition may delete its own records.

        Raises `InvalidTopic` for a topic of the coordinators, `PolicyViolation` where records are not to be deleted,
        `storage.errors.OffsetOutOfRange`, and what `check_leadership` does.
        """
        if self.is_internal and not by_coordinator:
            raise InvalidTopic(f"records of {self.topic_partition} belong to a coordinator")
        self.check_leadership()
        config = self.log.config
        if config.is_compacted and not config.deletes:
            raise PolicyViolation(f"the cleanup.policy of {self.topic_partition} has no delete in it")
        target = self.log.high_watermark if offset == HIGH_WATERMARK else offset
        if target < 0:
            raise OffsetOutOfRange(f"{self.topic_partition}: records cannot be deleted before offset {offset}")
        try:
            self.log.start_offset_to(target)
        except LogDirFailed as error:
            self.disk_failed(error)
            raise
        return target

    def watch(self, watcher: PartitionWatcher) -> None:
        """Notify ``watcher`` of every change from now on."""
        if self.watchers is None:
            self.watchers = {}
        self.watchers[watcher] = None

    def unwatch(self, watcher: PartitionWatcher) -> None:
        """Notify ``watcher`` no longer."""
        assert self.watchers is not None, f"{self.topic_partition} has no watchers"
        del self.watchers[watcher]
        if not self.watchers:
            self.watchers = None

    def notify_watchers(self) -> None:
        """Notify all watchers: a fetch could get another answer from the partition now."""
        for watcher in tuple(self.watchers or ()):
            watcher.partition_changed()

    # What the flusher calls (`broker.runtime.worker_thread.Flushable`).

    def begin_flush(self) -> FlushTarget | None:
        """The flush that is due now, or the late flush that could not be done before.

        Raises LogRemoved, TooManyOpenFiles, LogDirFailed: a directory that has failed is left alone.
        """
        if self.is_gone:
            raise self.why_gone()
        if self.log.is_held:
            return None  # the flush is begun when the log is released
        if self._flush_owed is None:
            self._flush_owed = self.log.begin_flush(self._clock.now_ms())
        return self._flush_owed

    def complete_flush(self, target: FlushTarget) -> None:
        """``target`` is on the disk."""
        self._flush_owed = None
        self.is_flush_late = False
        self.log.complete_flush(target)

    # Which readers may read, and up to which offset.

    def is_readable_in(self, current_leader_epoch: int, only_leader: bool) -> bool:
        """Whether a client may read here that knows this leader epoch (KIP-320); -1: the client does not say it.

        With ``only_leader`` this node must lead; else a follower serves its own replica, too (KIP-392).
        """
        return (self.leader == self.node_id or not (only_leader or self.is_gone)) and (
            current_leader_epoch == NO_EPOCH or current_leader_epoch == self.leader_epoch
        )

    def visible_end(self, isolation: FetchIsolation) -> int:
        """The first offset that a reader of this isolation may not see yet."""
        if isolation is _READS_COMMITTED:
            return self.log.last_stable_offset
        return self.log.log_end_offset if isolation is _READS_LOG_END else self.log.high_watermark

    def has_nothing_for(self, fetch_offset: int, isolation: FetchIsolation) -> bool:
        """Whether a fetch from ``fetch_offset`` finds no records until the partition changes."""
        return fetch_offset >= self.visible_end(isolation)
