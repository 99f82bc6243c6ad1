"""Under Apache Kafka's controllers: their metadata log is followed, a broker registered, a partition replicated."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker.membership.alter_partition import AlterPartitionSender
from broker.membership.forwarder import ClientRequest, Forwarder
from broker.membership.member import BrokerMember
from broker.membership.remote_channel import RemoteChannel
from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topics import PartitionImage
from broker.metadata.loader import MetadataLoader
from broker.metadata.registration import Registration, known_directories
from broker.peers.connector import TcpConnector
from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.raft.observer import QuorumObserver, WrongCluster
from broker.raft.remote_quorum import REQUEST_TIMEOUT_MS, RemoteQuorum
from broker.replication.isr_alteration import IsrCommitted, IsrOutdated, IsrRefused, Outcome, WantedIsr
from broker.replication.replica_fetch import Append, BeginAnew, ReplicaFetch, Truncate, append
from broker.replication.replica_fetcher import FollowedPartition, ReplicaFetcher
from broker.runtime.backoff import Backoff
from broker.runtime.clock import LoopClock
from config.listeners import Listener
from config.log_config import LogConfig
from dev.apache_kafka import ApacheKafka
from dev.broker_process import port_below_client_ports
from dev.kafka_jars import BEFORE, KAFKA_VERSION
from protocol.errors import ErrorCode
from protocol.headers import decode_response, encode_request
from protocol.messages.fetch import FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.records.cluster_metadata import RegisterBrokerRecord
from protocol.records.principal import DefaultPrincipalData
from storage.errors import StorageError
from storage.files import FileSystem
from storage.loading import open_log
from storage.topic_partition import TopicPartition
from tests.interop import programs
from tests.interop.conftest import installed
from tests.support.clients import CODECS, Record, connect

CLUSTER: Final = "b3R0bGEtdGVzdC1jbHVzdA"
DIRECTORY: Final = bytes(range(100, 116))
NOW_MS: Final = 1_800_000_000_000
PATIENCE_S: Final = 60.0
OfPartition = FetchResponse.Response.Partition
SETTINGS: Final = {
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "metadata.log.max.snapshot.interval.ms": "0",
}


@pytest.fixture(params=[KAFKA_VERSION, BEFORE])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApacheKafka]:
    jars = str(installed(lambda: programs.kafka_libraries(request.param)))
    process = ApacheKafka(tmp_path / "kafka", settings=SETTINGS, port=port_below_client_ports(), libraries=jars)
    process.heap, process.quick_start = "512M", True
    with process:
        yield process


class Following:
    """An observer of a running Kafka; `image` is what it has replayed."""

    def __init__(self, kafka: ApacheKafka, *, cluster_id: str = CLUSTER) -> None:
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop, time.time)
        self._cache = MetadataCache()
        self.observer = QuorumObserver(
            MetadataLoader(self._cache), node_id=7, directory_id=DIRECTORY, cluster_id=cluster_id
        )
        self.clock, self._stats = clock, PeerStats()
        bootstrap = [PeerEndpoint(UNKNOWN_ID, "127.0.0.1", kafka.port + 1)]
        self.quorum = RemoteQuorum(
            self.observer, bootstrap=bootstrap, make_peer=self.make_peer, clock=clock, chance=random.random
        )
        self.task = loop.create_task(self.quorum.run())

    @property
    def image(self) -> MetadataImage:
        return self._cache.image

    def make_peer(self, endpoint: PeerEndpoint) -> Peer:
        return Peer(
            endpoint,
            client_id="7",
            connector=TcpConnector(self.clock),
            clock=self.clock,
            backoff=Backoff(random.random),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            stats=self._stats,
        )

    def member(self, *, previous_broker_epoch: int = -1) -> BrokerMember:
        """A broker without logs, in a run of its own."""
        return BrokerMember(
            Registration(
                node_id=7,
                incarnation_id=os.urandom(16),
                endpoints=[Listener("PLAINTEXT", "127.0.0.1", 29_092)],
                controller_endpoint=Listener("CONTROLLER", "127.0.0.1", 29_093),
                rack=None,
                metadata_directory_id=DIRECTORY,
                directories=[DIRECTORY],
            ),
            cluster_id=CLUSTER,
            previous_broker_epoch=previous_broker_epoch,
            channel=self.channel(),
            applied_offset=lambda: self.image.end_offset - 1,
            metadata_version=lambda: self.image.features.metadata_version,
            known_directories=lambda: known_directories(self.image, 7),
            clock=self.clock,
            chance=random.random,
        )

    def channel(self) -> RemoteChannel:
        return RemoteChannel(self.quorum, self.make_peer, self.clock, timeout_ms=4_500)

    async def created(self, topic: str) -> int:
        """Forward a client's request to create a topic of four partitions. Returns the error code of the answer."""
        wanted = CreateTopicsRequest.Topic(
            name=topic, num_partitions=4, replication_factor=1, assignments=[], configs=[]
        )
        frame = encode_request(42, "a client", CreateTopicsRequest(topics=[wanted]), 7)[4:]
        principal = DefaultPrincipalData(type="User", name="ANONYMOUS")
        channel = self.channel()
        forwarder = Forwarder(channel, self.clock, Backoff(random.random))
        response = await forwarder.forward(ClientRequest(frame, principal, bytes([127, 0, 0, 1])))
        channel.close()
        correlation_id, answer = decode_response(CreateTopicsResponse, 7, response)
        assert correlation_id == 42
        return answer.topics[0].error_code

    @property
    def registered(self) -> RegisterBrokerRecord | None:
        """Broker 7 in the metadata log."""
        return self.image.cluster.brokers.get(7)

    @property
    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        return {name: len(topic.partitions) for name, topic in self.image.topics.by_name.items()}

    def config(self, topic: str, name: str) -> str | None:
        return self.image.configs.of_topic(topic).get(name)

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
        assert await one.created("forwarded") == ErrorCode.NONE
        await one.until(lambda: one.topics.get("forwarded") == 4, "what was forwarded is in the image")
        assert await one.created("forwarded") == ErrorCode.TOPIC_ALREADY_EXISTS
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
        assert len(one.topics) == 22
        assert one.config("orders", "retention.ms") == "1234567"

    following(kafka, from_a_snapshot)

    async def from_a_snapshot_that_is_gone(one: Following) -> None:
        gone = OfPartition.SnapshotId(end_offset=999_999, epoch=1)
        named = OfPartition(partition_index=0, high_watermark=-1, records=None, snapshot_id=gone)
        one.observer.answered(FetchResponse(responses=[FetchResponse.Response(partitions=[named])]))
        assert isinstance(one.observer.request(), FetchSnapshotRequest)
        await one.until(lambda: "after" in one.topics, "the topic is in the image")

    following(kafka, from_a_snapshot_that_is_gone)

    async def of_another_cluster() -> None:
        one = Following(kafka, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
        with pytest.raises(WrongCluster, match="the cluster AAAAAAAAAAAAAAAAAAAAAA of this broker"):
            await asyncio.wait_for(one.task, PATIENCE_S)

    asyncio.run(of_another_cluster())


async def wait(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), PATIENCE_S)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kafka", [KAFKA_VERSION], indirect=True)
def test_a_broker_is_registered_unfenced_and_stops_with_the_controllers_leave(kafka: ApacheKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def brokers() -> dict[int, str]:
        """Those that Kafka tells its clients."""
        return {node: f"{broker.host}:{broker.port}" for node, broker in admin.list_topics(timeout=30).brokers.items()}

    async def test(one: Following) -> None:
        first = one.member()
        running = asyncio.create_task(first.run())
        await wait(first.caught_up)
        assert one.registered is not None
        assert (one.registered.broker_epoch, one.registered.fenced) == (first.broker_epoch, True)
        first.ready()
        await wait(first.unfenced)
        await one.until(lambda: one.registered is not None and not one.registered.fenced, "the log has it unfenced")
        await one.until(lambda: brokers().get(7) == "127.0.0.1:29092", "Kafka's clients see it")
        first.shut_down()
        await wait(first.may_stop)
        await asyncio.wait_for(running, PATIENCE_S)
        await one.until(lambda: one.registered is not None and one.registered.fenced, "the log has it fenced")

        # The session of its last run is not over.
        again = one.member(previous_broker_epoch=first.broker_epoch)
        began = time.monotonic()
        running = asyncio.create_task(again.run())
        again.ready()
        await wait(again.unfenced)
        assert again.broker_epoch > first.broker_epoch
        assert 8 < time.monotonic() - began < 30
        kafka.kill()
        kafka.start()
        await one.until(lambda: brokers().get(7) == "127.0.0.1:29092", "it goes on with the next leader")
        running.cancel()

    following(kafka, test)


class Copy:
    """Broker 7's replica of a partition, which it fetches from broker 1."""

    def __init__(self, directory: Path, following: Following, member: BrokerMember, topic: str, leader: str) -> None:
        self._following = following
        self._place = TopicPartition(topic, 0)
        self.path = directory / f"{topic}-0" / f"{0:020d}.log"
        self.log = open_log(
            FileSystem(), str(self.path.parent), topic_partition=self._place, config=LogConfig(), now_ms=NOW_MS
        )  # fmt: skip
        host, _, port = leader.rpartition(":")
        peer = following.make_peer(PeerEndpoint(1, host, int(port)))
        self.fetcher = ReplicaFetcher(
            peer, self, node_id=7, broker_epoch=lambda: member.broker_epoch, clock=following.clock
        )

    @property
    def partition(self) -> PartitionImage:
        found = self._following.image.topics.by_name[self._place.topic].partition(0)
        assert found is not None
        return found

    def follow(self) -> None:
        """Fetch in the leader epoch that the metadata log has."""
        topic_id = self._following.image.topics.by_name[self._place.topic].topic_id
        epoch = self.partition.leader_epoch
        fetch = ReplicaFetch(self.log, leader_id=1, leader_epoch=epoch, directory_id=DIRECTORY)
        self.fetcher.follow(FollowedPartition(self._place, topic_id=topic_id, leader_epoch=epoch, fetch=fetch))

    async def perform(self, followed: FollowedPartition, step: Append | Truncate | BeginAnew) -> None:
        assert isinstance(step, Append), step
        append(self.log, step, NOW_MS)

    def is_log_start_saved(self, followed: FollowedPartition) -> bool:
        return True  # no log start moves

    async def save_log_starts(self, unsaved: Sequence[FollowedPartition]) -> Mapping[TopicPartition, StorageError]:
        raise AssertionError("no log start moves")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kafka", [KAFKA_VERSION], indirect=True)
def test_a_partition_is_replicated_byte_for_byte_and_the_replica_is_in_sync(kafka: ApacheKafka, tmp_path: Path) -> None:
    admin, client = AdminClient({"bootstrap.servers": kafka.bootstrap}), connect("confluent-kafka", kafka.bootstrap)

    async def test(one: Following) -> None:
        member = one.member()
        running = asyncio.create_task(member.run())
        member.ready()
        await wait(member.unfenced)
        (created,) = admin.create_topics([NewTopic("copied", 1, replica_assignment=[[1, 7]])]).values()
        created.result(60)
        await one.until(lambda: "copied" in one.topics, "the topic is in the image")
        copy = Copy(tmp_path, one, member, "copied", kafka.bootstrap)
        fetching = asyncio.create_task(copy.fetcher.run())
        copy.follow()
        for codec in CODECS:
            # Acknowledged by both: meanwhile the copy must be fetched.
            records = [Record(key=b"k", value=b"%d" % n * 50) for n in range(200)]
            await asyncio.to_thread(client.produce, "copied", records, codec=codec)
        assert set(copy.partition.isr) == {1, 7}, "the replica is in sync"
        theirs = kafka.data_directory / "copied-0" / copy.path.name

        def is_the_same() -> bool:
            size = theirs.stat().st_size
            return copy.log.high_watermark == 200 * len(CODECS) and copy.path.read_bytes()[:size] == theirs.read_bytes()

        await one.until(is_the_same, "the files are the same")
        kafka.kill()
        epoch = copy.partition.leader_epoch
        kafka.start()
        await one.until(
            lambda: copy.partition.leader_epoch > epoch and copy.partition.leader == 1, "a new leader epoch"
        )
        await one.until(lambda: copy.fetcher.partitions == [], "the old epoch is fenced")
        copy.follow()
        await asyncio.to_thread(client.produce, "copied", [Record(value=b"after") for _ in range(10)])
        await one.until(lambda: copy.log.log_end_offset == 200 * len(CODECS) + 10, "the replica goes on")
        await one.until(lambda: copy.path.read_bytes()[: theirs.stat().st_size] == theirs.read_bytes(), "the files are")
        for task in (fetching, running):
            task.cancel()

    following(kafka, test)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kafka", [KAFKA_VERSION], indirect=True)
def test_a_leader_is_rid_of_a_follower_that_lags_and_is_refused_one_that_does_not_exist(kafka: ApacheKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    async def test(one: Following) -> None:
        member = one.member()
        running = asyncio.create_task(member.run())
        member.ready()
        await wait(member.unfenced)
        (created,) = admin.create_topics([NewTopic("led", 1, replica_assignment=[[7, 1]])]).values()
        created.result(60)
        await one.until(lambda: "led" in one.topics, "the topic is in the image")
        sender = AlterPartitionSender(
            one.channel(), node_id=7, broker_epoch=lambda: member.broker_epoch, clock=one.clock
        )
        sending = asyncio.create_task(sender.run())

        def partition() -> PartitionImage:
            found = one.image.topics.by_name["led"].partition(0)
            assert found is not None
            return found

        async def outcome(isr: dict[int, int], *, partition_epoch: int) -> Outcome:
            led, answered = partition(), asyncio.get_running_loop().create_future()
            topic_id = one.image.topics.by_name["led"].topic_id
            wanted = WantedIsr(topic_id, 0, led.leader_epoch, partition_epoch, isr)
            assert sender.submit(wanted, answered.set_result)
            found: Outcome = await asyncio.wait_for(answered, PATIENCE_S)
            return found

        led = partition()
        assert (led.leader, set(led.isr)) == (7, {1, 7})
        alone = {7: member.broker_epoch}
        assert await outcome(alone, partition_epoch=led.partition_epoch) == IsrCommitted(
            (7,), led.leader_epoch, led.partition_epoch + 1
        )
        await one.until(lambda: partition().isr == (7,), "the metadata log has it, too")
        assert await outcome(alone, partition_epoch=led.partition_epoch) == IsrOutdated()
        stale = {**alone, 1: 12_345}
        assert await outcome(stale, partition_epoch=led.partition_epoch + 1) == IsrRefused()
        for task in (sending, running):
            task.cancel()

    following(kafka, test)
