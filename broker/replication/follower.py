"""Follower: a broker that fetches from this one as a follower, by one of its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.replication.in_sync_replicas import FollowerFetch
from broker.replication.traffic import count_replicated
from broker.request.faults import NotLeaderOrFollower

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from broker.replication.replication import Replication


class FollowerId(NamedTuple):
    """What a follower says of itself."""

    replica_id: int
    broker_epoch: int
    """The epoch of its registration; -1 in versions of Fetch that do not have it."""


class Follower:
    """The fetches of one request of a follower are taken note of here."""

    __slots__ = ("_id", "_replication")

    def __init__(self, follower_id: FollowerId, replication: Replication | None) -> None:
        self._id = follower_id
        self._replication = replication

    def check(self, partition: Partition, current_leader_epoch: int) -> None:
        """Raise where this broker may not have the records: `UnknownLeaderEpoch`, `NotLeaderOrFollower`.

        ``current_leader_epoch`` is what the follower knows of it; -1: it does not say.
        """
        if self._replication is None:
            raise NotLeaderOrFollower(f"no node is a follower of {partition.topic_partition}")
        self._replication.check_follower(partition, self._id.replica_id, self._id.broker_epoch, current_leader_epoch)

    def is_withheld(self, partition: Partition) -> bool:
        """Whether the follower, which is not in sync, gets no records at present: replication is too fast (KIP-73)."""
        replication = self._replication
        if replication is None or replication.throttles is None:
            return False
        followers = partition.followers
        if followers is None or self._id.replica_id in followers.isr:
            return False
        return replication.throttles.leader.withholds(partition.topic_partition)

    def has_fetched(self, partition: Partition, fetch_offset: int, log_start_offset: int) -> None:
        """The follower's log ends at ``fetch_offset``, and agrees with this broker's so far."""
        assert self._replication is not None, "`check` has raised"
        fetch = FollowerFetch(fetch_offset, log_start_offset, self._id.broker_epoch)
        self._replication.fetched(partition, self._id.replica_id, fetch)

    def is_answered(self, partition: Partition, size: int) -> None:
        """The follower gets ``size`` bytes of records."""
        assert self._replication is not None, "`check` has raised"
        count_replicated(partition, self._id.replica_id, size, self._replication.stats)
        if self._replication.throttles is not None:
            self._replication.throttles.leader.count(partition.topic_partition, size)

    def has_waited_in_vain(self) -> None:
        """The time of a fetch was over before there was enough to answer."""
        if self._replication is not None:
            self._replication.stats.follower_fetches_expired += 1
