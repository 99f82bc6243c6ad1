"""ReplicaFetchers: from which leader each followed partition is fetched, and by which of the fetchers to it."""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from broker.peers.peer import Peer
from broker.replication.partition import Partition
from broker.replication.replica_fetch import ReplicaFetch
from broker.replication.replica_fetcher import FetcherSettings, FollowedPartition, ReplicaFetcher, StepPerformer
from broker.replication.throttles import ReplicationThrottle
from broker.runtime.clock import Clock
from protocol.records.cluster_metadata import NO_LEADER
from protocol.schema import NO_UUID
from storage.topic_partition import TopicPartition

log = logging.getLogger(__name__)

Failed = Callable[[BaseException], None]


class RunningFetcher(NamedTuple):
    """One of the fetchers to a leader."""

    leader: int
    number: int
    """From 0 to `num.replica.fetchers` - 1, for each leader."""
    peer: Peer
    fetcher: ReplicaFetcher
    has_ended: bool
    """Its task has failed, which is a bug."""


class _Running:
    """A fetcher and its task."""

    __slots__ = ("fetcher", "peer", "task")

    def __init__(self, fetcher: ReplicaFetcher, peer: Peer, task: "asyncio.Task[None]") -> None:
        self.fetcher = fetcher
        self.peer = peer
        self.task = task


class ReplicaFetchers:
    """The fetchers of this broker, `num.replica.fetchers` to each leader. A fetcher without partitions ends."""

    def __init__(
        self,
        *,
        node_id: int,
        make_peer: Callable[[int, str], Peer | None],
        performer: StepPerformer,
        broker_epoch: Callable[[], int],
        directory_id: Callable[[Partition], bytes | None],
        clock: Clock,
        settings: FetcherSettings,
        count: int,
        on_failure: Failed,
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        """
        Args:
            node_id: this broker.
            make_peer: connects to a broker under a client id; None while its address is not known.
            performer: changes the logs.
            broker_epoch: that of this broker's registration.
            directory_id: the id of the log directory that a partition is in, or None.
            clock: the time.
            settings: of all fetchers.
            count: `num.replica.fetchers`.
            on_failure: called with what a fetcher's task raises, which is a bug.
            throttle: how fast replicas that lag may catch up; None: without a limit.
        """
        self._node_id = node_id
        self._make_peer = make_peer
        self._performer = performer
        self._broker_epoch = broker_epoch
        self._directory_id = directory_id
        self._clock = clock
        self._settings = settings
        self._count = count
        self._on_failure = on_failure
        self._throttle = throttle
        self._running: dict[tuple[int, int], _Running] = {}
        self._followed: dict[TopicPartition, tuple[Partition, int, int]] = {}
        """Partition, leader and leader epoch of what is to be fetched, whether or not the leader's address is known."""
        self._is_closed = False

    def __len__(self) -> int:
        """How many fetchers there are."""
        return len(self._running)

    @property
    def running(self) -> list[RunningFetcher]:
        """The fetchers, for metrics."""
        return [
            RunningFetcher(leader, number, running.peer, running.fetcher, has_ended=running.task.done())
            for (leader, number), running in self._running.items()
        ]

    def followed(self, topic_partition: TopicPartition) -> tuple[int, int, FollowedPartition] | None:
        """A partition that is fetched: its leader, the number of the fetcher, and what the fetcher knows of it."""
        entry = self._followed.get(topic_partition)
        if entry is None:
            return None
        leader, number = key = self._key(topic_partition, entry[1])
        running = self._running.get(key)
        followed = None if running is None else running.fetcher.followed(topic_partition)
        return None if followed is None else (leader, number, followed)

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its leader from now on, if the leader or its epoch has changed; or fetch it no more if
        it has no leader."""
        topic_partition = partition.topic_partition
        followed = self._followed.get(topic_partition)
        if followed == (partition, partition.leader, partition.leader_epoch):
            return
        if partition.leader in (NO_LEADER, self._node_id) or partition.is_gone:
            self.leave(topic_partition)
            return
        if followed is not None:
            self._stop(topic_partition, followed[1])
        self._followed[topic_partition] = partition, partition.leader, partition.leader_epoch
        self._start(partition)

    def leave(self, topic_partition: TopicPartition) -> None:
        """Fetch a partition no more."""
        followed = self._followed.pop(topic_partition, None)
        if followed is not None:
            self._stop(topic_partition, followed[1])

    def addresses_changed(self, address_of: Callable[[int], object]) -> None:
        """Brokers have registered anew: connect to those again whose address is another one, or is known by now."""
        for key, running in list(self._running.items()):
            if running.peer.endpoint != address_of(key[0]):
                self._end(key)
        for partition, leader, _ in list(self._followed.values()):
            if self._key(partition.topic_partition, leader) not in self._running:
                self._start(partition)

    def resize(self, count: int) -> None:
        """Have ``count`` fetchers for each leader."""
        if count == self._count:
            return
        for key in list(self._running):
            self._end(key)
        self._count = count
        for partition, _, _ in self._followed.values():
            self._start(partition)

    async def close(self) -> None:
        """Fetch nothing any more, and return when no log is being changed."""
        self._is_closed = True
        self._followed.clear()
        tasks = [running.task for running in self._running.values()]
        for key in list(self._running):
            self._end(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _key(self, topic_partition: TopicPartition, leader: int) -> tuple[int, int]:
        if self._count == 1:
            return leader, 0
        topic, index = topic_partition
        return leader, (31 * crc32(topic.encode()) + index) % self._count

    def _start(self, partition: Partition) -> None:
        if self._is_closed:
            return
        key = self._key(partition.topic_partition, partition.leader)
        running = self._running.get(key)
        if running is None:
            running = self._begin(key)
        if running is not None:
            running.fetcher.follow(
                FollowedPartition(
                    partition.topic_partition,
                    topic_id=partition.topic_id,
                    leader_epoch=partition.leader_epoch,
                    fetch=ReplicaFetch(
                        partition.log,
                        leader_id=partition.leader,
                        leader_epoch=partition.leader_epoch,
                        directory_id=self._directory_id(partition) or NO_UUID,
                    ),
                )
            )

    def _begin(self, key: tuple[int, int]) -> _Running | None:
        leader, number = key
        peer = self._make_peer(leader, f"broker-{self._node_id}-fetcher-{number}")
        if peer is None:
            log.warning("node %d leads partitions that this broker follows, and has no address yet", leader)
            return None
        fetcher = ReplicaFetcher(
            peer,
            self._performer,
            node_id=self._node_id,
            broker_epoch=self._broker_epoch,
            clock=self._clock,
            settings=self._settings,
            throttle=self._throttle,
        )
        task = asyncio.get_running_loop().create_task(fetcher.run(), name=f"replica fetcher {leader}-{number}")
        task.add_done_callback(self._ended)
        running = self._running[key] = _Running(fetcher, peer, task)
        log.info("replicating from %s", peer.endpoint)
        return running

    def _stop(self, topic_partition: TopicPartition, leader: int) -> None:
        key = self._key(topic_partition, leader)
        running = self._running.get(key)
        if running is not None:
            running.fetcher.leave(topic_partition)
            if not running.fetcher.partitions:
                self._end(key)

    def _end(self, key: tuple[int, int]) -> None:
        running = self._running.pop(key)
        running.task.cancel()
        running.peer.close()  # which a task that has not begun yet does not do

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("%s has ended", task.get_name(), exc_info=error)
            self._on_failure(error)
