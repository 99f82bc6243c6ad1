"""A leader whose metadata log observers fetch: requests and answers go through the codec, as over a connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.loader import MetadataLoader
from broker.raft.metadata_fetch import MetadataFetches
from broker.raft.observer import Next, QuorumObserver
from broker.request.node import Endpoint, Node
from broker.runtime.purgatory import Purgatory
from broker.runtime.timing_wheel import TimingWheel
from protocol.codec import decode, encode
from protocol.headers import decode_response, frame_response
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.records.cluster_metadata import TopicRecord
from storage.files import FileRegion
from tests.unit.broker.metadata.metadata_node import HeldWorker, MetadataNode

CLUSTER = "QT2GTK3kRjSc1VXmyAl4iw"
LISTENER = "CONTROLLER"
DIRECTORY = bytes(range(16))


class Leader:
    """A node that has just started, and answers fetches of its metadata log."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.node = MetadataNode(directory, **settings)
        self.read_ahead = HeldWorker()
        self.purgatory = Purgatory(TimingWheel(self.node.clock))
        self.fetches = MetadataFetches(
            self.node.log,
            files=self.node.files,
            node=Node(node_id=1, cluster_id=CLUSTER, rack=None, endpoints={LISTENER: Endpoint("10.0.0.1", 9093)}),
            clock=self.node.clock,
            purgatory=self.purgatory,
            read_ahead=self.read_ahead,  # type: ignore[arg-type] # a thread that works on command
        )
        self._topics = 0

    @property
    def epoch(self) -> int:
        return self.node.log.leader_epoch

    @property
    def end_offset(self) -> int:
        return self.node.log.end_offset

    def append(self, count: int = 1) -> None:
        """Append a topic, which becomes durable with `work`."""
        for _ in range(count):
            self._topics += 1
            name = f"t{self.epoch}-{self._topics}"
            topic_id = self.epoch.to_bytes(8, "big") + self._topics.to_bytes(8, "big")
            self.node.log.append([(TopicRecord(name=name, topic_id=topic_id), 0)], lambda: None)

    def work(self) -> None:
        """Let the disk do all that is due."""
        self.node.worker.work()

    def commit(self, count: int = 1) -> None:
        """Append topics, and make them durable."""
        self.append(count)
        self.work()

    def snapshot(self) -> None:
        """Write a snapshot."""
        self.node.log.write_snapshot()
        self.work()

    def restarted(self, **settings: Any) -> Leader:
        """The same node after a clean stop, in the next epoch."""
        self.node.stop()
        return Leader(Path(self.node.directory), was_clean=True, **settings)

    def ask(self, request: FetchRequest | FetchSnapshotRequest, version: int) -> list[Any]:
        """Send a request, and return the list that gets its answer: now, or when the fetch has waited."""
        answers: list[Any] = []
        received: Any = decode(type(request), version, memoryview(encode(request, version)))
        if isinstance(received, FetchSnapshotRequest):
            self.fetches.fetch_snapshot(received, version, LISTENER, _into(answers, FetchSnapshotResponse, version))
        else:
            self.fetches.fetch(received, version, LISTENER, _into(answers, FetchResponse, version))
        self.read_ahead.work()
        return answers

    def fetch(self, version: int = 18, **fields: Any) -> FetchResponse:
        """The answer to a fetch that is answered at once."""
        (answer,) = self.ask(self.request(**fields), version)
        assert isinstance(answer, FetchResponse)
        return answer

    def request(
        self,
        *,
        offset: int = 0,
        epoch: int | None = None,
        last_epoch: int = 0,
        high_watermark: int = -1,
        replica_id: int = 7,
        cluster_id: str | None = CLUSTER,
        directory_id: bytes = DIRECTORY,
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
    ) -> FetchRequest:
        """A fetch of the metadata log by an observer."""
        partition = FetchRequest.Topic.Partition(
            partition=0,
            current_leader_epoch=self.epoch if epoch is None else epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=0,
            replica_directory_id=directory_id,
            high_watermark=high_watermark,
        )
        return FetchRequest(
            cluster_id=cluster_id,
            replica_id=replica_id,
            replica_state=FetchRequest.ReplicaState(replica_id=replica_id),
            max_wait_ms=max_wait_ms,
            min_bytes=0,
            max_bytes=max_bytes,
            topics=[FetchRequest.Topic(topic_id=bytes(15) + b"\1", partitions=[partition])],
        )


class Follower:
    """An observer, and the image that it has made of the leader's log."""

    def __init__(self, node_id: int = 7, *, version: int = 18, most_bytes: int = 1 << 20) -> None:
        self._cache = MetadataCache()
        self._version = version
        self._most_bytes = most_bytes
        self.asked: list[str] = []
        """The names of the requests, each run of the same requests once."""
        self.observer = QuorumObserver(
            MetadataLoader(self._cache), node_id=node_id, directory_id=DIRECTORY, cluster_id=CLUSTER
        )

    @property
    def image(self) -> MetadataImage:
        return self._cache.image

    @property
    def topics(self) -> set[str]:
        return set(self.image.topics.by_name)

    def step(self, leader: Leader, *, max_wait_ms: int = 0) -> Next | None:
        """One request and its answer; None if the fetch waits."""
        request = replace(self.observer.request(), max_bytes=self._most_bytes)
        name = type(request).__name__.removesuffix("Request")
        if self.asked[-1:] != [name]:
            self.asked.append(name)
        if isinstance(request, FetchRequest):
            request = replace(request, max_wait_ms=max_wait_ms)
        version = min(self._version, 1) if isinstance(request, FetchSnapshotRequest) else self._version
        answers = leader.ask(request, version)
        return self.observer.answered(answers[0]) if answers else None

    def catch_up(self, leader: Leader) -> None:
        """Ask until everything is there that is committed."""
        for _ in range(10_000):
            self.step(leader)
            if self.observer.leader_epoch == leader.epoch and self.observer.high_watermark == leader.end_offset:
                return
        raise AssertionError(f"{self.observer.high_watermark} of {leader.end_offset} after 10,000 requests")


def _into(answers: list[Any], cls: type[Any], version: int) -> Callable[[Any], None]:
    def then(answer: Any) -> None:
        chunks = frame_response(1, answer, version)
        data = b"".join(chunk.read() if isinstance(chunk, FileRegion) else chunk for chunk in chunks)  # type: ignore[misc]
        answers.append(decode_response(cls, version, data[4:])[1])

    return then
