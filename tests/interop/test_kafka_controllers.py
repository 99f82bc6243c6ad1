"""Following the metadata log of Apache Kafka's controllers, as a broker does that is their member."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from broker.metadata.cache import MetadataCache
from broker.metadata.loader import MetadataLoader
from broker.peers.backoff import Backoff
from broker.peers.connector import TcpConnector
from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.raft.observer import QuorumObserver, WrongCluster
from broker.raft.remote_quorum import REQUEST_TIMEOUT_MS, RemoteQuorum
from broker.runtime.clock import LoopClock
from dev.apache_kafka import ApacheKafka
from dev.broker_process import port_below_client_ports
from dev.kafka_jars import BEFORE, KAFKA_VERSION
from tests.interop import programs
from tests.interop.conftest import installed
from tests.support.clients import connect

CLUSTER: Final = "b3R0bGEtdGVzdC1jbHVzdA"
PATIENCE_S: Final = 60.0
SETTINGS: Final = {
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "metadata.log.max.snapshot.interval.ms": "0",
}


@pytest.fixture(params=[KAFKA_VERSION, BEFORE])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApacheKafka]:
    jars = str(installed(lambda: programs.kafka_libraries(request.param)))
    process = ApacheKafka(tmp_path / "kafka", settings=SETTINGS, port=port_below_client_ports(), libraries=jars)
    process.heap, process.quick_start = "512M", True
    process.start()
    try:
        yield process
    finally:
        process.close()


class Following:
    """An observer of a running Kafka; `image` is what it has replayed."""

    def __init__(self, kafka: ApacheKafka, *, cluster_id: str = CLUSTER) -> None:
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop, time.time)
        self._cache = MetadataCache()
        self.observer = QuorumObserver(
            MetadataLoader(self._cache), node_id=7, directory_id=bytes(range(100, 116)), cluster_id=cluster_id
        )
        stats = PeerStats()

        def make_peer(endpoint: PeerEndpoint) -> Peer:
            return Peer(
                endpoint,
                client_id="raft-client-7",
                connector=TcpConnector(clock),
                clock=clock,
                backoff=Backoff(random.random),
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                stats=stats,
            )

        bootstrap = [PeerEndpoint(UNKNOWN_ID, "127.0.0.1", kafka.port + 1)]
        self.quorum = RemoteQuorum(
            self.observer, bootstrap=bootstrap, make_peer=make_peer, clock=clock, chance=random.random
        )
        self.task = loop.create_task(self.quorum.run())

    @property
    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        return {name: len(topic.partitions) for name, topic in self._cache.image.topics.by_name.items()}

    def config(self, topic: str, name: str) -> str | None:
        return self._cache.image.configs.of_topic(topic).get(name)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert not self.task.done(), self.task.exception()
            assert time.monotonic() < deadline, f"{what} has not come to pass"
            await asyncio.sleep(0.02)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def following(kafka: ApacheKafka, test: Callable[[Following], Awaitable[None]]) -> None:
    """Run a test on the loop of an observer that has nothing yet."""

    async def run() -> None:
        one = Following(kafka)
        try:
            await test(one)
        finally:
            await one.end()

    asyncio.run(run())


@pytest.mark.timeout(240)
def test_what_kafkas_controller_decides_is_replayed_from_its_log_and_from_its_snapshots(kafka: ApacheKafka) -> None:
    client = connect("confluent-kafka", kafka.bootstrap)
    client.create_topic("orders", partitions=3)

    async def from_the_log(one: Following) -> None:
        await one.until(lambda: one.topics == {"orders": 3}, "the topic is in the image")
        assert (await one.quorum.leader()).port == kafka.port + 1
        client.alter_topic("orders", {"retention.ms": "1234567"})
        await one.until(lambda: one.config("orders", "retention.ms") == "1234567", "the config is in the image")
        for number in range(20):
            client.create_topic(f"topic-{number}", partitions=2)
        await one.until(lambda: len(one.topics) == 21, "all topics are in the image")
        client.delete_topic("topic-0")
        await one.until(lambda: "topic-0" not in one.topics, "the topic is not in the image any more")
        epoch = one.observer.leader_epoch
        kafka.kill()
        kafka.start()
        client.create_topic("after", partitions=1)
        await one.until(lambda: "after" in one.topics, "the log goes on in another epoch")
        assert one.observer.leader_epoch > epoch

    following(kafka, from_the_log)
    snapshots = [path.name for path in kafka.data_directory.glob("__cluster_metadata-0/*.checkpoint")]
    assert any(not name.startswith("0" * 20) for name in snapshots if name != "bootstrap.checkpoint"), snapshots

    async def from_a_snapshot(one: Following) -> None:
        await one.until(lambda: "after" in one.topics, "the topic is in the image")
        assert len(one.topics) == 21
        assert one.config("orders", "retention.ms") == "1234567"

    following(kafka, from_a_snapshot)

    async def of_another_cluster() -> None:
        one = Following(kafka, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
        with pytest.raises(WrongCluster, match="the cluster AAAAAAAAAAAAAAAAAAAAAA of this broker"):
            await asyncio.wait_for(one.task, PATIENCE_S)

    asyncio.run(of_another_cluster())
