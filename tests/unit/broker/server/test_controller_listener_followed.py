"""Our own observer follows a node's metadata log over its controller listener: TCP, framing, versions and all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from broker.metadata.cache import MetadataCache
from broker.metadata.loader import MetadataLoader
from broker.peers.connector import TcpConnector
from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.raft.observer import QuorumObserver
from broker.raft.remote_quorum import REQUEST_TIMEOUT_MS, RemoteQuorum
from broker.runtime.backoff import Backoff
from tests.support.broker import PATIENCE_S, WITH_CONTROLLER_LISTENER, InProcessBroker
from tests.unit.broker.server.controller_clients import DIRECTORY, metadata_quorum

pytestmark = pytest.mark.settings(
    **WITH_CONTROLLER_LISTENER,
    metadata_log_max_record_bytes_between_snapshots=2_000,
)


class Following:
    """Node 7, which follows the log of the broker in the test."""

    def __init__(self, broker: InProcessBroker) -> None:
        self._broker = broker
        self._cache = MetadataCache()
        cluster_id = broker.server.components.node.cluster_id
        self.observer = QuorumObserver(
            MetadataLoader(self._cache), node_id=7, directory_id=DIRECTORY, cluster_id=cluster_id
        )
        (listener,) = broker.server.socket_server.controller_listeners
        self.quorum = RemoteQuorum(
            self.observer,
            bootstrap=[PeerEndpoint(UNKNOWN_ID, listener.host, listener.port)],
            make_peer=self._make_peer,
            clock=broker.clock,
            chance=lambda: 0.5,
        )

        async def start() -> asyncio.Task[None]:
            return asyncio.create_task(self.quorum.run())

        self._task = broker.run(start())

    def _make_peer(self, endpoint: PeerEndpoint) -> Peer:
        return Peer(
            endpoint,
            client_id="7",
            connector=TcpConnector(self._broker.clock),
            clock=self._broker.clock,
            backoff=Backoff(lambda: 0.5),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            stats=PeerStats(),
        )

    @property
    def topics(self) -> set[str]:
        return set(self._cache.image.topics.by_name)

    def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until ``condition`` holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert not self._task.done(), self._task.exception()
            assert time.monotonic() < deadline, "it did not come to pass"
            self._broker.run(asyncio.sleep(0.001))
            self._broker.advance(5)

    def end(self) -> None:
        async def end() -> None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

        self._broker.run(end())


@pytest.fixture
def following(broker: InProcessBroker) -> Iterator[Following]:
    follower = Following(broker)
    yield follower
    follower.end()


def test_changes_are_followed_as_they_are_committed(broker: InProcessBroker, following: Following) -> None:
    following.until(lambda: following.quorum.known_leader is not None)
    for name in ("first", "second"):
        broker.create_topic(name)
        following.until(lambda name=name: name in following.topics)  # type: ignore[misc]

    ((partition,),) = (topic.partitions for topic in broker.ask(metadata_quorum(), 2).topics)
    assert [observer.replica_id for observer in partition.observers] == [7]
    leader = following.quorum.known_leader
    assert leader is not None
    assert leader.node_id == 1


def test_a_late_follower_begins_with_a_snapshot(broker: InProcessBroker) -> None:
    for number in range(20):
        broker.create_topic(f"t{number}")
    stats = broker.server.components.metadata_log
    assert stats is not None
    broker.wait_until(lambda: stats.stats.snapshot_bytes > 0)

    following = Following(broker)
    following.until(lambda: following.observer.high_watermark == broker.server.components.raft.high_watermark)

    assert following.topics == {f"t{number}" for number in range(20)}
    following.end()
