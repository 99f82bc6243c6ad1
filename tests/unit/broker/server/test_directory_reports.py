"""What the controller is told of log directories that fail, and of partitions whose files are gone."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from broker.metadata.image.topics import PartitionImage
from broker.runtime.shutdown import Shutdown
from broker.server.directory_reports import DirectoryReports
from broker.server.log_dirs import LogDirs
from config.broker_settings import BrokerSettings
from storage.errors import LogDirFailed
from storage.files import FileSystem
from storage.topic_partition import TopicPartition
from tests.support.broker import running_broker

NODE = 1
IDS = bytes([7] * 16), bytes([8] * 16)
TOPIC_ID = bytes([1] * 16)
GONE = LogDirFailed("the disk is gone")


class Node:
    """A node with two data directories, the first of which has the metadata: orders-0 is in the second."""

    def __init__(self, tmp_path: Path) -> None:
        self.log_dirs = LogDirs(FileSystem(), BrokerSettings(log_dirs=(str(tmp_path / "a"), str(tmp_path / "b"))))
        self.log_dirs.lock()
        self.log_dirs.by_id = dict(zip(IDS, self.log_dirs.for_logs, strict=True))
        self.membership = Mock()
        self.shutdown = Shutdown()
        partitions = [PartitionImage(index, (NODE,), (NODE,), NODE, 0, 0, directories=(IDS[1],)) for index in (0, 1)]
        topic = SimpleNamespace(topic_id=TOPIC_ID, partition=lambda index: partitions[index])
        image = SimpleNamespace(topics=SimpleNamespace(by_name={"orders": topic}))
        metadata: Any = SimpleNamespace(image=image)
        self.reports = DirectoryReports(NODE, self.log_dirs, self.membership, metadata, self.shutdown)

    def fail(self, number: int, *partitions: int) -> None:
        directory = self.log_dirs.for_logs[number]
        directory.has_failed = True
        self.reports.directory_failed(directory, GONE, [TopicPartition("orders", index) for index in partitions])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.log_dirs.release(broker_epoch=-1, is_clean=False)


def test_a_failed_directory_is_reported_and_the_metadata_say_what_was_in_it(node: Node) -> None:
    node.fail(1, 0)

    node.membership.directory_failed.assert_called_once_with(IDS[1])
    node.membership.directories.lost.assert_not_called()
    assert node.shutdown.failure is None


def test_a_partition_that_the_metadata_have_elsewhere_is_lost_with_the_directory(tmp_path: Path, node: Node) -> None:
    third = node.log_dirs.for_logs[1]
    node.log_dirs.by_id = {IDS[0]: node.log_dirs.for_logs[0], bytes([9] * 16): third}

    node.fail(1, 0)

    node.membership.directories.lost.assert_called_once_with(TOPIC_ID, 0)


def test_a_partition_whose_files_are_gone_is_lost(node: Node) -> None:
    node.reports.partition_removed(TopicPartition("orders", 1), GONE)
    node.reports.partition_removed(TopicPartition("deleted", 0), GONE)

    node.membership.directories.lost.assert_called_once_with(TOPIC_ID, 1)


def test_directories_that_failed_while_the_logs_were_loaded_are_reported_behind_that(node: Node) -> None:
    node.log_dirs.for_logs[1].has_failed = True

    node.reports.report_failed_before()

    node.membership.directory_failed.assert_called_once_with(IDS[1])


def test_without_the_directory_of_the_metadata_the_broker_ends(node: Node) -> None:
    node.fail(0, 0)

    assert node.shutdown.failure is GONE
    node.membership.directory_failed.assert_not_called()


@pytest.mark.parametrize("release", ["4.0", "4.4"])
def test_a_directory_that_the_file_names_takes_no_new_replicas_at_any_level(tmp_path: Path, release: str) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with running_broker(one, log_dirs=f"{one},{two}", cordoned_log_dirs=two, ottla_release_version=release) as broker:
        broker.create_topic("orders", partitions=4)
        assert len([*one.glob("orders-*")]) == 4
