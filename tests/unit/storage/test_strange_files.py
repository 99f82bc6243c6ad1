"""Links, pipes, sockets, devices, files and directories where something else is expected."""

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.errors import LogDirFailed, StorageError
from storage.files import FileSystem
from storage.topic_partition import TopicPartition
from tests.support.data_directory import ORDERS, TOPIC_ID, DataDirectory, the_log

FILES = FileSystem()

Make = Callable[[Path], object]


def make_socket(path: Path) -> None:
    # The name of a socket may have 107 bytes only, and not more than 103 on macOS.
    with socket.socket(socket.AF_UNIX) as endpoint, contextlib.chdir(path.parent):
        endpoint.bind(path.name)


STRANGERS: dict[str, tuple[Make, str]] = {
    "a link that leads nowhere": (
        lambda path: path.symlink_to("/not-mounted/orders-0"),
        "a link to /not-mounted/orders-0",
    ),
    "a link to itself": (lambda path: path.symlink_to(path.name), "a link to "),
    "a pipe": (lambda path: os.mkfifo(path), "a pipe"),
    "a socket": (make_socket, "a socket"),
    "a device": (lambda path: path.symlink_to("/dev/null"), "a device"),
}
FILE: dict[str, tuple[Make, str]] = {"a file": (lambda path: path.write_bytes(b"x"), "a file")}
DIRECTORY: dict[str, tuple[Make, str]] = {"a directory": (lambda path: path.mkdir(), "a directory")}


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    directory = DataDirectory(tmp_path / "data", FILES)
    directory.fill()
    directory.stop(clean=True)
    return directory


def put(stranger: str, path: Path) -> str:
    """Put it in the place of what is there; what the sentence about it must say."""
    make, said = (STRANGERS | FILE | DIRECTORY)[stranger]
    if path.exists():
        path.rename(path.with_name("aside"))
    make(path)
    return said


@pytest.mark.parametrize("stranger", [*STRANGERS, *FILE])
def test_what_stands_in_the_place_of_a_partitions_directory_fails_the_data_directory(
    data: DataDirectory, tmp_path: Path, stranger: str
) -> None:
    data.log_path.rename(tmp_path / "aside")
    said = put(stranger, data.log_path)

    manager = data.start()

    ((_, error),) = manager.failures
    assert isinstance(error, LogDirFailed)
    assert str(error).startswith(f"{data.log_path} is {said}")
    assert str(error).endswith(", expected the directory of partition orders-0")
    assert manager.get(ORDERS) is None


@pytest.mark.parametrize("stranger", [*STRANGERS, *FILE])
@pytest.mark.parametrize("name", ["sales-0", "orders-00", f"orders-0.{'ab' * 16}-delete", "notes"])
def test_what_has_the_name_of_no_partition_that_is_hosted_does_no_harm(
    data: DataDirectory, name: str, stranger: str
) -> None:
    put(stranger, data.path / name)

    assert the_log(data.start()).log_end_offset == 10
    assert os.path.lexists(data.path / name)


@pytest.mark.parametrize("stranger", [*STRANGERS, *DIRECTORY])
@pytest.mark.parametrize(
    "name",
    [f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex", f"{0:020d}.txnindex", f"{10:020d}.snapshot",
     "leader-epoch-checkpoint", "partition.metadata"],
)  # fmt: skip
def test_what_stands_in_the_place_of_a_logs_file_fails_the_data_directory(
    data: DataDirectory, name: str, stranger: str
) -> None:
    said = put(stranger, data.log_path / name)

    manager = data.start()

    ((_, error),) = manager.failures
    assert isinstance(error, LogDirFailed)
    assert str(data.log_path / name) in str(error)
    assert said in str(error)


@pytest.mark.parametrize("stranger", [*STRANGERS, *DIRECTORY])
def test_what_is_none_of_a_logs_files_does_no_harm(data: DataDirectory, stranger: str) -> None:
    put(stranger, data.log_path / "notes")

    assert the_log(data.start()).log_end_offset == 10


@pytest.mark.parametrize("stranger", [*STRANGERS, *DIRECTORY])
@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint",
     ".kafka_cleanshutdown"],
)  # fmt: skip
def test_what_stands_in_the_place_of_a_checkpoint_fails_the_data_directory(
    data: DataDirectory, name: str, stranger: str
) -> None:
    said = put(stranger, data.path / name)

    manager = data.start()

    ((_, error),) = manager.failures
    assert isinstance(error, LogDirFailed)
    assert str(data.path / name) in str(error)
    assert said in str(error)


@pytest.mark.parametrize("stranger", [*STRANGERS, *DIRECTORY])
def test_only_files_are_opened_and_nothing_waits_for_a_pipe(tmp_path: Path, stranger: str) -> None:
    said = put(stranger, tmp_path / "a")

    for open_it in (FILES.open_read, FILES.open_log, FILES.read_file):
        with pytest.raises(LogDirFailed) as refused:
            open_it(str(tmp_path / "a"))
        assert said in str(refused.value)


def test_a_partition_that_is_a_link_is_served_from_where_it_leads(data: DataDirectory, tmp_path: Path) -> None:
    data.log_path.rename(tmp_path / "elsewhere")
    data.log_path.symlink_to(tmp_path / "elsewhere")

    assert the_log(data.start()).log_end_offset == 10
    data.stop(clean=False)
    assert data.log_path.is_symlink()
    assert the_log(data.start()).log_end_offset == 10


def test_of_a_partition_that_is_a_link_only_the_link_is_removed(data: DataDirectory, tmp_path: Path) -> None:
    data.log_path.rename(tmp_path / "elsewhere")
    data.log_path.symlink_to(tmp_path / "elsewhere")
    manager = data.start()

    removal = manager.delete(ORDERS, "ab" * 16)

    assert removal is not None
    removal.perform()
    assert [entry.name for entry in data.path.iterdir() if entry.name.startswith("orders")] == []
    assert (tmp_path / "elsewhere" / f"{0:020d}.log").exists()


def test_a_directory_is_removed_with_the_links_in_it_and_not_with_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "a" / "nowhere").symlink_to("/not-mounted")

    FILES.remove_tree(str(tmp_path / "a"))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere"]
    assert (tmp_path / "elsewhere" / "kept").exists()


def test_a_new_partition_whose_name_is_taken_by_a_link_that_leads_nowhere_is_refused(data: DataDirectory) -> None:
    (data.path / "orders-1").symlink_to("/not-mounted/orders-1")
    manager = data.start()

    with pytest.raises(StorageError, match="orders-1, a link to /not-mounted/orders-1"):
        manager.create(TopicPartition("orders", 1), TOPIC_ID, the_log(manager).config, 0)
