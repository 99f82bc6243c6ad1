"""What `restore` refuses: in a sentence, with an exit code, and with nothing changed in the directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from pipeline.restore.plan import Wishes, make_plan
from pipeline.restore.segments import restore_segments
from storage.errors import DiskFull
from storage.file_info import DiskSpace
from storage.files import FileSystem
from tests.pipeline.restore.archiving import archive, names_in, restore
from tests.support.clients import Record, connect
from tests.support.files import FaultyFileSystem

NOT_DONE, DAMAGED = 2, 1


@pytest.fixture
def dest(broker: BrokerProcess, topic: str, tmp_path: Path) -> Path:
    """An archive of one topic."""
    client = connect("confluent-kafka", broker.bootstrap)
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"v" * 10_000) for _ in range(50)])
    archive(broker.data_directory, tmp_path / "archive", topic, bootstrap=broker.bootstrap)
    return tmp_path / "archive"


def refused(capsys: pytest.CaptureFixture[str], dest: Path, *words: str, code: int = NOT_DONE) -> str:
    """The sentence."""
    assert restore(dest, *words) == code
    told = capsys.readouterr().err
    assert told.startswith("ottla pipeline restore: ")
    assert told.count("\n") == 1
    return told


def test_a_topic_that_is_there(
    dest: Path, topic: str, second: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    connect("confluent-kafka", second.start().bootstrap).create_topic(topic)
    second.stop()
    before = names_in(second.data_directory)

    told = refused(capsys, dest, "--target-dir", str(second.data_directory))

    assert f"has topics of these names already: {topic}; --topic-map gives new ones" in told
    assert names_in(second.data_directory) == before


def test_a_directory_that_a_broker_works_in(
    dest: Path, second: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    second.start()
    before = names_in(second.data_directory)

    told = refused(capsys, dest, "--target-dir", str(second.data_directory))

    assert "is in use by another broker" in told
    assert names_in(second.data_directory) == before


def test_a_directory_that_is_not_a_brokers(dest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "home" / "pictures").mkdir(parents=True)

    assert "is no broker's" in refused(capsys, dest, "--target-dir", str(tmp_path / "home"))
    assert names_in(tmp_path / "home") == ["pictures"]


def test_one_of_several_directories(
    dest: Path, second: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    second.settings["log.dirs"] = f"{second.data_directory},{other}"
    second.start()
    second.stop()

    assert "has no metadata log" in refused(capsys, dest, "--target-dir", str(other))


def test_an_archive_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is no archive" in refused(capsys, tmp_path, "--target-dir", str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def test_topics_that_are_not_archived(
    dest: Path, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(capsys, dest, "--target-dir", str(tmp_path / "target"), "--topics", topic[:-1])

    assert f"has no topic {topic[:-1]}; did you mean {topic}?" in told
    assert not (tmp_path / "target").exists()


def test_groups_that_are_not_archived(dest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, dest, "--target-dir", str(tmp_path / "target"), "--groups", "nobody")

    assert "has no offsets of group nobody" in told


def test_options_of_the_other_mode(dest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "needs --target-dir" in refused(capsys, dest)
    assert "has no use for --target-dir" in refused(
        capsys, dest, "--mode", "produce", "--bootstrap", "x:1", "--offset-map", "o.json", "--target-dir", str(tmp_path)
    )


def test_configs_that_no_topic_has(dest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, dest, "--target-dir", str(tmp_path / "target"), "--config", "retention.ms=long")

    assert "retention.ms" in told
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 250])
def test_names_that_no_topic_may_have(
    dest: Path, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    told = refused(capsys, dest, "--target-dir", str(tmp_path / "target"), "--topic-map", f"{topic}={name}")

    assert "Topic name is invalid" in told
    assert names_in(tmp_path / "target") == []


def test_an_archive_that_lost_a_file(dest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lost,) = dest.rglob("*.parquet")
    lost.unlink()

    told = refused(capsys, dest, "--target-dir", str(tmp_path / "target"), code=DAMAGED)

    assert str(lost.name) in told
    assert names_in(tmp_path / "target") == []


def test_an_archive_whose_rows_have_changed(
    dest: Path, topic: str, broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that are not those of the batches are found by the batches' CRCs."""
    other = tmp_path / "other"
    client = connect("confluent-kafka", broker.bootstrap)
    client.create_topic(f"{topic}-2")
    client.produce(f"{topic}-2", [Record(value=b"w" * 10_000) for _ in range(50)])
    archive(broker.data_directory, other, f"{topic}-2", bootstrap=broker.bootstrap)
    (rows,), (others,) = dest.rglob("*.parquet"), other.rglob("*.parquet")
    shutil.copy(others, rows)

    told = refused(capsys, dest, "--target-dir", str(tmp_path / "target"), code=DAMAGED)

    assert "CRC" in told
    assert names_in(tmp_path / "target") == []


class SmallDisk(FileSystem):
    """One with little room."""

    def space(self, path: str) -> DiskSpace:
        return DiskSpace(1 << 20, 1 << 20)


def test_a_disk_without_room(dest: Path, tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match="has room for 1048576 bytes, and the restore needs"):
        _restore(dest, tmp_path / "target", SmallDisk())
    assert not (tmp_path / "target").exists()


def test_a_disk_that_fills_up(dest: Path, second: BrokerProcess) -> None:
    """What had been staged goes again."""
    second.start()
    second.stop()
    before = names_in(second.data_directory)
    files = FaultyFileSystem()
    files.disk.bytes_left = 300_000

    with pytest.raises(DiskFull):
        _restore(dest, second.data_directory, files)

    assert names_in(second.data_directory) == before
    second.start()


def _restore(dest: Path, target: Path, files: FileSystem) -> None:
    from pipeline.archive.archive import Archive
    from pipeline.restore.archived import Archived

    archived = Archived(Archive.open(dest))
    restore_segments(
        archived,
        str(target),
        wishes="all",
        make_plan=lambda: make_plan(archived.manifest, Wishes(), archived.first_offset_at),
        files=files,
    )


def test_another_restore_that_was_not_finished(dest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Killed(BaseException):
        pass

    def die(step: str) -> None:
        raise Killed

    from pipeline.archive.archive import Archive
    from pipeline.restore.archived import Archived

    archived = Archived(Archive.open(dest))
    with pytest.raises(Killed):
        restore_segments(
            archived, str(tmp_path / "target"), wishes="--topics first",
            make_plan=lambda: make_plan(archived.manifest, Wishes(), archived.first_offset_at), at=die,
        )  # fmt: skip

    told = refused(capsys, dest, "--target-dir", str(tmp_path / "target"))

    assert "was not finished; it was asked for with --topics first: do that again first" in told
