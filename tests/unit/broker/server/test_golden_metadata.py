"""What a node with its own controller writes into its metadata log, record by record, in the lives that a node has.

The logs of each life are kept in `tests/golden/metadata`; `python -m tests.unit.broker.server.test_golden_metadata`
writes them anew. Ids have names in the order in which they appear, ports are left out.
"""

from __future__ import annotations

import errno
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from broker.controller.local_controller import LocalController
from broker.membership.member import FULL_DISK_RETRY_MS
from broker.raft.batches import decode_batches
from broker.replication.partition import Partition
from broker.server.broker_server import CannotStart
from config.resources import ConfigResource
from protocol.errors import ErrorCode as E
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.log_dirs import AlterReplicaLogDirsRequest
from protocol.messages.reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from protocol.records.cluster_metadata import PartitionRecord, RegisterBrokerRecord, TopicRecord
from storage.checkpoints import CLEAN_SHUTDOWN
from tests.support.broker import WITH_CONTROLLER_LISTENER, InProcessBroker, running_member
from tests.support.files import FaultyFileSystem
from tests.support.leadership import create_replicated_topic

GOLDEN: Final = Path(__file__).parents[3] / "golden" / "metadata"
RELEASES: Final = ("4.4", "4.0")
METADATA: Final = "__cluster_metadata-0/00000000000000000000.log"
SESSIONS: Final = {"broker_session_timeout_ms": 3000, "broker_heartbeat_interval_ms": 500}


class Node(InProcessBroker):
    """A node with the log directories `a`, which has the metadata, and `b`."""

    def __init__(
        self, directory: Path, release: str, faulty: FaultyFileSystem | None = None, **settings: object
    ) -> None:
        self.a, self.b = directory / "a", directory / "b"
        self.faulty = faulty or FaultyFileSystem()
        super().__init__(
            directory, files=self.faulty, log_dirs=f"{self.a},{self.b}", ottla_release_version=release,
            offsets_topic_num_partitions=1, **settings,
        )  # fmt: skip

    def stop(self) -> None:
        """Stop cleanly, while time passes: with other brokers the stop takes some."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        self.run(self._as_time_passes(self.server.stop()))

    def stop_uncleanly(self) -> None:
        """Stop as a kill does: without the markers."""
        self.stop()
        for directory in (self.a, self.b):
            (directory / CLEAN_SHUTDOWN).unlink(missing_ok=True)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        wanted = CreatePartitionsRequest.Topic(name=topic, count=partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=False)
        assert self.ask(request, 3).results[0].error_code == E.NONE
        self.until(lambda: all(self.partition(topic, index) is not None for index in range(partitions)))

    def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until a condition holds."""

        def holds() -> bool:
            self.advance(5)
            return condition()

        self.wait_until(holds)

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition as this node hosts it."""
        found: Partition | None = self.server.components.replicas.find(topic, index)
        return found

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.Topic(name=topic, topic_id=bytes(16))], timeout_ms=1000
        )
        assert self.ask(request, 6).responses[0].error_code == E.NONE

    def configure(self, kind: ConfigResource, of: str, name: str, value: str) -> None:
        """Set a config of a topic or a broker."""
        of_config = IncrementalAlterConfigsRequest.Resource
        change = of_config.Config(name=name, config_operation=0, value=value)
        resource = of_config(resource_type=kind, resource_name=of, configs=[change])
        self.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)

    def leaders_are(self, topic: str, *leaders: int) -> bool:
        """Whether these nodes lead a topic's partitions."""
        found = self.server.metadata.image.topics.by_name[topic].partitions
        return tuple(partition.leader for partition in found) == leaders


@contextmanager
def running(directory: Path, release: str, **settings: object) -> Iterator[Node]:
    """A context with a node that is closed at the end, if it still runs."""
    node = Node(directory, release, **settings)
    try:
        yield node
    finally:
        node.close()


# The lives of a node --------------------------------------------------------------------------------------------------


def alone(directory: Path, release: str) -> None:
    """A first start, a topic, a clean stop and start, and starts after a kill, without a topic to lead and with one."""
    with running(directory, release) as node:
        node.stop_uncleanly()
        node.start()
        node.create_topic("orders", partitions=2)
        node.restart()
        node.stop_uncleanly()
        node.start()


def growth(directory: Path, release: str) -> None:
    """More partitions, a replica that moves to the other directory, a config, a topic that is deleted and made anew."""
    with running(directory, release) as node:
        node.create_topic("orders")
        node.grow("orders", 3)
        log = node.log("orders", 0)
        elsewhere = node.b if str(node.a) in log.directory else node.a
        of_request = AlterReplicaLogDirsRequest.Dir
        wanted = of_request(path=str(elsewhere), topics=[of_request.Topic(name="orders", partitions=[0])])
        node.ask(AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
        node.until(lambda: str(elsewhere) in node.log("orders", 0).directory)
        node.configure(ConfigResource.TOPIC, "orders", "retention.ms", "1000")
        node.restart()
        node.delete("orders")
        node.create_topic("orders")


def failed_directory(directory: Path, release: str) -> None:
    """A directory fails while the node runs, is missing at the next start, and is back at the start after that."""
    with running(directory, release) as node:
        node.create_topic("orders", partitions=2)
        lost = next(index for index in (0, 1) if str(node.b) in node.log("orders", index).directory)
        node.faulty.fail("write", errno.EIO, suffix=f"b/orders-{lost}/00000000000000000000.log")
        with pytest.raises(AssertionError):
            node.produce("orders", b"lost", partition=lost)
        node.until(lambda: node.partition("orders", lost) is None)
        node.settle()
        node.stop()
        aside = node.b.rename(directory / "aside")
        node.faulty = node._files = FaultyFileSystem()
        node.start()
        node.stop()
        shutil.rmtree(node.b)
        aside.rename(node.b)
        node.start()


def log_elsewhere(directory: Path, release: str) -> None:
    """A log was moved by hand to another directory than the metadata says."""
    with running(directory, release) as node:
        node.create_topic("orders", partitions=2)
        node.stop()
        found = next(node.b.glob("orders-*"))
        found.rename(node.a / found.name)
        node.start()


def full_disk(directory: Path, release: str) -> None:
    """The disk is full when a topic is to be made, and when the node stops."""
    with running(directory, release) as node:
        node.create_topic("orders")
        node.faulty.fail("write", errno.ENOSPC, suffix=METADATA)
        with pytest.raises(AssertionError):
            node.begin_topic("refused")
        node.create_topic("letters")
        node.restart()


def full_disk_at_the_start(directory: Path, release: str) -> None:
    """The disk is full when a new node begins its log, when it registers, and when the next start does."""
    for written_before in (0, 1):
        faulty = FaultyFileSystem()
        faulty.fail("write", errno.ENOSPC, suffix=METADATA, after=written_before)
        with pytest.raises(CannotStart):
            Node(directory, release, faulty)
    with running(directory, release) as node:
        node.stop()
        node.faulty.fail("write", errno.ENOSPC, suffix=METADATA)
        with pytest.raises(CannotStart):
            node.start()
        node.start()


def full_disk_at_the_stop(directory: Path, release: str) -> None:
    """The disk is full when the node writes that it stops: it stops all the same."""
    with running(directory, release) as node:
        node.create_topic("orders")
        node.faulty.fail("write", errno.ENOSPC, suffix=METADATA)
        node.restart()


def full_disk_at_a_report(directory: Path, release: str) -> None:
    """The disk is full when a failed directory, and directories without new replicas, are reported: they are later."""
    with running(directory, release) as node:
        node.create_topic("orders", partitions=2)
        # The config itself is written.
        node.faulty.fail("write", errno.ENOSPC, suffix=METADATA, after=1)
        node.configure(ConfigResource.BROKER, "1", "cordoned.log.dirs", str(node.a))
        node.settle()
        node.advance(FULL_DISK_RETRY_MS)
        lost = next(index for index in (0, 1) if str(node.b) in node.log("orders", index).directory)
        node.faulty.fail("write", errno.EIO, suffix=f"b/orders-{lost}/00000000000000000000.log")
        node.faulty.fail("write", errno.ENOSPC, suffix=METADATA)
        with pytest.raises(AssertionError):
            node.produce("orders", b"lost", partition=lost)
        node.until(lambda: not node.leaders_are("orders", 1, 1))


def with_a_member(directory: Path, release: str) -> None:
    """Another broker joins, follows, leads and leaves; the node goes and comes back, cleanly and after a kill."""
    with ExitStack() as stack:
        node = stack.enter_context(running(directory, release, **SESSIONS, **WITH_CONTROLLER_LISTENER))
        member = stack.enter_context(running_member(directory / "member", node, **SESSIONS))
        create_replicated_topic(node, "orders", (1, 2), (2, 1))
        node.until(lambda: node.leaders_are("orders", 1, 2) and set(isr(node, "orders", 1)) == {1, 2})
        reassign(node, "orders", 0, [2, 1])
        member.stop()
        node.until(lambda: node.leaders_are("orders", 1, 1))
        member.start()
        node.until(lambda: node.leaders_are("orders", 1, 1) and set(isr(node, "orders", 1)) == {1, 2})


def adopted(directory: Path, release: str) -> None:
    """The metadata name two brokers that never come: without a controller listener they are gone for good."""
    with running(directory, release) as node:
        _name_two_more(node)
        node.restart()


def adopted_with_a_listener(directory: Path, release: str) -> None:
    """The metadata name two brokers, of which one has stopped and one is silent: they may come back."""
    with running(directory, release, **SESSIONS, **WITH_CONTROLLER_LISTENER) as node:
        _name_two_more(node, stopped=(3,))
        controller = node.server.components.controller
        assert isinstance(controller, LocalController)
        controller.sessions.begin(2, 102, node.clock.monotonic_ms())
        node.until(lambda: node.server.metadata.image.cluster.brokers[2].fenced)
        node.restart()


def _name_two_more(node: Node, stopped: tuple[int, ...] = ()) -> None:
    topic_id = b"o" * 16
    controller = node.server.components.controller
    assert controller is not None
    own = next(iter(node.server.log_dirs.by_id))
    endpoint = RegisterBrokerRecord.EndPoint(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)
    others: list[Any] = [
        RegisterBrokerRecord(
            broker_id=number, is_migrating_zk_broker=False, incarnation_id=bytes([number] * 16),
            broker_epoch=100 + number, end_points=[endpoint],
            features=[], rack=None, fenced=number in stopped, in_controlled_shutdown=False,
            log_dirs=[bytes([number] * 16)],
        )
        for number in (2, 3)
    ]  # fmt: skip
    controller.append(others)
    controller.append(
        [
            TopicRecord(name="orders", topic_id=topic_id),
            *(
                PartitionRecord(
                    partition_id=index, topic_id=topic_id, replicas=replicas, isr=isr, leader=isr[0], leader_epoch=4,
                    partition_epoch=7, directories=[own if one == 1 else bytes([one] * 16) for one in replicas],
                )
                for index, (replicas, isr) in enumerate((([1, 2, 3], [2, 3]), ([2, 1, 3], [2, 1]), ([3, 2], [3])))
            ),
        ]
    )  # fmt: skip
    node.wait_until(lambda: "orders" in node.server.metadata.image.topics.by_name)


def isr(node: Node, topic: str, index: int) -> tuple[int, ...]:
    """The ISR as the metadata has it."""
    return tuple(node.server.metadata.image.topics.by_name[topic].partitions[index].isr)


def reassign(node: Node, topic: str, index: int, replicas: list[int]) -> None:
    """Ask for other replicas."""
    of_topic = AlterPartitionReassignmentsRequest.Topic
    wanted = of_topic(name=topic, partitions=[of_topic.Partition(partition_index=index, replicas=replicas)])
    assert node.ask(AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[wanted]), 0).error_code == E.NONE


LIVES: Final[dict[str, Callable[[Path, str], None]]] = {
    life.__name__: life
    for life in (
        alone,
        growth,
        failed_directory,
        log_elsewhere,
        full_disk,
        full_disk_at_the_start,
        full_disk_at_the_stop,
        full_disk_at_a_report,
        with_a_member,
        adopted,
        adopted_with_a_listener,
    )
}


# What is kept ---------------------------------------------------------------------------------------------------------


def written(directory: Path) -> str:
    """The records of the metadata log of the node in ``directory``, a line each, a blank line between batches."""
    names: dict[bytes, str] = {}
    lines = []
    for segment in sorted((directory / "a" / "__cluster_metadata-0").glob("*.log")):
        for batch in decode_batches(memoryview(segment.read_bytes())):
            lines += [
                f"{type(record).__name__} {_fields(record, names)}".rstrip()
                for record in (*batch.control_records, *batch.records)
            ]
            lines.append("")
    return "\n".join(lines).replace(str(directory), "DIRECTORY")


def _fields(record: Any, names: dict[bytes, str]) -> str:
    shown = {name: _shown(name, getattr(record, name), names) for name in _names_of(record)}
    return " ".join(f"{name}={value}" for name, value in shown.items() if value not in ("None", "[]", "''"))


def _names_of(value: Any) -> tuple[str, ...]:
    return tuple(getattr(value, "_fields", None) or getattr(type(value), "__slots__", ()))


def _shown(name: str, value: Any, names: dict[bytes, str]) -> str:
    if isinstance(value, (bytes, memoryview)) and len(value) == 16:
        return "none" if not any(value[:15]) else names.setdefault(bytes(value), f"id{len(names) + 1}")
    if name == "port":
        return "*"
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return f"[{', '.join(_shown('', item, names) for item in value)}]"
    if _names_of(value):
        return f"({_fields(value, names)})"
    return repr(value)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("life", LIVES)
def test_the_metadata_log_of_a_life_is_the_one_that_is_kept(tmp_path: Path, life: str, release: str) -> None:
    LIVES[life](tmp_path, release)
    assert written(tmp_path) == (GOLDEN / f"{life}-{release}.txt").read_text()


def main() -> None:
    """Write all logs anew."""
    GOLDEN.mkdir(exist_ok=True)
    for name, life in LIVES.items():
        for release in RELEASES:
            with tempfile.TemporaryDirectory() as directory:
                life(Path(directory), release)
                (GOLDEN / f"{name}-{release}.txt").write_text(written(Path(directory)))
                sys.stdout.write(f"{name}-{release}\n")


if __name__ == "__main__":
    main()
