"""Damaged snapshots, epochs, checkpoints, `partition.metadata`; what a process left half done; strange directories."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from storage.checkpoints import (
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    write_topic_id,
)
from storage.errors import WrongDirectory
from storage.loading import ALWAYS, LoadReport
from storage.log import Log
from tests.support.damage import RECORDS, Damage, KnownLog, damage
from tests.support.data_directory import CONFIG, ORDERS, TOPIC_ID, DataDirectory, the_log
from tests.support.files import FaultyFileSystem
from tests.support.logs import LogHome, T, batch_of, values_in

FIRST = f"{0:020d}"
STOPS = ("an unclean stop", "a clean stop", "a flush")

DAMAGES: dict[str, Damage] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "torn": lambda content: content[: len(content) // 2 + 1],
    "zeros": lambda content: bytes(len(content)),
    "rubbish": lambda content: b"\xa7\x00 \n" * 20,
}


def start(known: KnownLog, stop: str) -> Log:
    clean = stop == "a clean stop"
    return known.start(clean=clean, recovery_point=0 if stop == "an unclean stop" else RECORDS)


def test_a_report_goes_from_process_to_process_as_json() -> None:
    report = LoadReport(bytes_recovered=3, findings=["x is missing"])
    assert LoadReport(**json.loads(json.dumps(dataclasses.asdict(report)))) == report


# Producer snapshots ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("which", ["the newest snapshot", "all snapshots"])
def test_producers_are_known_with(home: LogHome, which: str, what: str, stop: str) -> None:
    known = KnownLog.stopped(home, clean=stop == "a clean stop")
    snapshots = sorted(Path(home.directory).glob("*.snapshot"))
    for path in snapshots[-1:] if which == "the newest snapshot" else snapshots:
        damage(path, DAMAGES[what])
    log = start(known, stop)
    known.check()
    assert log.producers.entries[7].last_sequence == known.last_sequence
    assert log.producers.entries[8].last_sequence == len(known.aborted) - 1
    assert home.append(log, batch_of(b"again", producer_id=7, sequence=known.last_sequence)).is_duplicate
    if stop == "an unclean stop":
        assert known.lines == [], "nobody needed it: the log has been read from its beginning"
    else:
        (line,) = known.lines
        assert snapshots[-1].name in line
        assert "the producers have been taken from the batches from offset" in line
    log.close(T)
    known.start(clean=True, recovery_point=RECORDS)
    assert known.lines == [], "it is there again"


# Leader epochs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("what", [*DAMAGES, "too few lines", "falling"])
def test_leader_epochs_are_taken_from_the_batches_with_a_file_that_is(home: LogHome, what: str, stop: str) -> None:
    home.config = home.config.replace(segment_bytes=300)
    known = KnownLog(home)
    log = home.open()
    for number in range(20):
        home.append(log, batch_of(b"%d" % number, timestamp=T + number), leader_epoch=number // 6 * 2)
    log.flush(T)
    if stop == "a clean stop":
        log.close(T)
    log.abandon()
    path = Path(home.directory) / LEADER_EPOCHS
    assert path.read_text() == "0\n4\n0 0\n2 6\n4 12\n6 18\n"
    others: dict[str, Damage] = {
        "too few lines": lambda content: b"0\n4\n0 0\n",
        "falling": lambda content: b"0\n2\n4 6\n2 12\n",
    }
    damage(path, {**DAMAGES, **others}[what])
    log = known.start(clean=stop == "a clean stop", recovery_point=0 if stop == "an unclean stop" else 20)
    assert log.leader_epochs.entries == [(0, 0), (2, 6), (4, 12), (6, 18)]
    log.flush(T)
    assert path.read_text() == "0\n4\n0 0\n2 6\n4 12\n6 18\n"
    if stop != "an unclean stop" or what not in ("missing", "empty"):
        (line,) = known.lines
        assert line.startswith(str(path))
        assert line.endswith("the leader epochs have been taken from the batches")


@pytest.mark.parametrize("recovery_point", [0, 20])
def test_epochs_of_records_whose_deletion_was_not_written_down_come_back(home: LogHome, recovery_point: int) -> None:
    """DeleteRecords takes epochs away before the log start is in its checkpoint: killed between the two, the old log
    start counts, and the batches behind it must have their epochs again."""
    home.config = home.config.replace(segment_bytes=300)
    log = home.open()
    for number in range(20):
        home.append(log, batch_of(b"%d" % number), leader_epoch=number // 6 * 2)
    log.start_offset_to(13)
    log.flush(T)
    log.abandon()
    assert (Path(home.directory) / LEADER_EPOCHS).read_text() == "0\n2\n4 13\n6 18\n"
    log = home.open(recovery_point=recovery_point)
    assert log.leader_epochs.entries == [(0, 0), (2, 6), (4, 12), (6, 18)]
    (finding,) = home.report.findings
    assert finding.endswith("begins at offset 13, and the log at 0: the leader epochs have been taken from the batches")

    log.abandon()
    log = home.open(recovery_point=recovery_point, log_start_offset=13)
    assert log.leader_epochs.entries == [(4, 13), (6, 18)]
    assert home.report.findings == []


def test_a_log_without_records_needs_no_epochs(home: LogHome) -> None:
    home.open().close(T)
    known = KnownLog(home)
    known.start(clean=True)
    assert known.lines == []


# What was half done ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", STOPS)
def test_files_no_longer_or_not_yet_in_use_are_removed(home: LogHome, stop: str) -> None:
    known = KnownLog.stopped(home, clean=stop == "a clean stop")
    directory = Path(home.directory)
    leftovers = ("00000000000000000002.log.cleaned", "00000000000000000500.log.deleted", "leader-epoch-checkpoint.tmp")
    for name in leftovers:
        (directory / name).write_bytes(b"rubbish")
    (directory / "notes.txt").write_bytes(b"not ours")
    start(known, stop)
    known.check()
    assert not [name for name in home.names() if name in leftovers]
    assert "notes.txt" in home.names()
    assert known.lines == [
        f"{directory} had files that were no longer or not yet in use: {', '.join(leftovers)} were removed"
    ]


@pytest.mark.parametrize("stop", STOPS)
def test_an_index_without_its_segment_is_removed(home: LogHome, stop: str) -> None:
    known = KnownLog.stopped(home, clean=stop == "a clean stop")
    stray = Path(home.directory) / "00000000000000000999.index"
    stray.write_bytes(b"")
    start(known, stop)
    known.check()
    assert not stray.exists()
    (line,) = known.lines
    assert "00000000000000000999.index" in line


@pytest.mark.parametrize(
    "digits",
    ["0", "+0000000000000000000", "0" * 21, "9" * 20, "0000000000000000000\N{ARABIC-INDIC DIGIT FOUR}",
     "\N{SUPERSCRIPT TWO}" * 20],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [".log", ".index", ".snapshot", ".log.swap", ".index.swap"])
def test_a_file_whose_name_spells_an_offset_in_another_way_is_none_of_the_log(
    home: LogHome, digits: str, suffix: str
) -> None:
    known = KnownLog.stopped(home, clean=True)
    (Path(home.directory) / f"{digits}{suffix}").write_bytes(b"\1" * 100)
    start(known, "a clean stop")
    known.check()
    assert known.lines == []


def swap_of_the_first_two(known: KnownLog) -> Path:
    directory = Path(known.home.directory)
    merged = known.path(0, ".log").read_bytes() + known.path(known.bases[1], ".log").read_bytes()
    path = directory / f"{FIRST}.log.swap"
    path.write_bytes(merged)
    return path


@pytest.mark.parametrize("stop", STOPS)
def test_finished_swap_files_take_the_place_of_what_they_were_made_from(home: LogHome, stop: str) -> None:
    known = KnownLog.stopped(home, clean=stop == "a clean stop")
    size = swap_of_the_first_two(known).stat().st_size
    log = start(known, stop)
    assert log.segments.bases == (0, *known.bases[2:])
    assert log.segments[0].size == size
    known.check()
    assert len(known.lines_about(f"{FIRST}.log.swap")) == 1


@pytest.mark.parametrize("stop", STOPS)
def test_a_swap_that_had_been_finished_but_for_its_indexes_is_finished(home: LogHome, stop: str) -> None:
    known = KnownLog.stopped(home, clean=stop == "a clean stop")
    for suffix in (".index", ".timeindex"):
        path = known.path(known.bases[1], suffix)
        path.rename(f"{path}.swap")
    start(known, stop)
    known.check()
    assert not [name for name in home.names() if name.endswith(".swap")]


@pytest.mark.parametrize("stop", STOPS)
def test_a_damaged_swap_file_does_not_replace_what_is_whole(home: LogHome, stop: str) -> None:
    known = KnownLog.stopped(home, clean=stop == "a clean stop")
    damage(swap_of_the_first_two(known), lambda content: content[:-5])
    log = start(known, stop)
    assert log.segments.bases == known.bases
    known.check()
    (line,) = known.lines
    assert line.endswith(f"{known.path(0, '.log')} stays, {FIRST}.log.swap went")


@pytest.mark.parametrize("stop", STOPS)
def test_swap_files_beside_unfinished_cleaned_ones_are_taken_back(home: LogHome, stop: str) -> None:
    known = KnownLog.stopped(home, clean=stop == "a clean stop")
    directory = Path(home.directory)
    (directory / f"{known.bases[1]:020d}.log.swap").write_bytes(b"half")
    (directory / f"{FIRST}.log.cleaned").write_bytes(b"half")
    start(known, stop)
    known.check()
    assert len(known.lines) == 1


def test_a_directory_that_has_lost_all_segments_goes_on_where_it_was_on_disk(home: LogHome) -> None:
    known = KnownLog.stopped(home, clean=True)
    for path in Path(home.directory).iterdir():
        if path.name != LEADER_EPOCHS:
            path.unlink()
    log = known.start(clean=True, recovery_point=RECORDS)
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (RECORDS, RECORDS, (RECORDS,))
    (line,) = known.lines
    assert f"ends at offset 0, and was on disk up to {RECORDS}" in line


# Of the data directory ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["a clean stop", "an unclean stop"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> DataDirectory:
    directory = DataDirectory(tmp_path / "data", FaultyFileSystem())
    directory.fill()
    directory.stop(clean=request.param == "a clean stop")
    return directory


@pytest.mark.parametrize("what", [*DAMAGES, "too few lines"])
@pytest.mark.parametrize("name", [RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS])
def test_everything_is_there_with_a_checkpoint_that_is(data: DataDirectory, name: str, what: str) -> None:
    damage(data.path / name, (DAMAGES | {"too few lines": lambda content: b"0\n2\norders 0 3\n"})[what])
    manager = data.start()
    log = the_log(manager)
    start_offset = 0 if name == LOG_START_OFFSETS else 3
    assert (log.log_start_offset, log.log_end_offset) == (start_offset, 10)
    assert values_in(log) == [b"%d" % number for number in range(start_offset, 10)]
    assert start_offset <= log.high_watermark <= 10
    if what in ("missing", "empty"):
        assert manager.findings == [], "one that was never written looks like this"
    else:
        (line,) = manager.findings
        assert line.startswith(str(data.path / name))
        assert "it counts as empty" in line
    data.stop(clean=True)
    assert (data.path / RECOVERY_POINTS).read_text() == "0\n1\norders 0 10\n"
    assert data.start().findings == []


def test_checking_everything_cuts_nothing_that_was_on_disk(data: DataDirectory) -> None:
    path = data.log_path / f"{FIRST}.log"
    damage(path, lambda content: content[:100] + b"\xa7" + content[101:])
    manager = data.start(recovery=ALWAYS)
    log = the_log(manager)
    assert (log.log_start_offset, log.log_end_offset) == (3, 10)
    (repaired,) = manager.repaired
    (line,) = repaired.report.findings
    assert line.startswith(f"{path}, position ")
    assert repaired.report.bytes_cut == 0


def without_id(content: bytes) -> bytes:
    return b"version: 0\ntopic_id: " + b"A" * 22


@pytest.mark.parametrize(
    ("what", "how"),
    [*DAMAGES.items(), ("of no topic", without_id), ("of another version", lambda c: c.replace(b"0", b"7", 1))],
)
def test_a_partition_keeps_its_records_with_a_partition_metadata_that_is(
    data: DataDirectory, what: str, how: Damage
) -> None:
    path = data.log_path / PARTITION_METADATA
    before = path.read_bytes()
    damage(path, how)
    manager = data.start()
    assert the_log(manager).log_end_offset == 10
    (line,) = manager.findings
    assert line.startswith(str(path))
    manager.create(ORDERS, TOPIC_ID, CONFIG, T)
    assert path.read_bytes() == before, "the broker hosts the partition, and knows its id"


@pytest.mark.parametrize("topic_id", [b"x" * 16, None])
def test_a_directory_of_a_topic_that_nobody_knows_is_set_aside(data: DataDirectory, topic_id: bytes | None) -> None:
    stray = data.path / "unknown-0"
    stray.mkdir()
    if topic_id is not None:
        write_topic_id(data.files, str(stray / PARTITION_METADATA), topic_id)
    manager = data.start()
    assert [log.topic_partition for log in manager.all()] == [ORDERS]
    assert (data.path / f"unknown-0.{0:032x}-stray").is_dir()
    named = " has the topic id eHh4eHh4eHh4eHh4eHh4eA" if topic_id else "/partition.metadata is missing"
    assert manager.findings == [
        f"{stray}{named}, and the metadata knows no such partition: set aside as unknown-0.{0:032x}-stray"
    ]


@pytest.mark.parametrize("name", ["orders-00", "orders-+0", "orders-000", "orders-\N{ARABIC-INDIC DIGIT ZERO}"])
def test_a_directory_that_spells_the_partitions_number_in_another_way_is_set_aside(
    data: DataDirectory, name: str
) -> None:
    stray = data.path / name
    stray.mkdir()
    (stray / f"{0:020d}.log").write_bytes(b"")

    manager = data.start()

    assert the_log(manager).log_end_offset == 10
    assert not stray.exists()
    assert (data.path / f"orders-0.{0:032x}-stray").is_dir()
    assert manager.findings == [
        f"{stray}/partition.metadata is missing, and the directory of orders-0 is called orders-0: "
        f"set aside as orders-0.{0:032x}-stray"
    ]


@pytest.mark.parametrize("stays", [True, False])
def test_a_log_whose_directory_spells_the_number_in_another_way_refuses_the_start(
    data: DataDirectory, stays: bool
) -> None:
    other = data.path / "orders-00"
    shutil.copytree(data.log_path, other)
    if not stays:
        shutil.rmtree(data.log_path)

    with pytest.raises(WrongDirectory) as refused:
        data.start()

    named = "has the topic id b29vb29vb29vb29vb29vbw, and the directory of orders-0 is called orders-0"
    assert str(refused.value) == f"{other} {named}"
    assert other.is_dir(), "it may be all that is left of the log"


@pytest.mark.parametrize("unique_id", ["ab" * 16, "x"])
@pytest.mark.parametrize("fate", ["stray", "delete"])
def test_a_directory_that_was_renamed_before_is_no_news(data: DataDirectory, fate: str, unique_id: str) -> None:
    renamed = data.path / f"orders-0.{unique_id}-{fate}"
    renamed.mkdir()
    manager = data.start()
    assert the_log(manager).log_end_offset == 10
    assert manager.findings == []
    assert renamed.is_dir()
    assert len(manager.take_pending_removals()) == (fate == "delete")


@pytest.mark.parametrize("unique_id", ["ab" * 16, "x"])
def test_the_copy_of_a_log_that_moves_is_kept_and_what_it_lacks_is_told(data: DataDirectory, unique_id: str) -> None:
    future = data.path / f"orders-0.{unique_id}-future"
    future.mkdir()
    manager = data.start()
    assert the_log(manager).log_end_offset == 10
    assert manager.findings == [
        f"{future}/partition.metadata is missing: the topic id is the one that the metadata has"
    ]
    assert future.is_dir()


@pytest.mark.parametrize(
    "name", ["holiday pictures", "notes", "some-notes", ".hidden", "orders- 1", "orders-1_0", "orders-2147483648"]
)
def test_a_directory_that_is_no_partitions_is_refused_by_name(data: DataDirectory, name: str) -> None:
    (data.path / name).mkdir()
    with pytest.raises(WrongDirectory, match=name):
        data.start()


@pytest.mark.parametrize("marker", [b"", b"rubbish", bytes(30)])
def test_a_marker_that_says_nothing_counts(tmp_path: Path, marker: bytes) -> None:
    data = DataDirectory(tmp_path / "data", FaultyFileSystem())
    data.fill()
    data.stop(clean=True)
    (data.path / ".kafka_cleanshutdown").write_bytes(marker)
    manager = data.start()
    assert manager.directories[0].was_clean
    assert the_log(manager).log_end_offset == 10


def test_a_marker_beside_logs_that_were_not_closed_does_no_harm(home: LogHome) -> None:
    known = KnownLog.stopped(home, clean=False)
    known.start(clean=True, recovery_point=known.bases[-1])
    known.check()
