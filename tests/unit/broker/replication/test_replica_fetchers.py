"""Which fetcher follows which partition: by leader, by epoch, by address."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from broker.peers.endpoint import PeerEndpoint
from broker.peers.peer import Peer
from broker.replication.partition import Partition
from broker.replication.replica_fetcher import FetcherSettings, FollowedPartition, ReplicaFetcher, StepPerformer
from broker.replication.replica_fetchers import ReplicaFetchers
from broker.runtime.manual_clock import ManualClock
from protocol.records.cluster_metadata import NO_LEADER
from storage.topic_partition import TopicPartition


class Followed:
    """A partition of this broker, as far as the fetchers look at it."""

    def __init__(self, name: str, leader: int, epoch: int = 1) -> None:
        self.topic_partition = TopicPartition(name, 0)
        self.topic_id = name.encode().ljust(16)
        self.leader = leader
        self.leader_epoch = epoch
        self.is_gone = False
        self.log = _Log()


class _Log:
    log_end_offset = log_start_offset = due_flush_offset = recovery_point = 0
    lost_from = None
    is_writing = False
    leader_epochs = type("Epochs", (), {"latest": -1})()


class _Logs:
    """Performs nothing, since no leader answers."""

    def is_log_start_saved(self, _: FollowedPartition) -> bool:
        return True


class Cluster:
    """The addresses of the leaders, and the connections that were made to them. No leader answers."""

    def __init__(self) -> None:
        self.addresses = {1: PeerEndpoint(1, "one", 9092), 2: PeerEndpoint(2, "two", 9092)}
        self.open: list[PeerEndpoint] = []
        self.client_ids: list[str] = []

    def make_peer(self, leader: int, client_id: str) -> Peer | None:
        address = self.addresses.get(leader)
        if address is None:
            return None
        self.client_ids.append(client_id)
        self.open.append(address)
        return cast(Peer, _Peer(self, address))


class _Peer:
    def __init__(self, cluster: Cluster, endpoint: PeerEndpoint) -> None:
        self._cluster = cluster
        self.endpoint = endpoint

    async def ask(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    def close(self) -> None:
        if self.endpoint in self._cluster.open:
            self._cluster.open.remove(self.endpoint)


def following(test: Callable[[ReplicaFetchers, Cluster], Awaitable[None]], *, count: int = 1) -> None:
    async def run() -> None:
        cluster = Cluster()
        failures: list[BaseException] = []
        fetchers = ReplicaFetchers(
            node_id=7,
            make_peer=cluster.make_peer,
            performer=cast(StepPerformer, _Logs()),
            broker_epoch=lambda: 50,
            directory_id=lambda partition: None,
            clock=ManualClock(),
            settings=FetcherSettings(),
            count=count,
            on_failure=failures.append,
        )
        await test(fetchers, cluster)
        await fetchers.close()
        assert cluster.open == []
        assert failures == []

    asyncio.run(run())


def running(fetchers: ReplicaFetchers) -> list[ReplicaFetcher]:
    return [each.fetcher for each in fetchers.running]


def followed_by(fetchers: ReplicaFetchers) -> list[list[str]]:
    """The topics of each fetcher."""
    return [sorted(partition.topic for partition in fetcher.partitions) for fetcher in running(fetchers)]


def follow(fetchers: ReplicaFetchers, *partitions: Any) -> None:
    for partition in partitions:
        fetchers.follow(cast(Partition, partition))


def test_the_partitions_of_one_leader_share_a_fetcher_and_those_of_another_have_their_own() -> None:
    async def test(fetchers: ReplicaFetchers, cluster: Cluster) -> None:
        follow(fetchers, Followed("orders", 1), Followed("payments", 1), Followed("clicks", 2))

        assert followed_by(fetchers) == [["orders", "payments"], ["clicks"]]
        assert cluster.client_ids == ["broker-7-fetcher-0"] * 2

    following(test)


def test_several_fetchers_to_one_leader_divide_its_partitions() -> None:
    async def test(fetchers: ReplicaFetchers, cluster: Cluster) -> None:
        follow(fetchers, *(Followed(f"topic-{number}", 1) for number in range(40)))
        assert sorted(cluster.client_ids) == ["broker-7-fetcher-0", "broker-7-fetcher-1"]
        first, second = followed_by(fetchers)
        assert len(first) + len(second) == 40

        fetchers.resize(1)
        assert [len(topics) for topics in followed_by(fetchers)] == [40]

    following(test, count=2)


def test_a_new_epoch_begins_anew_and_the_same_epoch_disturbs_nothing() -> None:
    async def test(fetchers: ReplicaFetchers, cluster: Cluster) -> None:
        orders = Followed("orders", 1)
        follow(fetchers, orders)
        await asyncio.sleep(0)
        (fetcher,) = running(fetchers)
        follow(fetchers, orders)
        assert running(fetchers) == [fetcher]

        orders.leader, orders.leader_epoch = 2, 2
        follow(fetchers, orders)

        assert followed_by(fetchers) == [["orders"]]
        assert running(fetchers) != [fetcher]

    following(test)


def test_a_partition_without_leader_or_led_here_is_not_fetched() -> None:
    async def test(fetchers: ReplicaFetchers, cluster: Cluster) -> None:
        orders, payments = Followed("orders", 1), Followed("payments", 1)
        follow(fetchers, orders, payments)

        orders.leader, payments.leader = NO_LEADER, 7
        follow(fetchers, orders, payments)

        assert len(fetchers) == 0

    following(test)


def test_a_leader_without_an_address_is_asked_once_it_has_one_and_again_where_it_has_another() -> None:
    async def test(fetchers: ReplicaFetchers, cluster: Cluster) -> None:
        follow(fetchers, Followed("orders", 3))
        assert len(fetchers) == 0

        for port in (9092, 9093):
            cluster.addresses[3] = PeerEndpoint(3, "three", port)
            fetchers.addresses_changed(cluster.addresses.get)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert cluster.open[-1] == PeerEndpoint(3, "three", port)
            assert followed_by(fetchers) == [["orders"]]

        fetchers.leave(TopicPartition("orders", 0))
        assert len(fetchers) == 0

    following(test)


def test_after_the_close_nothing_is_followed() -> None:
    async def test(fetchers: ReplicaFetchers, cluster: Cluster) -> None:
        await fetchers.close()
        follow(fetchers, Followed("orders", 1))
        assert len(fetchers) == 0

    following(test)
