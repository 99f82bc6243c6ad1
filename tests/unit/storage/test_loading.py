"""Opening a log after a clean stop, after a crash, and over damaged or missing files."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from storage.checkpoints import LEADER_EPOCHS
from storage.log import Log
from tests.support.logs import LogHome, T, batch_of, headers_in, marker, values_in

FIRST = "00000000000000000000"


def stored(home: LogHome, *, segment_bytes: int = 400, count: int = 12) -> list[bytes]:
    """A log of several segments, its process gone without a word; what it held."""
    home.config = dataclasses.replace(home.config, segment_bytes=segment_bytes, index_interval_bytes=100)
    log = home.open()
    log.assign_epoch_start(0)
    values = [b"%d" % number for number in range(count)]
    for number, value in enumerate(values):
        home.append(log, batch_of(value, producer_id=7, sequence=number, timestamp=T + number))
    log.abandon()
    return values


def damage(home: LogHome, name: str, position: int) -> None:
    path = Path(home.directory) / name
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def index_files(home: LogHome) -> dict[str, bytes]:
    return {n: home.bytes_of(n) for n in home.names() if n.endswith(("index", ".snapshot", LEADER_EPOCHS))}


def test_an_empty_directory_becomes_an_empty_log(home: LogHome) -> None:
    log = home.open()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 0, 0)
    assert home.names() == [FIRST + ".index", FIRST + ".log", FIRST + ".timeindex"]
    assert len(home.bytes_of(FIRST + ".index")) == 12_000


def test_a_clean_stop_leaves_what_a_clean_start_needs(home: LogHome) -> None:
    values = stored(home)
    log = home.open()
    log.close(T)
    before = index_files(home)

    log = home.open(clean=True, high_watermark=12)
    assert home.report.segments_rebuilt == 0
    assert values_in(log) == values
    assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (12, 12, 12)
    log.close(T)
    assert index_files(home) == before


def test_a_clean_start_reads_only_the_end_of_the_last_segment(home: LogHome) -> None:
    stored(home, segment_bytes=2000, count=60)
    home.open().close(T)
    log = home.open(clean=True)
    last = log.segments.bases[-1]
    read = [r for r in home.files.disk.reads if r.name.endswith((".log", "index"))]
    assert {r.name for r in read} <= {f"{last:020d}.log", f"{last:020d}.index"}
    largest = max(h.size for h, _ in log.batches())
    assert sum(r.size for r in read if r.name.endswith(".log")) <= 100 + largest


def test_a_clean_start_changes_nothing_and_neither_does_a_clean_stop_after_it(home: LogHome) -> None:
    stored(home)
    home.open().close(T)
    home.files.disk.synced.clear()
    log = home.open(clean=True)
    log.close(T)
    assert home.files.disk.synced == []


@pytest.mark.parametrize("lost_bytes", [1, 10, 61, 70])
def test_a_torn_tail_is_cut_off(home: LogHome, lost_bytes: int) -> None:
    values = stored(home)
    last = home.open().segments.active.log_path
    content = Path(last).read_bytes()
    Path(last).write_bytes(content[:-lost_bytes])

    log = home.open()
    assert values_in(log) == values[:-1]
    assert log.log_end_offset == 11
    assert home.report.bytes_cut == batch_of(values[-1]).header.size - lost_bytes
    assert home.append(log, batch_of(b"new", producer_id=7, sequence=11)).first_offset == 11


def test_zeros_behind_the_last_batch_are_cut_off(home: LogHome) -> None:
    values = stored(home)
    last = Path(home.open().segments.active.log_path)
    last.write_bytes(last.read_bytes() + bytes(1000))
    assert values_in(home.open()) == values
    assert home.report.bytes_cut == 1000


def test_everything_behind_the_first_bad_batch_is_lost_later_segments_too(home: LogHome) -> None:
    values = stored(home)
    log = home.open()
    second = log.segments[1]
    place = second.locate(second.base_offset + 1)
    assert place is not None
    damage(home, f"{second.base_offset:020d}.log", place.position + 65)

    log = home.open()
    assert log.segments.bases == (0, second.base_offset)
    assert values_in(log) == values[: second.base_offset + 1]
    assert len(log.producers.entries[7].batches) <= 5
    assert log.producers.entries[7].last_sequence == second.base_offset
    assert all(name.startswith((FIRST, f"{second.base_offset:020d}")) for name in home.names() if name[0] == "0"
               and not name.endswith(".snapshot"))  # fmt: skip


def test_offsets_that_go_back_end_the_log(home: LogHome) -> None:
    log = home.open()
    home.append_values(log, b"a", b"b")
    log.abandon()
    path = Path(home.directory) / (FIRST + ".log")
    content = path.read_bytes()
    path.write_bytes(content + content[: len(content) // 2])
    log = home.open()
    assert values_in(log) == [b"a", b"b"]


def test_below_the_recovery_point_nothing_is_read(home: LogHome) -> None:
    stored(home)
    log = home.open()
    bases = log.segments.bases
    damage(home, FIRST + ".log", 65)
    log.close(T)
    log = home.open(recovery_point=bases[2])
    assert home.report.segments_rebuilt == len(bases) - 2
    assert log.log_end_offset == 12
    assert log.recovery_point == bases[2]


def test_indexes_rebuilt_are_those_that_were_written(home: LogHome) -> None:
    stored(home, segment_bytes=1500, count=60)
    log = home.open()
    log.close(T)
    written = index_files(home)
    for name in home.names():
        if name.endswith("index"):
            (Path(home.directory) / name).write_bytes(bytes(1200))
    log = home.open()
    log.close(T)
    assert index_files(home) == written


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("what", ["missing", "torn"])
def test_a_missing_or_torn_index_is_rebuilt_even_after_a_clean_stop(home: LogHome, suffix: str, what: str) -> None:
    values = stored(home, segment_bytes=1500, count=60)
    log = home.open()
    base = log.segments.bases[1]
    log.close(T)
    written = index_files(home)
    path = Path(home.directory) / f"{base:020d}{suffix}"
    if what == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-3])

    log = home.open(clean=True)
    assert home.report.segments_rebuilt == 1
    assert values_in(log) == values
    log.close(T)
    assert index_files(home) == written


def test_a_last_index_entry_that_points_nowhere_is_rebuilt(home: LogHome) -> None:
    values = stored(home, segment_bytes=100_000, count=60)
    home.open().close(T)
    path = Path(home.directory) / (FIRST + ".index")
    path.write_bytes(path.read_bytes() + (59).to_bytes(4, "big") + (2**30).to_bytes(4, "big"))
    log = home.open(clean=True)
    assert home.report.segments_rebuilt == 1
    assert values_in(log) == values


def test_an_index_without_its_segment_is_removed(home: LogHome) -> None:
    stored(home)
    stray = Path(home.directory) / "00000000000000000999.index"
    stray.write_bytes(b"")
    home.open()
    assert not stray.exists()


def test_what_was_half_done_is_finished_or_taken_back(home: LogHome) -> None:
    values = stored(home)
    directory = Path(home.directory)
    for name in ("00000000000000000500.log.deleted", "00000000000000000002.log.cleaned", "leader-epoch-checkpoint.tmp"):
        (directory / name).write_bytes(b"rubbish")
    log = home.open()
    assert values_in(log) == values
    assert not [name for name in home.names() if name.endswith((".deleted", ".cleaned", ".tmp"))]


def test_finished_swap_files_take_the_place_of_what_they_were_made_from(home: LogHome) -> None:
    stored(home)
    log = home.open()
    bases = log.segments.bases
    log.close(T)
    directory = Path(home.directory)
    merged = (directory / (FIRST + ".log")).read_bytes() + (directory / f"{bases[1]:020d}.log").read_bytes()
    (directory / (FIRST + ".log.swap")).write_bytes(merged)
    log = home.open()
    assert log.segments.bases == (0, *bases[2:])
    assert log.segments[0].size == len(merged)
    assert log.log_end_offset == 12


def test_swap_files_beside_unfinished_cleaned_ones_are_taken_back(home: LogHome) -> None:
    values = stored(home)
    directory = Path(home.directory)
    base = home.open().segments.bases[1]
    (directory / f"{base:020d}.log.swap").write_bytes(b"half")
    (directory / (FIRST + ".log.cleaned")).write_bytes(b"half")
    log = home.open()
    assert values_in(log) == values


# Offsets, epochs, producers -------------------------------------------------------------------------------------------


def test_the_high_watermark_stays_within_the_log(home: LogHome) -> None:
    stored(home)
    assert home.open(high_watermark=99).high_watermark == 12
    assert home.open(high_watermark=3).high_watermark == 3
    assert home.open(high_watermark=1, log_start_offset=5).high_watermark == 5


def test_a_log_that_ends_below_its_start_begins_anew_there(home: LogHome) -> None:
    stored(home)
    log = home.open(log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (50, 50, (50,))
    assert log.leader_epochs.entries == []
    assert home.append(log, batch_of(b"a")).first_offset == 50


def test_epochs_that_begin_behind_the_log_are_dropped(home: LogHome) -> None:
    stored(home)
    home.open().close(T)
    (Path(home.directory) / LEADER_EPOCHS).write_text("0\n3\n0 0\n2 12\n4 13\n")
    assert home.open(clean=True).leader_epochs.entries == [(0, 0), (2, 12)]


def test_after_an_unclean_stop_only_the_batches_say_which_epochs_there_are(home: LogHome) -> None:
    stored(home)
    (Path(home.directory) / LEADER_EPOCHS).write_text("0\n3\n0 0\n2 7\n4 12\n")
    assert home.open().leader_epochs.entries == [(0, 0)]


def test_a_damaged_epoch_file_is_made_again_from_the_batches(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a"), leader_epoch=1)
    home.append(log, batch_of(b"b"), leader_epoch=4)
    log.close(T)
    (Path(home.directory) / LEADER_EPOCHS).write_text("0\n5\n0 0\n")
    log = home.open(clean=True)
    assert log.leader_epochs.entries == [(1, 0), (4, 1)]
    log.flush(T)
    assert home.bytes_of(LEADER_EPOCHS) == b"0\n2\n1 0\n4 1\n"


def test_a_recovered_log_knows_the_last_five_batches_of_a_producer(home: LogHome) -> None:
    stored(home)
    log = home.open()
    assert home.append(log, batch_of(b"7", producer_id=7, sequence=7)).is_duplicate


def test_a_damaged_snapshot_is_replaced_by_reading(home: LogHome) -> None:
    stored(home)
    home.open().close(T)
    newest = max(name for name in home.names() if name.endswith(".snapshot"))
    damage(home, newest, 12)
    log = home.open(clean=True)
    assert log.producers.entries[7].last_sequence == 11


def test_a_clean_log_without_snapshots_has_no_producers(home: LogHome) -> None:
    stored(home)
    home.open().close(T)
    for name in home.names():
        if name.endswith(".snapshot"):
            (Path(home.directory) / name).unlink()
    log = home.open(clean=True)
    assert len(log.producers) == 0
    assert [name for name in home.names() if name.endswith(".snapshot")] == [
        *(f"{base:020d}.snapshot" for base in log.segments.bases[-2:]), "00000000000000000012.snapshot",
    ]  # fmt: skip


def test_a_producer_silent_for_long_is_not_loaded(home: LogHome) -> None:
    stored(home)
    home.open().close(T)
    home.now_ms = T + 86_400_000 + 11
    assert len(home.open(clean=True).producers) == 0


def test_an_open_transaction_is_open_after_every_kind_of_start(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, is_transactional=True))
    home.append(log, batch_of(b"b", producer_id=8, is_transactional=True))
    log.stage_trusted(marker(7, commit=False), leader_epoch=0)
    log.append_all(T)
    aborted = home.bytes_of(FIRST + ".txnindex")
    log.abandon()

    log = home.open(high_watermark=3)
    assert log.last_stable_offset == 1, "7 was aborted below the high watermark, 8 is open"
    assert home.bytes_of(FIRST + ".txnindex") == aborted
    log.close(T)
    log = home.open(clean=True, high_watermark=3)
    assert log.last_stable_offset == 1


# Power cuts -----------------------------------------------------------------------------------------------------------


class LogUnderPowerCuts(RuleBasedStateMachine):
    """Batches, flushes, rolls, stops and power cuts in any order: what was flushed stays, nothing is invented."""

    homes = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).homes += 1
        self.home = LogHome(self.directory / str(self.homes))  # type: ignore[attr-defined]
        self.home.config = dataclasses.replace(
            self.home.config, segment_bytes=300, index_interval_bytes=80, segment_index_bytes=240
        )
        self.log: Log = self.home.open()
        self.written: list[bytes] = []
        self.flushed = 0

    @rule(value=st.binary(min_size=1, max_size=60))
    def append(self, value: bytes) -> None:
        self.home.append(self.log, batch_of(value, producer_id=7, sequence=self.log.log_end_offset))
        self.written.append(value)

    @rule()
    def flush(self) -> None:
        self.log.flush(T)
        self.flushed = len(self.written)
        assert self.log.recovery_point == self.flushed

    @rule()
    def flush_what_is_due(self) -> None:
        if self.log.needs_flush(T) and (target := self.log.begin_flush(T)) is not None:
            target.perform()
            self.log.complete_flush(target)
            self.flushed = max(self.flushed, self.log.recovery_point)
            assert not self.log.needs_flush(T)

    @rule()
    def stop_and_start(self) -> None:
        self.log.close(T)
        self.flushed = len(self.written)
        self.log = self.home.open(clean=True)
        assert self.home.report.segments_rebuilt == 0

    @rule(kept=st.integers(0, 400))
    def power_cut(self, kept: int) -> None:
        recovery_point = self.log.recovery_point
        self.log.abandon()
        self.home.files.cut_power(str(self.home.path), lambda name, unsynced: min(kept, unsynced))
        self.log = self.home.open(recovery_point=recovery_point)
        found = values_in(self.log)
        assert len(found) >= self.flushed
        assert found == self.written[: len(found)]
        assert self.log.log_end_offset == len(found)
        self.written = found

    @invariant()
    def every_record_is_found(self) -> None:
        for offset in range(max(0, self.log.log_end_offset - 3), self.log.log_end_offset):
            found = self.log.read(offset, max_bytes=1, upper_bound_offset=1 << 40, at_least_one_batch=True)
            assert found.region is not None
            assert headers_in(found.region.read())[0].base_offset == offset


def test_what_was_flushed_outlives_any_power_cut(tmp_path_factory: pytest.TempPathFactory) -> None:
    LogUnderPowerCuts.directory = tmp_path_factory.mktemp("power")  # type: ignore[attr-defined]
    LogUnderPowerCuts.TestCase.settings = settings(
        max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    LogUnderPowerCuts.TestCase("runTest").runTest()
