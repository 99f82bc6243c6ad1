"""One of several data directories fails while the broker runs, before it starts or while it stops; and comes back."""

import errno
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server.broker_server import CannotStart
from protocol.errors import ErrorCode as E
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from storage.checkpoints import CLEAN_SHUTDOWN, META_PROPERTIES
from storage.errors import LogDirFailed
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker
from tests.support.files import FaultyFileSystem
from tests.support.requests import fetch_request, produce_request

SEGMENT = "00000000000000000000"


class TwoDirectories(InProcessBroker):
    """A broker with the directories `a`, which has the metadata, and `b`; `orders` has partition 0 in `a`, 1 in `b`."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.a, self.b = directory / "a", directory / "b"
        self.faulty = FaultyFileSystem()
        self.is_running = False
        super().__init__(directory, files=self.faulty, log_dirs=f"{self.a},{self.b}", **settings)
        self.create_topic("orders", partitions=2)
        for partition in (0, 1):
            self.produce("orders", b"first", partition=partition)

    def start(self) -> None:
        super().start()
        self.is_running = True

    def stop(self) -> None:
        if self.is_running:
            self.is_running = False
            super().stop()

    def codes(self, topic: str = "orders") -> list[int]:
        """What a produce to each partition of a topic is answered."""
        count = len(self.server.components.metadata.image.topics.by_name[topic].partitions)
        return [self.code(index, topic) for index in range(count)]

    def code(self, partition: int, topic: str = "orders") -> int:
        """What a produce is answered."""
        answer = self.ask(produce_request(topic, produced([record()]), partition=partition), 12)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    def leaders(self, topic: str = "orders") -> list[tuple[int, int]]:
        """Leader and leader epoch of each partition."""
        (told,) = self.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=topic)]), 12).topics
        return [(partition.leader_id, partition.leader_epoch) for partition in told.partitions]

    def fetch_code(self, partition: int, offset: int = 0) -> int:
        answer = self.ask(fetch_request("orders", partition=partition, offset=offset), 12)
        code: int = answer.responses[0].partitions[0].error_code
        return code

    def lose_b(self) -> None:
        self.faulty.fail("write", errno.EIO, suffix=f"b/orders-1/{SEGMENT}.log")
        assert self.codes() == [E.NONE, E.KAFKA_STORAGE_ERROR]
        self.wait_until(lambda: self.leaders()[1][0] == -1)

    def start_again(self) -> None:
        self.faulty = self._files = FaultyFileSystem()
        self.start()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TwoDirectories]:
    broker = TwoDirectories(tmp_path)
    try:
        yield broker
    finally:
        broker.close()


def offline_lines(caplog: pytest.LogCaptureFixture) -> int:
    return len([line for line in caplog.messages if "is offline" in line])


# While it runs --------------------------------------------------------------------------------------------------------


def test_a_failed_write_takes_one_directory_offline_with_one_line(
    broker: TwoDirectories, caplog: pytest.LogCaptureFixture
) -> None:
    broker.lose_b()
    assert broker.codes() == [E.NONE, E.KAFKA_STORAGE_ERROR]
    assert offline_lines(caplog) == 1
    assert broker.server.failure is None


def test_the_metadata_log_says_what_kafkas_would(broker: TwoDirectories) -> None:
    broker.lose_b()
    image = broker.server.components.metadata.image
    a, b = broker.server.log_dirs.by_id
    assert image.cluster.brokers[1].log_dirs == [a]
    lost = image.topics.by_name["orders"].partitions[1]
    assert (lost.leader, lost.leader_epoch, lost.directory) == (-1, 1, b)
    assert (lost.isr, lost.eligible_leader_replicas) == ((), (1,))


def test_a_failed_fsync_is_not_tried_again(broker: TwoDirectories) -> None:
    broker.create_topic("safe", partitions=2, flush_ms=1)
    broker.produce("safe", b"value", partition=1)
    for _ in range(2):
        broker.faulty.fail("fsync", suffix=f"b/safe-1/{SEGMENT}.log")
    broker.advance(2_000)
    broker.wait_until(lambda: broker.server.components.replicas.is_offline("safe", 1))

    broker.advance(60_000)
    broker.settle()

    assert len(broker.faulty.disk.faults) == 1, "the second one waits for ever"
    assert broker.codes() == [E.NONE, E.KAFKA_STORAGE_ERROR]


def test_a_checkpoint_that_cannot_be_written(broker: TwoDirectories) -> None:
    broker.faulty.fail("write", suffix="b/replication-offset-checkpoint.tmp")
    broker.advance(5_000)
    broker.wait_until(lambda: broker.server.components.replicas.is_offline("orders", 1))
    assert broker.codes() == [E.NONE, E.KAFKA_STORAGE_ERROR]


def test_a_checkpoint_whose_directory_is_gone(broker: TwoDirectories) -> None:
    shutil.rmtree(broker.b)
    broker.advance(5_000)
    broker.wait_until(lambda: broker.server.components.replicas.is_offline("orders", 1))
    assert broker.codes() == [E.NONE, E.KAFKA_STORAGE_ERROR]


def test_a_segment_that_retention_cannot_rename(broker: TwoDirectories) -> None:
    broker.create_topic("old", partitions=2, retention_ms=1)
    for partition in (0, 1):
        broker.produce("old", b"value", partition=partition)
    broker.faulty.fail("rename", suffix=f"b/old-1/{SEGMENT}.log")
    broker.advance(600_000)
    broker.wait_until(lambda: broker.server.components.replicas.is_offline("old", 1))
    assert broker.log("old", 0).log_start_offset == 1, "retention went on in the other directory"
    assert broker.codes() == [E.NONE, E.KAFKA_STORAGE_ERROR]


@pytest.mark.parametrize("how", ["unreadable", "gone"])
def test_a_segment_that_cannot_be_read(broker: TwoDirectories, how: str) -> None:
    segment = broker.log("orders", 1).segments.active
    segment.files.let_go()
    segment.forget_recent_batches()
    if how == "gone":
        (broker.b / "orders-1" / f"{SEGMENT}.log").unlink()
    else:
        broker.faulty.fail("read", suffix=f"b/orders-1/{SEGMENT}.log")
    assert broker.fetch_code(1) == E.KAFKA_STORAGE_ERROR
    assert broker.codes() == [E.NONE, E.KAFKA_STORAGE_ERROR]


def test_new_partitions_go_to_what_is_alive(broker: TwoDirectories) -> None:
    broker.lose_b()
    broker.create_topic("new", partitions=3)
    assert broker.codes("new") == [E.NONE] * 3
    growth = CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.Topic(name="orders", count=3, assignments=None)],
        timeout_ms=1000,
        validate_only=False,
    )
    assert broker.ask(growth, 3).results[0].error_code == E.NONE
    broker.wait_until(lambda: broker.server.components.replicas.find("orders", 2) is not None)
    assert broker.codes() == [E.NONE, E.KAFKA_STORAGE_ERROR, E.NONE]
    assert not (broker.b / "new-0").exists()


def test_a_topic_in_a_failed_directory_can_be_deleted_and_made_again(broker: TwoDirectories) -> None:
    broker.lose_b()
    delete(broker, "orders")
    broker.create_topic("orders", partitions=2)
    assert broker.codes() == [E.NONE, E.NONE]
    assert (broker.b / "orders-1").exists(), "nothing is touched in there"

    broker.stop()
    broker.start_again()

    assert broker.codes() == [E.NONE, E.NONE]
    assert [path.name.split(".")[0] for path in broker.b.glob("*-stray")] == ["orders-1"]


def delete(broker: InProcessBroker, topic: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=topic, topic_id=bytes(16))], timeout_ms=1000)
    assert broker.ask(request, 6).responses[0].error_code == E.NONE
    broker.wait_until(lambda: topic not in broker.topics())


def test_without_the_metadata_directory_the_node_stops(broker: TwoDirectories) -> None:
    broker.faulty.fail("write", errno.EIO, suffix=f"a/orders-0/{SEGMENT}.log")
    assert broker.code(0) == E.KAFKA_STORAGE_ERROR
    assert isinstance(broker.server.failure, LogDirFailed)


def test_without_any_directory_for_logs_the_node_stops(tmp_path: Path) -> None:
    broker = TwoDirectories(tmp_path, metadata_log_dir=str(tmp_path / "metadata"))
    broker.lose_b()
    assert broker.server.failure is None
    broker.faulty.fail("write", errno.EIO, suffix=f"a/orders-0/{SEGMENT}.log")
    assert broker.code(0) == E.KAFKA_STORAGE_ERROR
    assert isinstance(broker.server.failure, LogDirFailed)
    broker.close()


def test_after_a_restart_with_the_directory_healthy_its_partitions_are_back(broker: TwoDirectories) -> None:
    broker.lose_b()
    broker.stop()
    assert (broker.a / CLEAN_SHUTDOWN).exists()
    assert not (broker.b / CLEAN_SHUTDOWN).exists()

    broker.start_again()

    assert [leader for leader, _ in broker.leaders()] == [1, 1]
    assert broker.leaders()[1][1] >= 2, "a consumer that read what is lost now can see it"
    assert broker.codes() == [E.NONE, E.NONE]
    assert broker.fetch_code(1) == E.NONE
    assert broker.log("orders", 1).log_end_offset == 2


# At the start ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["a file", "no lock", "no properties", "no logs", "no marker"])
def test_a_directory_that_cannot_be_used_at_the_start(
    broker: TwoDirectories, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    broker.stop()
    broker.faulty = broker._files = FaultyFileSystem()
    if fault == "a file":
        broker.b.rename(broker.b.with_name("aside"))
        broker.b.touch()
    elif fault == "no lock":
        (broker.b / ".lock").mkdir()
    elif fault == "no properties":
        broker.faulty.fail("read", suffix=f"b/{META_PROPERTIES}")
    elif fault == "no logs":
        broker.faulty.fail("read", suffix="b/orders-1/partition.metadata")
    else:
        broker.faulty.fail("read", suffix=f"b/{CLEAN_SHUTDOWN}")
    caplog.clear()
    broker.start()

    assert len([line for line in caplog.messages if f"{broker.b} is offline" in line]) == 1
    assert broker.codes() == [E.NONE, E.KAFKA_STORAGE_ERROR]
    assert broker.leaders()[1][0] == -1
    broker.create_topic("new", partitions=2)
    assert broker.codes("new") == [E.NONE, E.NONE]

    broker.stop()
    if fault == "a file":
        broker.b.unlink()
        broker.b.with_name("aside").rename(broker.b)
    elif fault == "no lock":
        (broker.b / ".lock").rmdir()
    broker.start_again()
    assert broker.codes() == [E.NONE, E.NONE]
    assert broker.log("orders", 1).log_end_offset == 2


def test_without_the_metadata_directory_there_is_no_start(broker: TwoDirectories) -> None:
    broker.stop()
    broker.faulty.fail("read", suffix=f"a/{META_PROPERTIES}")
    with pytest.raises(CannotStart, match=META_PROPERTIES):
        broker.start()


def test_an_empty_directory_in_the_place_of_another_does_not_pass_for_it(broker: TwoDirectories) -> None:
    """A disk that was not mounted, say: its partitions must not begin anew elsewhere, as if they had been empty."""
    broker.stop()
    broker.b.rename(broker.b.with_name("not mounted"))
    broker.start_again()
    assert (broker.b / META_PROPERTIES).exists(), "formatted, and new partitions go there"
    assert broker.codes() == [E.NONE, E.KAFKA_STORAGE_ERROR]
    broker.create_topic("new", partitions=2)
    assert broker.codes("new") == [E.NONE, E.NONE]

    broker.stop()
    shutil.rmtree(broker.b)
    broker.b.with_name("not mounted").rename(broker.b)
    broker.start_again()
    assert broker.codes() == [E.NONE, E.NONE]
    assert broker.log("orders", 1).log_end_offset == 2


def test_a_directory_that_was_given_another_id_has_its_logs_all_the_same(broker: TwoDirectories) -> None:
    broker.stop()
    path = broker.b / META_PROPERTIES
    path.write_text(re.sub("directory.id=.*", "directory.id=4L6g3nShT-eMCtK--X86sw", path.read_text()))
    broker.start_again()
    assert broker.codes() == [E.NONE, E.NONE]
    (new_id,) = set(broker.server.log_dirs.by_id) - {
        broker.server.log_dirs.id_of(broker.server.components.logs.directories[0])
    }
    assert broker.server.components.metadata.image.topics.by_name["orders"].partitions[1].directory == new_id


# At the stop ----------------------------------------------------------------------------------------------------------


def test_a_directory_that_cannot_be_closed_in_order_has_no_marker_and_the_others_have(
    broker: TwoDirectories, caplog: pytest.LogCaptureFixture
) -> None:
    broker.faulty.fail("fsync", suffix=f"b/orders-1/{SEGMENT}.log")
    broker.stop()
    assert (broker.a / CLEAN_SHUTDOWN).exists()
    assert not (broker.b / CLEAN_SHUTDOWN).exists()
    assert "stopped cleanly" not in caplog.messages
    broker.start_again()
    assert broker.codes() == [E.NONE, E.NONE]
