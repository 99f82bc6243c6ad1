"""ReplicaAssignment makes a few partitions at a time, so that requests need not wait for ten thousand of them. It hosts
the logs that are found at the start as the metadata has them when they are loaded."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from broker.metadata.image.records import Record
from broker.metadata.loader import MetadataLoader
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.runtime.manual_clock import ManualClock
from broker.server.replica_assignment import MOST_AT_ONCE, RETRY_MS, ReplicaAssignment
from broker.server.startup import Startup
from config.broker_settings import BrokerSettings
from config.resources import ConfigResource
from protocol.errors import ErrorCode as E
from protocol.messages.produce import ProduceResponse
from protocol.messages.topics import DeleteTopicsRequest
from protocol.records.cluster_metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from storage.checkpoints import PARTITION_METADATA
from storage.deleted_partitions import ForgetDeleted
from storage.errors import DiskFull, StorageError, TooManyOpenFiles
from storage.log import Log
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition
from tests.support.batches import produced, record
from tests.support.broker import WITH_CONTROLLER_LISTENER, InProcessBroker, running_broker, running_member
from tests.support.leadership import create_replicated_topic
from tests.support.metadata import Batch
from tests.support.requests import produce_request


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with running_broker(tmp_path / "data") as broker:
        yield broker


def hosted(broker: InProcessBroker) -> int:
    """How many partitions can be written to."""
    return len(list(broker.server.components.replicas.partitions()))


def produce_to(broker: InProcessBroker, partition: int) -> int:
    """The error code of a produce to one partition of `orders`."""
    answer: ProduceResponse = broker.ask(produce_request("orders", produced([record()]), partition=partition), 12)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def test_many_partitions_come_in_turns_of_the_loop(broker: InProcessBroker) -> None:
    last = 2 * MOST_AT_ONCE + 6
    broker.begin_topic("orders", partitions=last + 1)
    assert hosted(broker) == MOST_AT_ONCE
    assert (produce_to(broker, 0), produce_to(broker, last)) == (E.NONE, E.NOT_LEADER_OR_FOLLOWER)

    broker.advance(1)
    assert hosted(broker) == 2 * MOST_AT_ONCE
    broker.advance(1)

    assert hosted(broker) == last + 1
    assert produce_to(broker, last) == E.NONE


def test_a_topic_that_is_deleted_before_it_is_whole_leaves_nothing(broker: InProcessBroker) -> None:
    broker.begin_topic("orders", partitions=2 * MOST_AT_ONCE)
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.Topic(name="orders", topic_id=bytes(16))], timeout_ms=1000
    )
    assert broker.ask(request, 6).responses[0].error_code == E.NONE
    broker.begin_topic("orders", partitions=1)
    broker.advance(1)
    broker.wait_until(lambda: hosted(broker) == 1)
    broker.advance(1)
    assert hosted(broker) == 1, "no partition of the deleted topic comes later"


def test_a_partition_that_changes_before_its_log_is_made_is_hosted_once(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = broker.begin_topic("orders", partitions=MOST_AT_ONCE + 5)
    times: Counter[str] = Counter()
    host = ReplicaManager.host

    def counted(self: ReplicaManager, partition: Partition) -> None:
        times[str(partition.topic_partition)] += 1
        host(self, partition)

    monkeypatch.setattr(ReplicaManager, "host", counted)
    controller = broker.server.components.controller
    assert controller is not None
    controller.append([PartitionChangeRecord(partition_id=MOST_AT_ONCE + 1, topic_id=topic_id, leader=1)])
    metadata = broker.server.metadata
    broker.wait_until(lambda: metadata.image.topics.by_name["orders"].partitions[MOST_AT_ONCE + 1].leader_epoch == 1)
    broker.advance(1)

    assert times == {f"orders-{index}": 1 for index in range(MOST_AT_ONCE, MOST_AT_ONCE + 5)}
    assert broker.server.components.replicas.partition("orders", MOST_AT_ONCE + 1).leader_epoch == 1


@pytest.mark.parametrize("error", [DiskFull("no space left"), TooManyOpenFiles("too many open files")])
def test_a_partition_whose_log_finds_no_room_gets_it_later(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: StorageError
) -> None:
    def refuse(*_: Any, **__: Any) -> Log:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(LogManager, "create", refuse)
        broker.begin_topic("orders", partitions=3)
        assert produce_to(broker, 0) == E.NOT_LEADER_OR_FOLLOWER
        broker.advance(RETRY_MS)
        assert hosted(broker) == 0
    assert hosted(broker) == 0

    broker.advance(RETRY_MS)

    assert [produce_to(broker, index) for index in range(3)] == [E.NONE] * 3
    told = [line for line in caplog.messages if "has no log yet" in line]
    assert len(told) == 1, "one line, not one for each partition and second"


def test_a_topic_waits_until_the_checkpoints_have_forgotten_its_deleted_namesake(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Or after a crash it would begin where the other one did, and lose what it has."""

    def refuse(_: ForgetDeleted) -> None:
        raise DiskFull("no space left")

    broker.begin_topic("orders", partitions=2)
    with monkeypatch.context() as patched:
        patched.setattr(ForgetDeleted, "perform", refuse)
        assert broker.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5).responses[0].error_code == 0
        broker.begin_topic("orders", partitions=2)
        broker.wait_until(lambda: "no space left" in caplog.text)
        assert produce_to(broker, 0) == E.NOT_LEADER_OR_FOLLOWER

    broker.advance(RETRY_MS)
    broker.wait_until(lambda: hosted(broker) == 2)

    assert [produce_to(broker, index) for index in range(2)] == [E.NONE] * 2


def test_a_replica_that_was_moved_away_just_before_the_node_stopped_is_removed_at_the_start(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = broker.create_topic("orders")
    broker.produce("orders", b"moved")
    controller = broker.server.components.controller
    assert controller is not None
    with monkeypatch.context() as patched:
        patched.setattr(ReplicaAssignment, "apply", lambda *_: None)
        controller.append([PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=[2], isr=[2], leader=2)])
        broker.settle()
        broker.stop()
    assert (broker.directory / "orders-0").is_dir()

    broker.start()

    assert list(broker.server.components.logs.all()) == []
    assert [path.name.rpartition("-")[2] for path in broker.directory.glob("orders-0*")] == ["delete"]


# What is committed while a member loads its logs ----------------------------------------------------------------------


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[InProcessBroker]:
    """Node 1, with the controller."""
    with running_broker(tmp_path / "primary", **WITH_CONTROLLER_LISTENER) as broker:
        yield broker


@pytest.fixture
def member(tmp_path: Path, primary: InProcessBroker) -> Iterator[InProcessBroker]:
    """Node 2, whose controller is node 1; it has the only replica of `orders`, with two records."""
    with running_member(tmp_path / "member", primary) as broker:
        create_replicated_topic(primary, "orders", (2,))
        until_led(broker)
        broker.produce("orders", b"old-0", b"old-1")
        yield broker


def until_led(member: InProcessBroker) -> None:
    """Let time pass until the member leads `orders`."""

    def holds() -> bool:
        member.advance(20)
        partition = member.server.components.replicas.find("orders", 0)
        return partition is not None and partition.is_leader

    member.wait_until(holds)


def restart_while(
    member: InProcessBroker,
    primary: InProcessBroker,
    monkeypatch: pytest.MonkeyPatch,
    *committed: Record,
    before_that: Callable[[], object] = lambda: None,
) -> None:
    """Restart the member; it knows the records ``committed`` when its logs are loaded, and not before."""
    load = Startup._load_logs

    async def load_meanwhile(self: Startup, configs: ConfigView) -> None:
        await load(self, configs)
        controller = primary.server.components.controller
        assert controller is not None
        controller.append(committed)
        end_offset = controller.image.end_offset
        while self._metadata.image.end_offset < end_offset:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)

    member.stop()
    before_that()
    with monkeypatch.context() as patched:
        patched.setattr(Startup, "_load_logs", load_meanwhile)
        member.start()
    until_led(member)


def made_anew(primary: InProcessBroker, topic_id: bytes) -> list[Record]:
    """`orders` is deleted, and made again with another id on the same broker."""
    before = primary.server.metadata.image.topics.by_name["orders"]
    (partition,) = before.partitions
    return [
        RemoveTopicRecord(topic_id=before.topic_id),
        TopicRecord(name="orders", topic_id=topic_id),
        PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=[2], isr=[2], leader=2, leader_epoch=0, partition_epoch=0,
            directories=list(partition.directories),
        ),
    ]  # fmt: skip


@pytest.mark.parametrize("names_its_topic", [True, False])
def test_a_topic_that_is_made_anew_while_logs_are_loaded_has_none_of_the_deleted_topics_records(
    member: InProcessBroker, primary: InProcessBroker, monkeypatch: pytest.MonkeyPatch, names_its_topic: bool
) -> None:
    new_id = b"n" * 16
    topic_file = member.directory / "orders-0" / PARTITION_METADATA

    restart_while(
        member,
        primary,
        monkeypatch,
        *made_anew(primary, new_id),
        before_that=lambda: None if names_its_topic else topic_file.unlink(),
    )

    log = member.log("orders")
    assert (log.topic_id, log.log_end_offset) == (new_id, 0)
    assert member.server.components.replicas.partition("orders", 0).topic_id == new_id
    assert member.produce("orders", b"new") == 0


def test_configs_that_change_while_logs_are_loaded_are_in_force_afterwards(
    member: InProcessBroker, primary: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_topic, of_broker = int(ConfigResource.TOPIC), int(ConfigResource.BROKER)

    restart_while(
        member,
        primary,
        monkeypatch,
        ConfigRecord(resource_type=of_topic, resource_name="orders", name="retention.ms", value="5000"),
        ConfigRecord(resource_type=of_broker, resource_name="", name="log.segment.bytes", value="1048576"),
        ConfigRecord(resource_type=of_broker, resource_name="2", name="num.io.threads", value="3"),
    )

    config = member.log("orders").config
    assert (config.retention_ms, config.segment_bytes) == (5_000, 1_048_576)
    assert member.server.components.dynamic_config.settings.num_io_threads == 3
    assert member.server.metric_sources.handlers.size == 3


def test_a_member_tells_of_its_directories_once_the_clusters_level_has_them_and_the_metadata_has_its_own() -> None:
    first, second, orders = bytes([8] * 16), bytes([9] * 16), bytes([1] * 16)
    here, there = MagicMock(), MagicMock()
    told: list[tuple[bytes, int, bytes]] = []
    metadata, replicas = MetadataCache(), MagicMock()
    replicas.partitions.return_value = [
        SimpleNamespace(topic_partition=TopicPartition("orders", index), log_dir=log_dir)
        for index, log_dir in enumerate((here, there))
    ]
    assignment = ReplicaAssignment(
        node_id=7,
        clock=ManualClock(),
        ids=MagicMock(),
        logs=MagicMock(),
        directories={first: here, second: there},
        replicas=replicas,
        metadata=metadata,
        configs=ConfigView(metadata, BrokerSettings(node_id=7)),
        scheduler=MagicMock(),
        worker=MagicMock(),
        removals=MagicMock(),
        log_cleaner=MagicMock(),
        replica_moves=MagicMock(),
        disk_reserves={},
        lag_max_ms=30_000,
        assign_directory=lambda *place: told.append(place),
        is_member=True,
    )
    loader = MetadataLoader(metadata)

    def commit(*records: Any) -> None:
        loader.handle_commit([Batch(metadata.image.end_offset, list(records))])

    def registration(log_dirs: list[bytes]) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=7, incarnation_id=bytes(16), broker_epoch=1, end_points=[], features=[], log_dirs=log_dirs
        )

    def partition(index: int) -> PartitionRecord:
        return PartitionRecord(
            partition_id=index, topic_id=orders, replicas=[7], isr=[7], leader=7, leader_epoch=0, partition_epoch=0
        )

    commit(
        FeatureLevelRecord(name="metadata.version", feature_level=14),
        registration([]),
        TopicRecord(name="orders", topic_id=orders),
        partition(0),
        partition(1),
    )
    loader.publish_to(lambda delta, image: assignment.apply(delta, image))
    commit(FeatureLevelRecord(name="metadata.version", feature_level=17))
    assert told == [], "this broker's registration has no directories yet"

    commit(registration([first, second]))
    assert told == [(orders, 0, first), (orders, 1, second)]

    commit(registration([first, second]))
    assert len(told) == 2, "once"
