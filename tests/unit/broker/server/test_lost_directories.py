"""A replica whose log directory is gone, has failed, or was never named is looked at again at each change of its
partition: it begins without records once that hides none."""

import errno
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.directories import UNASSIGNED
from broker.metadata.image.topics import PartitionImage
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.server.log_dirs import LogDirs
from broker.server.replica_assignment import RETRY_MS
from protocol.errors import ErrorCode as E
from protocol.messages.topics import DeleteTopicsRequest
from protocol.records.cluster_metadata import (
    NO_LEADER,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from storage.errors import DiskFull
from storage.log import Log
from storage.log_manager import LogManager
from tests.support.broker import WITH_CONTROLLER_LISTENER, InProcessBroker, running_broker, running_member
from tests.support.files import FaultyFileSystem
from tests.support.requests import fetch_request

PRIMARY, MEMBER, AWAY = 1, 2, 3
ORDERS = b"o" * 16
SESSIONS: dict[str, Any] = {"broker_session_timeout_ms": 1_000, "broker_heartbeat_interval_ms": 200}
"""Short, since a member that starts again waits for the end of its last session."""


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[InProcessBroker]:
    """The node with the controller."""
    with running_broker(tmp_path / "primary", **SESSIONS, **WITH_CONTROLLER_LISTENER) as broker:
        yield broker


@pytest.fixture
def disk() -> FaultyFileSystem:
    """The member's file system."""
    return FaultyFileSystem()


@pytest.fixture
def member(tmp_path: Path, primary: InProcessBroker, disk: FaultyFileSystem) -> Iterator[InProcessBroker]:
    """A broker with the log directories `a` and `b`."""
    directory = tmp_path / "member"
    log_dirs = f"{directory / 'a'},{directory / 'b'}"
    with running_member(
        directory, primary, files=disk, log_dirs=log_dirs, metadata_log_dir=directory / "metadata", **SESSIONS
    ) as broker:
        yield broker


def commit(broker: InProcessBroker, *records: Any) -> None:
    """Have these records committed by the controller in ``broker``."""
    controller = broker.server.components.controller
    assert controller is not None
    controller.append(list(records))
    end_offset = controller.image.end_offset
    broker.wait_until(lambda: broker.server.metadata.image.end_offset >= end_offset)


def create_orders(
    broker: InProcessBroker, *, leader: int, isr: list[int], directory: bytes, replicas: tuple[int, ...]
) -> None:
    """Create `orders`, whose first replica is in ``directory``."""
    commit(
        broker,
        TopicRecord(name="orders", topic_id=ORDERS),
        PartitionRecord(
            partition_id=0, topic_id=ORDERS, replicas=list(replicas), isr=isr, leader=leader, leader_epoch=0,
            partition_epoch=0, directories=[directory] + [UNASSIGNED] * (len(replicas) - 1),
        ),
    )  # fmt: skip


def orders(broker: InProcessBroker) -> PartitionImage:
    """The partition as the metadata has it."""
    return broker.server.metadata.image.topics.by_name["orders"].partitions[0]


def find_orders(broker: InProcessBroker) -> Partition | None:
    """The partition as the broker hosts it."""
    replicas: ReplicaManager = broker.server.components.replicas
    return replicas.find("orders", 0)


def until(broker: InProcessBroker, holds: Callable[[], bool]) -> None:
    """Let time pass until a condition holds."""

    def condition() -> bool:
        broker.advance(20)
        return holds()

    broker.wait_until(condition)


def id_of(broker: InProcessBroker, name: str) -> bytes:
    """The id of the log directory with this name."""
    log_dirs: LogDirs = broker.server.log_dirs
    return next(found for found, directory in log_dirs.by_id.items() if directory.path.endswith(name))


def restart_with_a_new_disk(member: InProcessBroker) -> None:
    """The member's directory `b` is empty at its next start."""
    until(member, lambda: find_orders(member) is not None)
    member.stop()
    shutil.rmtree(member.directory / "b")
    member.start()


def assert_follows(member: InProcessBroker, primary: InProcessBroker) -> None:
    """The primary leads from now on; the member gets its records, and is in sync."""
    commit(
        primary,
        PartitionChangeRecord(
            partition_id=0, topic_id=ORDERS, replicas=[MEMBER, PRIMARY], isr=[PRIMARY], leader=PRIMARY,
            directories=[orders(primary).directory_of(MEMBER), UNASSIGNED],
        ),
    )  # fmt: skip
    until(primary, lambda: (found := find_orders(primary)) is not None and found.is_leader)
    primary.produce("orders", b"first")
    until(member, lambda: set(orders(primary).isr) == {PRIMARY, MEMBER})
    assert member.log("orders").log_end_offset == 1
    assert orders(primary).directory_of(MEMBER) in member.server.log_dirs.by_id


def test_a_replica_out_of_sync_begins_on_a_new_disk_while_nobody_leads_and_follows_the_next_leader(
    primary: InProcessBroker, member: InProcessBroker
) -> None:
    create_orders(primary, leader=NO_LEADER, isr=[AWAY], directory=id_of(member, "b"), replicas=(MEMBER, AWAY))

    restart_with_a_new_disk(member)

    assert find_orders(member) is not None
    until(primary, lambda: orders(primary).directory_of(MEMBER) in member.server.log_dirs.by_id)
    assert_follows(member, primary)


@pytest.mark.parametrize("has_elr", [False, True])
def test_the_last_replica_in_sync_waits_for_its_disk_or_another_leader(
    primary: InProcessBroker, member: InProcessBroker, has_elr: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "broker.server.replica_assignment")
    if has_elr:
        commit(primary, FeatureLevelRecord(name="metadata.version", feature_level=26))
        commit(primary, FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    create_orders(primary, leader=MEMBER, isr=[MEMBER], directory=id_of(member, "b"), replicas=(MEMBER, AWAY))

    restart_with_a_new_disk(member)

    assert [
        line for line in caplog.messages if line.startswith("1 replica without log directory") and "orders-0" in line
    ]
    (answer,) = member.ask(fetch_request("orders"), 12).responses
    assert answer.partitions[0].error_code == E.KAFKA_STORAGE_ERROR
    assert_follows(member, primary)
    assert len([line for line in caplog.messages if line.startswith("orders-0 begins without records in")]) == 1


def test_a_replica_that_waited_for_a_leader_finds_no_room_and_gets_its_log_later(
    primary: InProcessBroker, member: InProcessBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> Log:
        raise DiskFull("no space left")

    create_orders(primary, leader=MEMBER, isr=[MEMBER], directory=id_of(member, "b"), replicas=(MEMBER, AWAY))
    restart_with_a_new_disk(member)
    with monkeypatch.context() as patched:
        patched.setattr(LogManager, "create", refuse)
        commit(primary, PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=AWAY, isr=[AWAY]))
        until(member, lambda: "orders-0 has no log yet" in caplog.text)

    member.advance(RETRY_MS)

    until(member, lambda: find_orders(member) is not None)


def test_a_topic_whose_lost_replica_waited_can_be_deleted_and_made_again(
    primary: InProcessBroker, member: InProcessBroker
) -> None:
    create_orders(primary, leader=MEMBER, isr=[MEMBER], directory=id_of(member, "b"), replicas=(MEMBER,))
    restart_with_a_new_disk(member)

    assert primary.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1_000), 5).responses[0].error_code == 0
    create_orders(primary, leader=MEMBER, isr=[MEMBER], directory=id_of(member, "b"), replicas=(MEMBER,))

    until(member, lambda: (found := find_orders(member)) is not None and found.is_leader)
    assert member.produce("orders", b"first") == 0


def test_the_controllers_own_node_begins_on_a_new_disk_too_and_tells_where(tmp_path: Path) -> None:
    directory = tmp_path / "primary"
    log_dirs = f"{directory / 'a'},{directory / 'b'}"
    settings: dict[str, Any] = {"log_dirs": log_dirs, **WITH_CONTROLLER_LISTENER}
    with running_broker(directory, **settings) as primary:
        commit(
            primary,
            RegisterBrokerRecord(
                broker_id=MEMBER, incarnation_id=bytes(16), broker_epoch=1, end_points=[], features=[], fenced=True
            ),
        )
        before = id_of(primary, "b")
        create_orders(primary, leader=MEMBER, isr=[MEMBER], directory=before, replicas=(PRIMARY, MEMBER))

        restart_with_a_new_disk(primary)

        assert find_orders(primary) is not None
        until(primary, lambda: orders(primary).directory_of(PRIMARY) in primary.server.log_dirs.by_id)
        assert before not in primary.server.log_dirs.by_id


def test_a_directory_that_fails_while_a_member_loads_its_logs_is_reported_to_the_controllers(
    primary: InProcessBroker, member: InProcessBroker, disk: FaultyFileSystem
) -> None:
    """The member has registered with both before that."""
    a, b = id_of(member, "a"), id_of(member, "b")
    create_orders(primary, leader=MEMBER, isr=[MEMBER, PRIMARY], directory=b, replicas=(MEMBER, PRIMARY))
    until(member, lambda: find_orders(member) is not None)
    member.stop()
    disk.fail("read", suffix="b/orders-0/partition.metadata")

    member.start()

    until(primary, lambda: primary.server.metadata.image.cluster.brokers[MEMBER].log_dirs == [a])
    until(primary, lambda: orders(primary).leader == PRIMARY)


def test_a_new_replica_without_a_directory_is_made_beside_a_failed_directory(
    primary: InProcessBroker, member: InProcessBroker, disk: FaultyFileSystem
) -> None:
    member.stop()
    create_orders(primary, leader=MEMBER, isr=[MEMBER], directory=UNASSIGNED, replicas=(MEMBER,))
    disk.fail("read", suffix="b/meta.properties")

    member.start()

    until(primary, lambda: orders(primary).directory_of(MEMBER) == id_of(member, "a"))
    until(member, lambda: (found := find_orders(member)) is not None and found.is_leader)


def test_a_new_replica_without_a_directory_is_made_elsewhere_where_the_chosen_directory_fails(
    primary: InProcessBroker, member: InProcessBroker, disk: FaultyFileSystem
) -> None:
    disk.fail("make", errno.EIO, suffix="a/orders-0")

    create_orders(primary, leader=MEMBER, isr=[MEMBER], directory=UNASSIGNED, replicas=(MEMBER,))

    until(primary, lambda: orders(primary).directory_of(MEMBER) == id_of(member, "b"))
    until(member, lambda: (found := find_orders(member)) is not None and found.is_leader)


def test_a_directory_that_the_metadata_has_otherwise_is_told_again(
    primary: InProcessBroker, member: InProcessBroker
) -> None:
    b = id_of(member, "b")
    create_orders(primary, leader=MEMBER, isr=[MEMBER], directory=b, replicas=(MEMBER,))
    until(member, lambda: find_orders(member) is not None)

    commit(primary, PartitionChangeRecord(partition_id=0, topic_id=ORDERS, directories=[UNASSIGNED]))

    until(primary, lambda: orders(primary).directory_of(MEMBER) == b)
