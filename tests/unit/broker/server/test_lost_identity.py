"""Data directories that have lost meta.properties, their ids or the metadata log: no start forgets the topics."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.server.broker_server import CannotStart
from storage.checkpoints import format_id, read_meta_properties
from storage.files import FileSystem
from tests.support.broker import InProcessBroker
from tests.support.requests import fetch_request

PARTITIONS = 4
METADATA_LOG = "__cluster_metadata-0"
FIRST_SNAPSHOT = "00000000000000000000-0000000000.checkpoint"
ANOTHER_ID = "4L6g3nShT-eMCtK--X86sw"


class StoppedBroker(InProcessBroker):
    """A broker with the directories `a`, which has the metadata, and `b`; it has stopped after a record to each
    partition of `orders`."""

    def __init__(self, directory: Path) -> None:
        self.a, self.b = directory / "a", directory / "b"
        super().__init__(directory, log_dirs=f"{self.a},{self.b}")
        self.create_topic("orders", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            self.produce("orders", b"value", partition=partition)
        self.stop()
        self.is_running = False

    def start_with(self, **settings: object) -> None:
        self._settings |= {key.replace("_", "."): str(value) for key, value in settings.items()}
        self.start()
        self.is_running = True

    def refuses_to_start(self, **settings: object) -> str:
        """Why the broker does not start; no directory looks different then."""
        before = sorted(self.directory.rglob("*"))
        with pytest.raises(CannotStart) as refusal:
            self.start_with(**settings)
        assert [path for path in sorted(self.directory.rglob("*")) if path.name != ".lock"] == [
            path for path in before if path.name != ".lock"
        ]
        return str(refusal.value)

    def has_all_records(self) -> bool:
        answers = [self.ask(fetch_request("orders", partition=index), 12) for index in range(PARTITIONS)]
        return all(answer.responses[0].partitions[0].records for answer in answers)

    def close(self) -> None:
        if self.is_running:
            super().close()
        else:
            self._runner.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[StoppedBroker]:
    broker = StoppedBroker(tmp_path)
    try:
        yield broker
    finally:
        broker.close()


def edit(directory: Path, pattern: str, replacement: str) -> None:
    """Change lines of a directory's meta.properties."""
    path = directory / "meta.properties"
    path.write_text(re.sub(pattern, replacement, path.read_text()))


def directory_id(directory: Path) -> bytes:
    properties = read_meta_properties(FileSystem(), f"{directory}/meta.properties")
    assert properties is not None
    assert properties.directory_id is not None
    return properties.directory_id


# The metadata log ---------------------------------------------------------------------------------------------------


def without_files(metadata_log: Path) -> None:
    for path in metadata_log.iterdir():
        path.unlink()


def without_segments(metadata_log: Path) -> None:
    for path in metadata_log.glob("*.log"):
        path.unlink()


def with_empty_segments(metadata_log: Path) -> None:
    for path in metadata_log.glob("*.log"):
        path.write_bytes(b"")


@pytest.mark.parametrize(
    ("lose", "state"),
    [
        (shutil.rmtree, "is missing"),
        (without_files, "is empty"),
        (without_segments, "is empty"),
        (with_empty_segments, "is empty"),
    ],
)
def test_partitions_without_their_metadata_log_are_not_set_aside(
    broker: StoppedBroker, tmp_path: Path, lose: Callable[[Path], None], state: str
) -> None:
    metadata_log = broker.a / METADATA_LOG
    shutil.copytree(metadata_log, tmp_path / "backup")
    lose(metadata_log)

    assert broker.refuses_to_start() == (
        f"{metadata_log} {state}, expected the metadata log that knows 2 partitions (orders-0, …) in {broker.a}"
    )

    shutil.rmtree(metadata_log, ignore_errors=True)
    (tmp_path / "backup").rename(metadata_log)
    broker.start_with()
    assert broker.has_all_records()


def test_a_metadata_log_elsewhere_than_the_settings_say_is_not_begun_again(
    broker: StoppedBroker, tmp_path: Path
) -> None:
    sentence = (
        f"found the metadata log {broker.a / METADATA_LOG}, expected it in {{}}: "
        "metadata.log.dir, or else the first directory of log.dirs, has changed"
    )
    assert broker.refuses_to_start(log_dirs=f"{broker.b},{broker.a}") == sentence.format(broker.b)
    (tmp_path / "c").mkdir()
    assert broker.refuses_to_start(metadata_log_dir=tmp_path / "c") == sentence.format(tmp_path / "c")

    broker.start_with(metadata_log_dir=broker.a)
    assert broker.has_all_records()


def test_a_directory_for_logs_is_not_given_a_metadata_log(broker: StoppedBroker) -> None:
    assert broker.refuses_to_start(log_dirs=broker.b) == (
        f"{broker.b / METADATA_LOG} is missing, expected the metadata log that knows 2 partitions (orders-1, …) "
        f"in {broker.b}"
    )


def test_a_disk_that_is_new_is_not_taken_for_that_of_the_metadata(broker: StoppedBroker) -> None:
    shutil.rmtree(broker.a)
    broker.a.mkdir()
    (cluster_id,) = re.findall("cluster.id=(.*)", (broker.b / "meta.properties").read_text())

    assert broker.refuses_to_start() == (
        f"{broker.a} is new, expected the metadata log of cluster {cluster_id}, which {broker.b} belongs to"
    )


def test_a_new_directory_whose_formatting_was_interrupted_is_formatted(broker: StoppedBroker, tmp_path: Path) -> None:
    new = tmp_path / "new"
    (new / METADATA_LOG).mkdir(parents=True)
    shutil.copy(broker.a / METADATA_LOG / FIRST_SNAPSHOT, new / METADATA_LOG / FIRST_SNAPSHOT)

    broker.start_with(log_dirs=new)

    broker.create_topic("other")
    broker.produce("other", b"value")


# meta.properties ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "b"])
def test_partitions_without_meta_properties_are_not_formatted_over(
    broker: StoppedBroker, tmp_path: Path, name: str
) -> None:
    directory = tmp_path / name
    (directory / "meta.properties").rename(tmp_path / "backup")
    first = min(path.name for path in directory.glob("orders-*"))

    assert broker.refuses_to_start() == (
        f"{directory} has 2 partitions ({first}, …) and no meta.properties, "
        "expected the meta.properties that says whose they are, or an empty directory"
    )

    (tmp_path / "backup").rename(directory / "meta.properties")
    broker.start_with()
    assert broker.has_all_records()


def test_a_metadata_log_without_meta_properties_is_not_formatted_over(broker: StoppedBroker) -> None:
    (broker.a / "meta.properties").unlink()
    for path in broker.a.glob("orders-*"):
        shutil.rmtree(path)

    assert broker.refuses_to_start() == (
        f"{broker.a} has a metadata log and no meta.properties, "
        "expected the meta.properties that says whose it is, or an empty directory"
    )


def test_a_directory_of_no_cluster_is_refused(broker: StoppedBroker) -> None:
    for directory in (broker.a, broker.b):
        edit(directory, "cluster.id=.*\n", "")

    assert broker.refuses_to_start() == f"{broker.a}/meta.properties does not name its cluster.id"


# directory.id -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [("", "no directory.id"), (f"directory.id={ANOTHER_ID}\n", f"the directory.id {ANOTHER_ID}")],
)
def test_a_metadata_directory_with_another_id_than_its_voter_is_refused(
    broker: StoppedBroker, line: str, found: str
) -> None:
    expected = format_id(directory_id(broker.a))
    edit(broker.a, "directory.id=.*\n", line)

    with pytest.raises(CannotStart) as refusal:
        broker.start_with()
    assert str(refusal.value) == (
        f"{broker.a}/meta.properties has {found}, expected {expected}, "
        f"which the voter 1 of {broker.a / METADATA_LOG} has"
    )

    edit(broker.a, "(directory.id=.*\n)?version=", f"directory.id={expected}\nversion=")
    broker.start_with()
    assert broker.has_all_records()


def test_a_directory_for_logs_that_has_lost_its_id_gets_another(broker: StoppedBroker) -> None:
    before = directory_id(broker.b)
    edit(broker.b, "directory.id=.*\n", "")

    broker.start_with()

    assert broker.has_all_records()
    after = directory_id(broker.b)
    assert after != before
    assert list(broker.server.log_dirs.by_id) == [directory_id(broker.a), after]
    orders = broker.server.metadata.image.topics.by_name["orders"]
    assert {partition.directory for partition in orders.partitions} == {directory_id(broker.a), after}


def test_a_directory_that_kafka_formatted_before_there_were_ids_gets_partitions(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={ANOTHER_ID}\n")
    broker = InProcessBroker(tmp_path)
    try:
        broker.create_topic("orders")
        broker.produce("orders", b"value")
        assert list(broker.server.log_dirs.by_id) == [directory_id(tmp_path)]
    finally:
        broker.close()


def test_a_copy_of_a_directory_beside_it_is_refused(broker: StoppedBroker, tmp_path: Path) -> None:
    shutil.copytree(broker.b, tmp_path / "copy")

    assert broker.refuses_to_start(log_dirs=f"{broker.a},{broker.b},{tmp_path / 'copy'}") == (
        f"{tmp_path / 'copy'} and {broker.b} have the same directory.id {format_id(directory_id(broker.b))}: "
        "a copy of a data directory needs an id of its own"
    )


def test_an_id_that_stands_for_no_directory_is_refused(broker: StoppedBroker) -> None:
    edit(broker.b, "directory.id=.*\n", "directory.id=AAAAAAAAAAAAAAAAAAAAAQ\n")

    assert broker.refuses_to_start() == (
        f"{broker.b}/meta.properties has the reserved directory.id AAAAAAAAAAAAAAAAAAAAAQ"
    )
