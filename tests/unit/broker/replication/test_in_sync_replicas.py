"""A leader's followers: who is in sync, up to where records are on all replicas, and what the controller is asked."""

from __future__ import annotations

import random

import pytest

from broker.replication.in_sync_replicas import FollowerFetch, InSyncReplicas, IsrChange

LAG_MAX_MS = 30_000


class Leader:
    """Node 1, which leads a partition; its log is a number of records."""

    def __init__(
        self,
        *isr: int,
        replicas: tuple[int, ...] = (1, 2, 3),
        min_isr: int = 1,
        end_offset: int = 0,
        now_ms: int = 1_000_000,
    ) -> None:
        self.now_ms = now_ms
        self.log_start_offset = 0
        self.end_offset = end_offset
        self.min_isr = min_isr
        self.fenced: set[int] = set()
        self.high_watermark = 0
        self.state = InSyncReplicas(
            node_id=1, replicas=replicas, isr=isr, partition_epoch=7, epoch_start_offset=end_offset,
            now_ms=self.now_ms, lag_max_ms=LAG_MAX_MS,
        )  # fmt: skip

    def is_eligible(self, replica: int, broker_epoch: int) -> bool:
        return replica not in self.fenced and broker_epoch == 50 + replica

    def write(self, count: int = 1) -> None:
        self.end_offset += count

    def fetch(self, replica: int, offset: int, *, log_start: int = 0, after_ms: int = 0) -> bool:
        self.now_ms += after_ms
        fetch = FollowerFetch(offset, log_start, 50 + replica)
        found = self.state.fetched(replica, fetch, leaders_end_offset=self.end_offset, now_ms=self.now_ms)
        self.advance()
        return found

    def advance(self) -> int:
        offset = self.state.high_watermark(
            leaders_end_offset=self.end_offset, now_ms=self.now_ms, min_isr=self.min_isr, is_eligible=self.is_eligible
        )
        if offset is not None:
            self.high_watermark = max(self.high_watermark, offset)
        return self.high_watermark

    def expand(self) -> IsrChange | None:
        return self.state.expand(
            own_broker_epoch=51,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            leaders_end_offset=self.end_offset,
            now_ms=self.now_ms,
            is_eligible=self.is_eligible,
        )

    def shrink(self, *, after_ms: int = 0) -> IsrChange | None:
        self.now_ms += after_ms
        return self.state.shrink(own_broker_epoch=51, leaders_end_offset=self.end_offset, now_ms=self.now_ms)


def test_records_are_on_all_replicas_once_all_in_sync_have_fetched_behind_them() -> None:
    leader = Leader(1, 2, 3)
    leader.write(5)
    assert leader.advance() == 0
    leader.fetch(2, 5)
    assert leader.high_watermark == 0
    leader.fetch(3, 4)
    assert leader.high_watermark == 4
    leader.fetch(3, 5)
    assert leader.high_watermark == 5


def test_alone_in_sync_the_leader_needs_nobody() -> None:
    leader = Leader(1)
    leader.write(5)
    assert leader.advance() == 5


def test_with_fewer_in_sync_than_min_insync_replicas_nothing_is_committed() -> None:
    leader = Leader(1, min_isr=2)
    leader.write(5)
    assert leader.advance() == 0
    only = Leader(1, replicas=(1,), min_isr=2)
    only.write(5)
    assert only.advance() == 5, "a partition cannot have more in sync than replicas"


def test_a_follower_that_has_come_up_is_asked_for_with_the_epochs_of_all() -> None:
    leader = Leader(1, 2, end_offset=10)
    leader.fetch(2, 10)
    leader.fetch(3, 9)
    assert leader.expand() is None
    leader.fetch(3, 10)
    assert leader.expand() == IsrChange({1: 51, 2: 52, 3: 53}, 7)


def test_who_joins_has_come_up_to_the_start_of_the_leaders_epoch() -> None:
    leader = Leader(1, 2, end_offset=10)
    leader.fetch(3, 8)
    assert leader.high_watermark == 0
    assert leader.expand() is None


def test_who_joins_has_deleted_what_the_leader_has_deleted() -> None:
    """Or the records would be back if it led next."""
    leader = Leader(1, 2, end_offset=10)
    leader.log_start_offset = 6
    leader.fetch(2, 10, log_start=6)
    leader.fetch(3, 10, log_start=5)
    assert leader.expand() is None
    leader.fetch(3, 10, log_start=6)
    assert leader.expand() == IsrChange({1: 51, 2: 52, 3: 53}, 7)


def test_a_fenced_broker_and_one_of_an_older_registration_are_not_asked_for() -> None:
    leader = Leader(1)
    leader.fenced.add(2)
    leader.fetch(2, 0)
    assert leader.expand() is None
    leader.state.fetched(3, FollowerFetch(0, 0, 12), leaders_end_offset=0, now_ms=leader.now_ms)
    assert leader.expand() is None


def test_a_fetch_of_a_followers_former_run_that_was_still_waiting_changes_nothing() -> None:
    """Or the follower, whose session leaves out what is unchanged, would never be asked for (simulation 30020929)."""
    leader = Leader(1, 2, end_offset=10)
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert leader.state.fetched(3, FollowerFetch(7, 0, 12), leaders_end_offset=10, now_ms=leader.now_ms)
    assert leader.state.followers[3].log_end_offset == 10
    assert leader.expand() == IsrChange({1: 51, 2: 52, 3: 53}, 7)


def test_a_follower_that_does_not_tell_its_registration_is_followed() -> None:
    leader = Leader(1, 2, end_offset=10)
    leader.fetch(3, 7)
    leader.state.fetched(3, FollowerFetch(10, 0, -1), leaders_end_offset=10, now_ms=leader.now_ms)
    assert leader.state.followers[3].log_end_offset == 10


def test_the_watermark_waits_for_those_whose_addition_is_not_answered() -> None:
    leader = Leader(1)
    leader.fetch(2, 0)
    change = leader.expand()
    assert change is not None
    leader.write(3)
    assert leader.advance() == 0
    assert (leader.state.isr, leader.state.maximal_isr) == ({1}, {1, 2})
    assert leader.state.committed([1, 2], 8)
    leader.fetch(2, 3)
    assert leader.high_watermark == 3


def test_one_change_is_under_way_at_a_time() -> None:
    leader = Leader(1)
    leader.fetch(2, 0)
    assert leader.expand() is not None
    leader.fetch(3, 0)
    assert leader.expand() is None
    leader.state.committed([1, 2], 8)
    assert leader.expand() == IsrChange({1: 51, 2: 52, 3: 53}, 8)


def test_a_refused_change_leaves_the_committed_isr() -> None:
    leader = Leader(1)
    leader.fetch(2, 0)
    leader.expand()
    leader.state.refused()
    leader.fenced.add(2)
    leader.write(3)
    assert leader.state.maximal_isr == {1}
    assert leader.advance() == 3


def test_an_older_version_of_the_partition_changes_nothing() -> None:
    leader = Leader(1, 2)
    assert not leader.state.committed([1], 6)
    assert leader.state.committed([1], 7)
    assert leader.state.isr == {1, 2}


def test_who_does_not_fetch_for_the_lag_time_is_out() -> None:
    leader = Leader(1, 2, 3)
    leader.write()
    leader.fetch(2, 1, after_ms=LAG_MAX_MS)
    assert leader.shrink() is None
    assert leader.shrink(after_ms=1) == IsrChange({1: 51, 2: 52}, 7)


def test_who_lags_and_does_not_fetch_is_not_asked_for_where_the_watermark_stands_still() -> None:
    leader = Leader(1, 2, replicas=(1, 2), min_isr=2)
    leader.write()
    leader.fetch(2, 1)
    leader.write()
    leader.advance()
    assert leader.shrink(after_ms=LAG_MAX_MS + 1) == IsrChange({1: 51}, 7)
    leader.state.committed([1], 8)
    assert leader.advance() == 1, "with too few in sync it stays where the follower is"

    assert leader.expand() is None

    leader.fetch(2, 1)
    assert leader.expand() == IsrChange({1: 51, 2: 52}, 8)


def test_who_has_stopped_fetching_is_not_asked_for_and_not_waited_for() -> None:
    leader = Leader(1)
    leader.write()
    leader.fetch(2, 1)
    leader.state.stopped(2, broker_epoch=52)
    assert leader.expand() is None
    leader.write()
    assert leader.advance() == 2

    leader.fetch(2, 2)

    assert leader.expand() == IsrChange({1: 51, 2: 52}, 7)


def test_what_a_former_run_of_a_follower_has_stopped_says_nothing_of_the_present_one() -> None:
    leader = Leader(1)
    leader.fetch(2, 0)
    leader.state.stopped(2, broker_epoch=51)
    assert leader.expand() == IsrChange({1: 51, 2: 52}, 7)


def test_who_has_never_fetched_is_not_caught_up_however_short_the_machine_has_run() -> None:
    leader = Leader(1, end_offset=10, now_ms=5)
    leader.write()
    assert leader.advance() == 11


def test_a_follower_that_has_everything_stays_however_long_it_is_silent() -> None:
    leader = Leader(1, 2)
    leader.write()
    leader.fetch(2, 1)
    assert leader.shrink(after_ms=10 * LAG_MAX_MS) is None


def test_a_follower_that_is_always_one_fetch_behind_is_in_sync() -> None:
    leader = Leader(1, 2)
    for number in range(100):
        leader.write()
        leader.fetch(2, number, after_ms=1_000)
    assert leader.shrink() is None


def test_a_follower_that_fetches_and_falls_behind_is_out() -> None:
    leader = Leader(1, 2)
    for number in range(100):
        leader.write(2)
        leader.fetch(2, number, after_ms=1_000)
    assert leader.shrink() == IsrChange({1: 51}, 7)


def test_a_broker_that_is_no_replica_is_not_counted() -> None:
    leader = Leader(1, 2)
    assert not leader.fetch(9, 0)
    leader.state.replicas_changed([1, 2, 9])
    assert leader.fetch(9, 0)
    assert leader.state.followers.keys() == {2, 9}


@pytest.mark.parametrize("seed", range(100))
def test_below_the_watermark_every_record_is_on_each_replica_that_may_lead_next(seed: int) -> None:
    """A replica in the controller's ISR may lead next, also where the leader has not heard yet that it is in it."""
    chance = random.Random(seed)
    leader = Leader(1)
    logs = {2: 0, 3: 0}
    controllers_isr, epoch = {1}, 7
    asked: list[IsrChange] = []
    for _ in range(300):
        match chance.randrange(7):
            case 0:
                leader.write(chance.randrange(1, 4))
            case 1 | 2:
                replica = chance.choice((2, 3))
                leader.fetch(replica, logs[replica], after_ms=chance.randrange(2_000))
                if chance.random() < 0.8:  # else the answer is lost
                    logs[replica] = chance.randint(logs[replica], leader.end_offset)
            case 3:
                change = leader.expand()
                asked += [change] if change else []
            case 4:
                change = leader.shrink(after_ms=chance.choice((0, 0, 0, LAG_MAX_MS + 1)))
                asked += [change] if change else []
            case 5 if asked:
                change = asked.pop()
                if change.partition_epoch == epoch and chance.random() < 0.8:
                    controllers_isr, epoch = set(change.isr), epoch + 1
                    if chance.random() < 0.3:
                        continue  # its answer is late: the metadata log will tell
                elif change.partition_epoch == epoch:
                    leader.state.refused()
                    continue
                leader.state.committed(controllers_isr, epoch)
            case 6 if not asked:
                leader.state.committed(controllers_isr, epoch)
        leader.advance()
        for replica in controllers_isr - {1}:
            assert leader.high_watermark <= logs[replica]
