"""A leader and its followers: fetches that move the high watermark, ISRs that the controller changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from broker.peers.endpoint import PeerEndpoint
from broker.replication.follower import Follower, FollowerId
from broker.replication.isr_alteration import (
    IsrCommitted,
    IsrOutdated,
    IsrRefused,
    Outcome,
    Then,
    WantedIsr,
    alteration_request,
    outcome_of,
)
from broker.replication.partition import LeaderAndIsr, Partition
from broker.replication.replica_fetchers import ReplicaFetchers
from broker.replication.replication import Replication
from broker.replication.traffic import ReplicaStats
from broker.request.faults import NotEnoughReplicas, NotLeaderOrFollower, UnknownLeaderEpoch
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionResponse
from storage.log_dir import LogDir
from tests.support.logs import LogHome, batch_of

TOPIC_ID = bytes([1] * 16)
LAG_MAX_MS = 30_000


class Cluster:
    """The other brokers, 2 and 3, as the metadata has them; and the controller, which a test answers for."""

    def __init__(self) -> None:
        self.broker_epoch = 51
        self.epochs = {2: 52, 3: 53}
        self.fenced: set[int] = set()
        self.wanted: list[tuple[WantedIsr, Then]] = []
        self.followed: list[tuple[Partition, int, int]] = []
        self.left: list[object] = []

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        return broker_id not in self.fenced and broker_epoch in (-1, self.epochs.get(broker_id))

    def is_outdated(self, broker_id: int, broker_epoch: int) -> bool:
        return -1 < broker_epoch < self.epochs.get(broker_id, -1)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.epochs and broker_id not in self.fenced

    def address_of(self, broker_id: int) -> PeerEndpoint | None:
        return None

    # The controller

    def submit(self, wanted: WantedIsr, then: Then) -> bool:
        if self.wanted:
            return False
        self.wanted.append((wanted, then))
        return True

    def withdraw(self, topic_id: bytes, partition: int) -> None:
        self.wanted.clear()

    def answer(self, outcome: Outcome) -> None:
        _, then = self.wanted.pop()
        then(outcome)

    @property
    def wanted_isr(self) -> set[int] | None:
        """The ISR that the controller is asked for."""
        return set(self.wanted[0][0].isr) if self.wanted else None

    # The fetchers

    def follow(self, partition: Partition) -> None:
        self.followed.append((partition, partition.leader, partition.leader_epoch))

    def leave(self, topic_partition: object) -> None:
        self.left.append(topic_partition)


class Leader:
    """Node 1 with one partition."""

    def __init__(self, home: LogHome, *, isr: tuple[int, ...] = (1, 2, 3), min_isr: int = 1, epoch: int = 5) -> None:
        self.cluster = Cluster()
        self.clock = ManualClock()
        self.home = home
        self.log = home.open()
        self.log.config = self.log.config.replace(min_insync_replicas=min_isr)
        self.moved: list[Partition] = []
        self.stats = ReplicaStats()
        self.partition = Partition(
            clock=self.clock,
            log=self.log,
            log_dir=cast(LogDir, None),
            topic_id=TOPIC_ID,
            node_id=1,
            state=LeaderAndIsr(1, epoch, (1, 2, 3), frozenset(isr), 7),
            on_disk_failure=lambda partition, error: None,
            view=self.cluster,
            lag_max_ms=LAG_MAX_MS,
        )
        self.replication = Replication(
            clock=self.clock,
            view=self.cluster,
            alterer=self.cluster,
            fetchers=cast(ReplicaFetchers, self.cluster),
            stats=self.stats,
            watermark_moved=self.moved.append,
        )

    def write(self, *values: bytes) -> None:
        for value in values:
            self.log.stage(batch_of(value), leader_epoch=self.partition.leader_epoch)
        self.log.append_all(self.clock.now_ms())
        self.partition.advance_high_watermark()

    def fetch(
        self,
        replica: int,
        offset: int,
        *,
        broker_epoch: int | None = None,
        log_start: int = 0,
        leader_epoch: int | None = None,
    ) -> None:
        """A follower fetches from the offset."""
        epoch = self.cluster.epochs[replica] if broker_epoch is None else broker_epoch
        follower = Follower(FollowerId(replica, epoch), self.replication)
        follower.check(self.partition, self.partition.leader_epoch if leader_epoch is None else leader_epoch)
        follower.has_fetched(self.partition, offset, log_start)

    def apply(self, **changes: Any) -> None:
        """The metadata has another state of the partition."""
        before = self.partition
        epoch = before.leader_epoch
        state = LeaderAndIsr(before.leader, epoch, before.replicas, before.in_sync_replicas, 8)._replace(**changes)
        self.partition.apply(state)
        self.replication.leadership_changed(self.partition, is_new_epoch=state.leader_epoch != epoch)


@pytest.fixture
def home(tmp_path: Path) -> LogHome:
    return LogHome(tmp_path)


def test_consumers_see_what_every_replica_in_sync_has(home: LogHome) -> None:
    leader = Leader(home)
    leader.fetch(2, 0)
    leader.fetch(3, 0)
    leader.moved.clear()
    leader.write(b"a", b"b")
    assert leader.log.high_watermark == 0

    leader.fetch(2, 2)
    assert leader.log.high_watermark == 0
    leader.fetch(3, 1)
    assert leader.log.high_watermark == 1
    leader.fetch(3, 2)

    assert leader.log.high_watermark == 2
    assert leader.moved == [leader.partition] * 2


def test_a_deletion_that_waits_is_woken_when_followers_have_deleted_the_records(home: LogHome) -> None:
    leader = Leader(home)
    leader.write(b"a", b"b")
    for replica in (2, 3):
        leader.fetch(replica, 2)
    leader.partition.delete_records_before(1)
    leader.moved.clear()

    leader.fetch(2, 2, log_start=1)
    assert (leader.partition.low_watermark, leader.moved) == (0, [leader.partition])
    leader.fetch(2, 2, log_start=1)
    leader.fetch(3, 2, log_start=1)
    assert (leader.partition.low_watermark, leader.moved) == (1, [leader.partition] * 2)


def test_a_fetch_of_a_broker_without_a_replica_or_of_its_last_run_counts_for_nothing(home: LogHome) -> None:
    leader = Leader(home)

    with pytest.raises(UnknownLeaderEpoch, match="broker 4 has no replica of"):
        leader.fetch(4, 0, broker_epoch=54)
    with pytest.raises(NotLeaderOrFollower, match="broker 4 has no replica of"):
        leader.fetch(4, 0, broker_epoch=54, leader_epoch=-1)
    with pytest.raises(NotLeaderOrFollower, match="broker 2 has registered again since its epoch 40"):
        leader.fetch(2, 0, broker_epoch=40)
    with pytest.raises(NotLeaderOrFollower, match="no node is a follower"):
        Follower(FollowerId(2, 52), None).check(leader.partition, leader.partition.leader_epoch)


def test_a_follower_that_has_caught_up_joins_the_isr_once_the_controller_agrees(home: LogHome) -> None:
    leader = Leader(home, isr=(1, 3))
    leader.write(b"a")
    leader.fetch(3, 1)
    leader.fetch(2, 0)
    assert leader.cluster.wanted_isr is None

    leader.fetch(2, 1)
    wanted, _ = leader.cluster.wanted[0]
    assert wanted == WantedIsr(TOPIC_ID, 0, 5, 7, {1: 51, 2: 52, 3: 53})
    assert leader.partition.in_sync_replicas == {1, 3}
    leader.cluster.answer(IsrCommitted((1, 2, 3), 5, 8))

    assert leader.partition.in_sync_replicas == {1, 2, 3}
    assert (leader.stats.isr_expands, leader.stats.isr_shrinks) == (1, 0)


def test_a_follower_that_lags_leaves_the_isr_and_the_high_watermark_goes_on(home: LogHome) -> None:
    leader = Leader(home)
    leader.write(b"a")
    leader.fetch(2, 1)
    leader.clock.advance(LAG_MAX_MS + 1)
    leader.fetch(2, 1)
    leader.replication.maintain_isrs([leader.partition])
    assert leader.cluster.wanted_isr == {1, 2}
    assert leader.log.high_watermark == 0
    leader.moved.clear()

    leader.cluster.answer(IsrCommitted((1, 2), 5, 8))

    assert leader.log.high_watermark == 1
    assert leader.stats.isr_shrinks == 1
    assert leader.moved == [leader.partition]


def test_a_follower_without_news_for_long_is_in_sync_when_records_come(home: LogHome) -> None:
    leader = Leader(home)
    leader.fetch(2, 0)
    leader.fetch(3, 0)
    leader.clock.advance(10 * LAG_MAX_MS)  # a fetch session does not name what is unchanged

    leader.write(b"a")
    leader.replication.maintain_isrs([leader.partition])

    assert leader.cluster.wanted_isr is None


def test_a_follower_that_has_caught_up_before_it_was_unfenced_joins_when_it_is(home: LogHome) -> None:
    leader = Leader(home, isr=(1, 3))
    leader.cluster.fenced.add(2)
    leader.fetch(2, 0)
    assert leader.cluster.wanted_isr is None

    leader.cluster.fenced.clear()
    leader.replication.brokers_changed([leader.partition])
    assert leader.cluster.wanted_isr == {1, 2, 3}

    leader.cluster.answer(IsrRefused())
    leader.replication.maintain_isrs([leader.partition])
    assert leader.cluster.wanted_isr == {1, 2, 3}


def test_a_refused_change_is_asked_for_again_and_an_outdated_one_waits_for_the_metadata(home: LogHome) -> None:
    leader = Leader(home, isr=(1, 3))
    leader.fetch(2, 0)
    leader.cluster.answer(IsrRefused())
    leader.fetch(2, 0)
    assert leader.cluster.wanted_isr == {1, 2, 3}

    leader.cluster.answer(IsrOutdated())
    leader.fetch(2, 0)
    assert leader.cluster.wanted_isr is None
    assert leader.partition.followers is not None
    assert leader.partition.followers.maximal_isr == {1, 2, 3}  # it may have been made
    leader.apply(in_sync_replicas=frozenset({1, 3}))
    leader.fetch(2, 0)

    assert leader.cluster.wanted_isr == {1, 2, 3}
    assert leader.stats.failed_isr_updates == 2


def test_an_answer_that_comes_when_another_broker_leads_changes_nothing(home: LogHome) -> None:
    leader = Leader(home, isr=(1, 3))
    leader.fetch(2, 0)
    _, then = leader.cluster.wanted[0]

    leader.apply(leader=2, leader_epoch=6)
    then(IsrCommitted((1, 2, 3), 5, 8))

    assert leader.partition.in_sync_replicas == {1, 3}
    assert leader.cluster.followed == [(leader.partition, 2, 6)]
    assert leader.cluster.wanted_isr is None


def test_metadata_that_is_older_than_the_controllers_answer_is_old_news(home: LogHome) -> None:
    leader = Leader(home, isr=(1, 3))
    leader.fetch(2, 0)
    leader.cluster.answer(IsrCommitted((1, 2, 3), 5, 9))

    leader.apply(in_sync_replicas=frozenset({1, 3}), partition_epoch=8)

    assert leader.partition.in_sync_replicas == {1, 2, 3}


def test_a_leader_from_an_unclean_election_tells_the_controller_that_it_has_taken_over(home: LogHome) -> None:
    leader = Leader(home)

    leader.apply(leader_epoch=6, in_sync_replicas=frozenset({1}), is_recovering=True)
    assert leader.cluster.wanted_isr == {1}
    leader.cluster.answer(IsrCommitted((1,), 6, 9))

    assert not leader.partition.is_recovering
    assert leader.partition.followers is not None
    assert leader.partition.followers.pending is None


def test_with_fewer_in_sync_than_the_topic_demands_nothing_is_acknowledged_nor_shown(home: LogHome) -> None:
    leader = Leader(home, isr=(1,), min_isr=2)

    with pytest.raises(NotEnoughReplicas, match="has 1 of 2 replicas in sync"):
        leader.partition.check_append(by_all=True)
    leader.write(b"a")

    assert leader.log.high_watermark == 0


def test_records_are_deleted_everywhere_once_the_brokers_that_run_have_deleted_them(home: LogHome) -> None:
    leader = Leader(home)
    leader.write(b"a", b"b")
    for replica in (2, 3):
        leader.fetch(replica, 2)
    leader.log.start_offset_to(2)
    assert leader.partition.low_watermark == 0

    follower = Follower(FollowerId(2, 52), leader.replication)
    follower.has_fetched(leader.partition, 2, 2)
    leader.cluster.fenced.add(3)

    assert leader.partition.low_watermark == 2


def test_a_partition_that_leaves_is_neither_fetched_nor_altered(home: LogHome) -> None:
    leader = Leader(home, isr=(1, 3))
    leader.fetch(2, 0)

    leader.replication.left(leader.partition)

    assert leader.cluster.left[-1] == leader.partition.topic_partition
    assert leader.cluster.wanted_isr is None


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.NONE, IsrCommitted((1, 2), 5, 8)),
        (ErrorCode.INELIGIBLE_REPLICA, IsrRefused()),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, IsrRefused()),
        (ErrorCode.INVALID_UPDATE_VERSION, IsrOutdated()),
        (ErrorCode.NEW_LEADER_ELECTED, IsrOutdated()),
        (ErrorCode.NOT_CONTROLLER, None),
        (ErrorCode.UNKNOWN_SERVER_ERROR, None),
    ],
)
def test_each_answer_of_the_controller_means_something(code: ErrorCode, outcome: Outcome | None) -> None:
    answer = AlterPartitionResponse.Topic.Partition(
        partition_index=0, error_code=code, leader_id=1, leader_epoch=5, isr=[1, 2], partition_epoch=8
    )

    assert outcome_of(answer) == outcome


def test_changes_of_several_partitions_go_into_one_request_by_topic() -> None:
    wanted = [WantedIsr(TOPIC_ID, index, 5, 7, {1: 51, 2: -1}) for index in (0, 1)]

    request = alteration_request([*wanted, WantedIsr(bytes(16), 0, 1, 1, {1: 51})], 1, 51)

    assert [(bytes(topic.topic_id), len(topic.partitions)) for topic in request.topics] == [
        (TOPIC_ID, 2),
        (bytes(16), 1),
    ]
    assert request.topics[0].partitions[1].new_isr == [1, 2]
