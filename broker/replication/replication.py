"""Replication: what this broker does with other brokers, as a leader of its partitions and as a follower of theirs."""

import logging
from collections.abc import Callable, Iterable
from functools import partial

from broker.replication.in_sync_replicas import FollowerFetch, InSyncReplicas, IsrChange
from broker.replication.isr_alteration import IsrAlterer, IsrCommitted, IsrRefused, Outcome, WantedIsr
from broker.replication.other_brokers import OtherBrokers
from broker.replication.partition import Partition
from broker.replication.replica_fetchers import ReplicaFetchers
from broker.replication.throttles import ReplicationThrottles
from broker.replication.traffic import ReplicaStats
from broker.request.faults import NotLeaderOrFollower, UnknownLeaderEpoch
from broker.runtime.clock import Clock
from storage.sentinels import NO_EPOCH

log = logging.getLogger(__name__)


class Replication:
    """The followers of the partitions that this broker leads, and the fetchers of those that it follows."""

    def __init__(
        self,
        *,
        clock: Clock,
        view: OtherBrokers,
        alterer: IsrAlterer,
        fetchers: ReplicaFetchers,
        stats: ReplicaStats,
        watermark_moved: Callable[[Partition], None],
        throttles: ReplicationThrottles | None = None,
    ) -> None:
        """``watermark_moved`` is called when an answer of the controller or a follower has moved a high watermark, or a
        follower a low watermark."""
        self._clock = clock
        self._view = view
        self._alterer = alterer
        self.fetchers = fetchers
        self._watermark_moved = watermark_moved
        self.stats = stats
        self.throttles = throttles
        """How fast replicas that lag may catch up; None: without a limit."""

    # Leadership -------------------------------------------------------------------------------------------------------

    def leadership_changed(self, partition: Partition, *, is_new_epoch: bool) -> None:
        """A partition has another leader, epoch or replicas."""
        index = partition.topic_partition.partition
        if is_new_epoch:
            self._alterer.withdraw(partition.topic_id, index)
        if not partition.is_leader:
            self.fetchers.follow(partition)
            return
        self.fetchers.leave(partition.topic_partition)
        followers = partition.followers
        if followers is not None and partition.is_recovering and followers.pending is None:
            self._submit(partition, followers, followers.confirm(own_broker_epoch=self._view.broker_epoch))

    def left(self, partition: Partition) -> None:
        """A partition is not on this broker any more, or offline."""
        self._alterer.withdraw(partition.topic_id, partition.topic_partition.partition)
        self.fetchers.leave(partition.topic_partition)

    # Followers --------------------------------------------------------------------------------------------------------

    def check_follower(self, partition: Partition, replica: int, broker_epoch: int, current_leader_epoch: int) -> None:
        """Raise where a broker may not fetch a partition that this broker leads.

        Raises:
            UnknownLeaderEpoch: the broker, which knows the leader epoch, is no replica as far as this broker knows.
            NotLeaderOrFollower: it is no replica and does not say which leader epoch it knows (-1); or the fetch was
                sent by an earlier run of the broker.
        """
        if partition.followers is None or replica not in partition.followers.followers:
            text = f"broker {replica} has no replica of {partition.topic_partition}"
            raise NotLeaderOrFollower(text) if current_leader_epoch == NO_EPOCH else UnknownLeaderEpoch(text)
        if self._view.is_outdated(replica, broker_epoch):
            raise NotLeaderOrFollower(f"broker {replica} has registered again since its epoch {broker_epoch}")

    def fetched(self, partition: Partition, replica: int, fetch: FollowerFetch) -> None:
        """A follower fetches, whose epoch and log agree with the leader's, and which `check_follower` has let pass."""
        followers = partition.followers
        assert followers is not None, f"{partition.topic_partition} has no followers here"
        has_deleted = fetch.log_start_offset > followers.followers[replica].log_start_offset
        followers.fetched(
            replica, fetch, leaders_end_offset=partition.log.log_end_offset, now_ms=self._clock.monotonic_ms()
        )
        if partition.advance_high_watermark() or has_deleted:
            self._watermark_moved(partition)
        if replica not in followers.maximal_isr:
            self._expand(partition, followers)

    def _expand(self, partition: Partition, followers: InSyncReplicas) -> None:
        change = followers.expand(
            own_broker_epoch=self._view.broker_epoch,
            log_start_offset=partition.log.log_start_offset,
            high_watermark=partition.log.high_watermark,
            leaders_end_offset=partition.log.log_end_offset,
            now_ms=self._clock.monotonic_ms(),
            is_eligible=self._view.is_eligible,
        )
        self._submit(partition, followers, change)

    def brokers_changed(self, partitions: Iterable[Partition]) -> None:
        """Brokers were fenced or unfenced, or have registered: followers that have caught up may be eligible by now.

        Their next fetch would not say so: a fetch session names no partition without news.
        """
        for partition in list(partitions):
            followers = partition.followers
            if followers is not None and len(followers.maximal_isr) <= len(followers.followers):
                if partition.advance_high_watermark():
                    self._watermark_moved(partition)
                self._expand(partition, followers)

    def maintain_isrs(self, partitions: Iterable[Partition]) -> None:
        """Ask for ISRs without the followers that lag, and again for those that the controller has refused; called
        every half of `replica.lag.time.max.ms`."""
        partitions = list(partitions)
        self.brokers_changed(partitions)
        self._shrink_isrs(partitions)

    def _shrink_isrs(self, partitions: Iterable[Partition]) -> None:
        now_ms = self._clock.monotonic_ms()
        for partition in partitions:
            followers = partition.followers
            if followers is None or len(followers.isr) == 1:
                continue
            change = followers.shrink(
                own_broker_epoch=self._view.broker_epoch,
                leaders_end_offset=partition.log.log_end_offset,
                now_ms=now_ms,
            )
            if change is not None:
                log.info(
                    "%s: asking for the ISR %s instead of %s",
                    *(partition.topic_partition, sorted(change.isr), sorted(followers.isr)),
                )
            self._submit(partition, followers, change)

    # ISRs -------------------------------------------------------------------------------------------------------------

    def _submit(self, partition: Partition, followers: InSyncReplicas, change: IsrChange | None) -> None:
        if change is None:
            return
        wanted = WantedIsr(
            partition.topic_id,
            partition.topic_partition.partition,
            partition.leader_epoch,
            change.partition_epoch,
            change.isr,
        )
        if not self._alterer.submit(wanted, partial(self._altered, partition, followers)):
            followers.refused()

    def _altered(self, partition: Partition, followers: InSyncReplicas, outcome: Outcome) -> None:
        if partition.followers is not followers:
            return  # this broker has not led without a break since
        before = followers.isr
        if isinstance(outcome, IsrCommitted):
            if outcome.leader_epoch != partition.leader_epoch:
                return
            followers.committed(outcome.isr, outcome.partition_epoch)
            if outcome.partition_epoch <= followers.partition_epoch:
                followers.answered()  # there was nothing to change
            partition.isr_committed()
            self.stats.isr_shrinks += bool(before - followers.isr)
            self.stats.isr_expands += bool(followers.isr - before)
            if before != followers.isr:
                log.info("%s has the ISR %s now", partition.topic_partition, sorted(followers.isr))
        else:
            self.stats.failed_isr_updates += 1
            if isinstance(outcome, IsrRefused):
                followers.refused()
        if partition.advance_high_watermark():
            self._watermark_moved(partition)
