"""In which order things reach the disk: each test cuts the power where another order would lose or bring back records.

What `test_power_cuts` has found stands here, written out.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from storage.checkpoints import CLEAN_SHUTDOWN, LEADER_EPOCHS, META_PROPERTIES, MetaProperties
from storage.errors import LogDirFailed
from storage.log_dir import LogDir
from storage.retention import apply_retention
from tests.support.disk import EVERYTHING, NOTHING
from tests.support.files import FaultyFileSystem, PowerLost
from tests.support.logs import LogHome, T, batch_of, values_in
from tests.support.memory import directory_in_memory
from tests.support.power import PoweredStorage

ANY = range(2, 40)
"""Seeds by which anything may survive."""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory for the files of a simulated disk."""
    with TemporaryDirectory(prefix="power-", dir=directory_in_memory()) as path:
        yield Path(path)


@pytest.fixture
def storage(tmp_path: Path) -> PoweredStorage:
    """A data directory with one topic, whose every start is checked."""
    storage = PoweredStorage(tmp_path)
    storage.create("orders")
    return storage


def test_a_data_directory_that_is_made_is_there_after_a_power_cut(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    path = tmp_path / "var" / "lib" / "data"
    directory = LogDir.lock(files, str(path))
    directory.write_properties(MetaProperties("Lq2xlGBqTcCbPwVhzU0q5A", 1, None), "")
    files.cut_power(str(tmp_path))
    assert (path / META_PROPERTIES).exists()


def at_every_moment(
    path: Path, prepare: Callable[[PoweredStorage], None], act: Callable[[PoweredStorage], None], seeds: Sequence[int]
) -> int:
    """Do it again and again, with the power lost one change later each time; how many moments there were."""
    moments = 0
    while True:
        for seed in seeds:
            storage = PoweredStorage(path / f"{moments}-{seed}")
            storage.create("orders")
            prepare(storage)
            storage.lose_power_after(moments, seed)
            act(storage)
            was_lost = storage.files.disk.changes_left is None
            storage.files.keep_power()
            if storage.is_running:
                storage.cut_power_and_start(seed)
            else:
                storage.start()
        if not was_lost:
            return moments
        moments += 1


def written(storage: PoweredStorage) -> None:
    """Some of everything, in three segments, nothing flushed."""
    for number in range(3):
        storage.append("orders", producer_id=7, size=30, timestamp=T + number)
        storage.append("orders", producer_id=20, is_transactional=True)
        storage.end_transaction("orders", 20, commit=bool(number))
        storage.roll("orders")
    storage.append("orders", count=3)


# The marker of a clean stop -------------------------------------------------------------------------------------------


def test_the_marker_does_not_come_back_once_logs_have_been_written_to(storage: PoweredStorage) -> None:
    storage.append("orders")
    storage.stop_and_start()
    assert storage.directory.was_clean
    storage.append("orders")
    storage.cut_power_and_start(NOTHING)
    assert not storage.directory.was_clean


def test_the_marker_is_written_when_everything_else_is_on_disk(tmp_path: Path) -> None:
    def prepare(storage: PoweredStorage) -> None:
        written(storage)
        storage.delete_records("orders", 0.6)
        storage.append("orders")  # so that the checkpoints have something to say

    assert at_every_moment(tmp_path, prepare, PoweredStorage.stop, (NOTHING, EVERYTHING, 2)) > 20


def test_a_stop_after_a_full_flush_leaves_indexes_and_snapshot_on_disk(storage: PoweredStorage) -> None:
    written(storage)
    storage.flush("orders")
    log = storage.log("orders")
    assert log is not None
    directory, end = Path(log.directory), log.log_end_offset
    storage.stop()
    left = {path.name: path.read_bytes() for path in directory.iterdir()}
    storage._cut(NOTHING)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == left
    assert f"{end:020d}.snapshot" in left
    storage.start()
    assert storage.directory.was_clean


def test_a_stop_leaves_on_disk_what_recovery_has_built(storage: PoweredStorage) -> None:
    storage.append("orders", count=3)
    storage.append("orders", size=200)
    storage.append("orders", size=200)
    storage.flush("orders")
    storage.write_checkpoints()
    storage.cut_power_and_start(EVERYTHING)
    storage.flush("orders")
    storage.stop_cut_power_and_start(NOTHING)


def test_aborted_transactions_of_lost_records_do_not_come_back_after_a_stop(storage: PoweredStorage) -> None:
    storage.append("orders")
    storage.flush("orders")
    storage.append("orders", producer_id=20, is_transactional=True)
    storage.end_transaction("orders", 20, commit=False)
    log = storage.log("orders")
    assert log is not None
    index = log.segments.active.transaction_index.file()
    assert index is not None
    index.fsync()  # the kernel writes when it likes
    storage.files.fsync_directory(log.directory)
    storage.cut_power_and_start(NOTHING)
    storage.kill_and_start()  # a process that has not cut it itself
    storage.stop_cut_power_and_start(NOTHING)
    log = storage.log("orders")
    assert log is not None
    assert list(log.segments.active.transaction_index) == []
    assert not Path(log.segments.active.transaction_index.path).exists()


def test_a_short_life_leaves_its_timestamps_in_the_index(storage: PoweredStorage) -> None:
    storage.append("orders", timestamp=T)
    storage.stop_and_start()
    storage.append("orders", timestamp=T + 5)
    storage.flush("orders")
    storage.stop_and_start()
    log = storage.log("orders")
    assert log is not None
    assert log.offset_for_timestamp(T + 5, 10) == (T + 5, 1, log.leader_epochs.latest)


def test_partition_metadata_is_on_disk_after_a_stop(storage: PoweredStorage) -> None:
    storage.stop_cut_power_and_start(NOTHING)
    log = storage.log("orders")
    assert log is not None
    assert log.topic_id == storage.topics["orders"].topic_id


def test_a_failed_write_does_not_come_back_after_a_stop(storage: PoweredStorage) -> None:
    storage.append("orders")
    for seed in ANY:
        storage.stop_and_start()
        storage.files.fail("write", errno.ENOSPC, suffix=".log", bytes_done=40)
        storage.append("orders")
        storage.stop_cut_power_and_start(seed)


# Flushes --------------------------------------------------------------------------------------------------------------


def test_what_was_flushed_survives_with_its_name(storage: PoweredStorage) -> None:
    written(storage)
    storage.flush("orders")
    log = storage.log("orders")
    assert log is not None
    end = log.log_end_offset
    storage.cut_power_and_start(NOTHING)
    log = storage.log("orders")
    assert log is not None
    assert log.log_end_offset == end


def test_a_flush_cut_off_at_any_moment_loses_nothing_of_the_one_before(tmp_path: Path) -> None:
    def prepare(storage: PoweredStorage) -> None:
        storage.append("orders", producer_id=7)
        storage.flush("orders")
        storage.write_checkpoints()
        storage.append("orders", producer_id=7)
        storage.roll("orders")
        storage.append("orders")

    def act(storage: PoweredStorage) -> None:
        storage.flush("orders")
        storage.write_checkpoints()

    assert at_every_moment(tmp_path, prepare, act, range(2, 5)) > 10


def test_the_recovery_point_moves_when_the_sync_is_done(home: LogHome) -> None:
    log = home.open()
    home.append_values(log, b"a")
    target = log.begin_flush(T, everything=True)
    assert target is not None
    assert log.recovery_point == 0
    target.perform()
    assert log.recovery_point == 0
    log.complete_flush(target)
    assert log.recovery_point == 1


@pytest.mark.parametrize("suffix", [".log", ".snapshot", ".tmp", "orders-0"])
def test_a_failed_sync_is_not_tried_again(home: LogHome, suffix: str) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7))
    log.roll(T)
    target = log.begin_flush(T, everything=True)
    assert target is not None
    home.files.fail("fsync", errno.EIO, suffix=suffix)
    with pytest.raises(LogDirFailed, match="Input/output error"):
        target.perform()
    assert log.recovery_point == 0
    assert log.begin_flush(T, everything=True) is None


def test_epochs_below_the_recovery_point_are_on_disk(storage: PoweredStorage) -> None:
    storage.append("orders")
    for seed in ANY:
        storage.flush("orders")
        storage.write_checkpoints()
        storage.append("orders")
        storage.cut_power_and_start(seed)  # a new epoch begins
        storage.append("orders")
        storage.roll("orders")
    log = storage.log("orders")
    assert log is not None
    assert len(log.leader_epochs.entries) > 5


def test_a_new_epoch_does_not_endanger_the_old_ones(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a"), leader_epoch=1)
    log.roll(T)
    log.flush(T)
    for seed in ANY:
        log.assign_epoch_start(seed)
        home.append(log, batch_of(b"b"), leader_epoch=seed)
        log.begin_flush(T, everything=True)
        log.abandon()
        home.files.cut_power_by_chance(str(home.path), seed)
        log = home.open(recovery_point=1)
        assert log.leader_epochs.epoch_at(0) == 1
        assert home.bytes_of(LEADER_EPOCHS) == b"0\n1\n1 0\n"
        log.truncate_to(1, T)


def test_sequences_below_the_recovery_point_are_remembered(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, sequence=0))
    home.append(log, batch_of(b"b", producer_id=7, sequence=1))
    log.roll(T)
    log.flush(T)
    log.abandon()
    home.files.cut_power(str(home.path))
    home.files.disk.reads.clear()
    log = home.open(recovery_point=2)
    assert log.producers.entries[7].last_sequence == 1
    assert [read.name for read in home.files.disk.reads if read.name == f"{0:020d}.log"] == [], "the snapshot has it"
    assert home.append(log, batch_of(b"b", producer_id=7, sequence=1)).is_duplicate


def test_the_indexes_of_a_flushed_segment_are_on_disk_before_there_is_a_new_one(home: LogHome) -> None:
    home.config = home.config.replace(flush_messages=1, index_interval_bytes=10)
    log = home.open()
    for number in range(5):
        home.append(log, batch_of(b"%d" % number, timestamp=T + number))
        log.flush(T)
    home.files.disk.synced.clear()
    log.roll(T)
    assert not log.needs_flush(T)
    assert home.files.disk.synced[:3] == [f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")]
    log.abandon()
    home.files.cut_power_by_chance(str(home.path), NOTHING)
    (Path(home.directory) / f"{5:020d}.log").touch()  # the name may be there: other files' syncs write it too
    (Path(home.directory) / f"{5:020d}.index").touch()
    (Path(home.directory) / f"{5:020d}.timeindex").touch()
    log = home.open(recovery_point=5)
    assert home.report.segments_rebuilt == 1
    assert log.segments[0].offset_index.entries == 4
    assert values_in(log, 3) == [b"3", b"4"]


# Checkpoints ----------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_the_old_one_or_the_new_one_at_every_moment(tmp_path: Path) -> None:
    def prepare(storage: PoweredStorage) -> None:
        for _ in range(10):
            storage.append("orders")
        storage.flush("orders")
        storage.delete_records("orders", 0.3)

    assert at_every_moment(tmp_path, prepare, lambda storage: storage.delete_records("orders", 0.6), range(6)) > 3


def test_deleted_records_do_not_come_back_with_their_segments(storage: PoweredStorage) -> None:
    written(storage)
    storage.roll("orders")
    storage.flush("orders")
    storage.delete_records("orders", 1.0)
    storage.apply_retention()
    log = storage.log("orders")
    assert log is not None
    start = log.log_start_offset
    assert log.segments[0].base_offset == start
    storage.write_checkpoints()
    storage.cut_power_and_start(NOTHING)  # the renaming of the segments is lost
    log = storage.log("orders")
    assert log is not None
    assert log.log_start_offset == start


def test_the_log_begins_later_before_retention_touches_a_file(home: LogHome) -> None:
    home.config = home.config.replace(retention_bytes=0)
    log = home.open()
    home.append_values(log, b"a")
    log.roll(T)
    home.append_values(log, b"b")
    home.files.fail("rename", errno.EIO, suffix=".log")
    with pytest.raises(LogDirFailed):
        apply_retention(log, T)
    assert log.log_start_offset > 0


def test_a_segment_that_has_lost_its_end_leaves_no_hole(storage: PoweredStorage) -> None:
    storage.flush("orders")
    storage.append("orders", producer_id=7)
    storage.roll("orders")
    storage.append("orders", producer_id=7)
    log = storage.log("orders")
    assert log is not None
    log.segments[1].files.log_file().fsync()  # the kernel writes when it likes
    storage.files.fsync_directory(log.directory)
    storage.cut_power_and_start(NOTHING)
    log = storage.log("orders")
    assert log is not None
    assert (log.log_end_offset, log.segments.bases) == (0, (0,))


def test_recovery_cut_off_at_any_moment_leaves_no_hole(tmp_path: Path) -> None:
    for moment in range(40):
        for seed in range(2, 6):
            home = LogHome(tmp_path / f"{moment}-{seed}")
            home.config = home.config.replace(cleanup_policy=frozenset({"compact"}))
            home.files.make_directory(str(home.path))
            log = home.open()
            for value in (b"a", b"b", b"c", b"d"):
                home.append_values(log, value, value)
                log.roll(T)
            log.close(T)
            with open(f"{home.directory}/{0:020d}.log", "r+b") as file:
                file.seek(log.segments[0].size - 1)
                file.write(b"?")
            home.files.lose_power_after(moment)
            with suppress(PowerLost):
                home.open()
            home.files.cut_power_by_chance(str(home.path), seed)
            # Of a compacted log a hole is nothing unusual: recovery must not make one.
            assert values_in(home.open()) == [b"a"]


@pytest.mark.parametrize("seed", ANY)
def test_what_recovery_cuts_off_does_not_come_back_behind_new_records(home: LogHome, seed: int) -> None:
    log = home.open()
    home.append_values(log, b"a", b"b", b"c")
    size = log.size // 3
    log.flush(T)
    log.abandon()
    path = Path(home.directory) / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[size + 30] ^= 1
    path.write_bytes(content)
    log = home.open()
    assert values_in(log) == [b"a"]
    home.append_values(log, b"B")
    log.abandon()
    home.files.cut_power_by_chance(str(home.path), seed)
    assert values_in(home.open()) in ([b"a"], [b"a", b"B"])


# Truncation -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [0.3, 0.9])
def test_a_truncation_cut_off_at_any_moment_leaves_a_beginning_of_the_log(tmp_path: Path, fraction: float) -> None:
    def prepare(storage: PoweredStorage) -> None:
        written(storage)
        storage.flush("orders")
        storage.write_checkpoints()

    def act(storage: PoweredStorage) -> None:
        storage.truncate("orders", fraction)
        storage.append("orders", size=30)

    assert at_every_moment(tmp_path, prepare, act, (NOTHING, 2, 3)) > 10


def test_a_new_beginning_cut_off_at_any_moment_is_old_or_new(tmp_path: Path) -> None:
    def prepare(storage: PoweredStorage) -> None:
        written(storage)
        storage.flush("orders")
        storage.delete_records("orders", 0.5)

    def act(storage: PoweredStorage) -> None:
        storage.truncate_fully("orders", 3)
        storage.append("orders")
        storage.flush("orders")

    assert at_every_moment(tmp_path, prepare, act, (NOTHING, 2, 3)) > 20


def test_what_was_cut_off_does_not_come_back_behind_new_records(home: LogHome) -> None:
    for seed in ANY:
        log = home.open()
        log.truncate_fully_to(0, T)
        home.append_values(log, b"a", b"b", b"c", b"d")
        log.flush(T)
        log.truncate_to(1, T)
        home.append_values(log, b"B")
        log.abandon()
        home.files.cut_power_by_chance(str(home.path), seed)
        log = home.open(recovery_point=1)
        assert values_in(log) in ([b"a"], [b"a", b"B"])
        log.abandon()


def test_the_recovery_point_on_disk_is_lowered_before_the_log_is_cut(storage: PoweredStorage) -> None:
    for _ in range(10):
        storage.append("orders", size=60)
    storage.flush("orders")
    storage.write_checkpoints()
    log = storage.log("orders")
    assert log is not None
    offset = log.log_end_offset // 2
    storage.truncate("orders", 0.5)
    assert storage.directory.recovery_points()[log.topic_partition] <= offset


def test_truncating_into_the_batch_that_holds_the_start_leaves_an_empty_log_there(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", b"b", b"c"))
    log.start_offset_to(2)
    log.truncate_to(2, T)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (2, 2, 2)
    assert home.append(log, batch_of(b"d")).first_offset == 2
    assert values_in(log) == [b"d"]


def test_a_log_that_begins_anew_has_its_high_watermark_there(home: LogHome) -> None:
    log = home.open()
    home.append_values(log, b"a")
    log.flush(T)
    log.truncate_fully_to(40, T)
    assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (40, 40, 1)
    assert not (Path(home.directory) / LEADER_EPOCHS).exists()


def test_timestamps_behind_the_last_index_entry_are_found_after_a_truncation(home: LogHome) -> None:
    log = home.open()
    for number in range(4):
        home.append(log, batch_of(b"%d" % number, timestamp=T + number))
    log.truncate_to(3, T)
    assert log.offset_for_timestamp(T + 2, 3) == (T + 2, 2, 0)
    assert log.offset_of_max_timestamp() == (T + 2, 2, 0)


def test_a_checkpoint_that_waited_does_not_undo_a_later_one(storage: PoweredStorage) -> None:
    for _ in range(10):
        storage.append("orders", size=60)
    storage.flush("orders")
    storage.prepare_checkpoints()
    storage.delete("orders")
    storage.create("orders")
    storage.finish_checkpoints()
    log = storage.log("orders")
    assert log is not None
    for offsets in (storage.directory.recovery_points(), storage.directory.high_watermarks()):
        assert log.topic_partition not in offsets


def test_a_flush_under_way_does_not_bring_epochs_back_into_a_new_beginning(storage: PoweredStorage) -> None:
    storage.append("orders")
    storage.begin_flush("orders", everything=True)
    storage.truncate_fully("orders", 0)
    storage.stop_cut_power_and_start(NOTHING)
    log = storage.log("orders")
    assert log is not None
    assert log.leader_epochs.entries == []


# Topics ---------------------------------------------------------------------------------------------------------------


def test_a_flush_of_a_log_that_is_deleted_meanwhile_does_not_touch_its_namesake(storage: PoweredStorage) -> None:
    storage.append("orders")
    storage.begin_flush("orders", everything=True)
    storage.delete("orders")
    storage.finish_flushes()
    storage.begin_flush("orders", everything=True)
    storage.create("orders")
    storage.append("orders")
    storage.stop_cut_power_and_start(NOTHING)


def test_a_formatted_directory_is_on_disk(tmp_path: Path) -> None:
    storage = PoweredStorage(tmp_path)
    storage.cut_power_and_start(NOTHING)
    assert storage.directory.read_properties() is not None
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()
