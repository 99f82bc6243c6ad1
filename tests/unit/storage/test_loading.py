"""Opening a log after a clean stop and after a crash. Damaged files are in test_recovery_*.py."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from storage.batch.records import iterate_records
from storage.checkpoints import LEADER_EPOCHS
from storage.log import Log
from storage.retention import apply_retention
from tests.support.logs import LogHome, T, batch_of, headers_in, marker, values_in

FIRST = "00000000000000000000"


def stored(home: LogHome, *, segment_bytes: int = 400, count: int = 12) -> list[bytes]:
    """A log of several segments, its process gone without a word; what it held."""
    home.config = home.config.replace(segment_bytes=segment_bytes, index_interval_bytes=100)
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


def test_a_producer_whose_records_were_deleted_is_known_after_a_crash(home: LogHome) -> None:
    """Or it could write once more what it was not told about. Apache Kafka forgets it."""
    home.config = home.config.replace(segment_bytes=300)
    log = home.open()
    home.append(log, batch_of(b"sent", producer_id=7))
    while len(log.segments) < 3:
        home.append_values(log, b"other")
    second = log.segments[1].base_offset
    log.start_offset_to(second + 1)
    apply_retention(log, T)
    assert log.segments[0].base_offset == second
    log.abandon()

    log = home.open(recovery_point=second, log_start_offset=second + 1)

    assert log.producers.entries.keys() == {7}
    assert log.stage(batch_of(b"sent", producer_id=7), leader_epoch=0).is_duplicate


def test_epochs_that_begin_behind_the_log_are_dropped(home: LogHome) -> None:
    stored(home)
    home.open().close(T)
    (Path(home.directory) / LEADER_EPOCHS).write_text("0\n3\n0 0\n2 12\n4 13\n")
    assert home.open(clean=True).leader_epochs.entries == [(0, 0), (2, 12)]


def test_after_an_unclean_stop_only_the_batches_say_which_epochs_there_are(home: LogHome) -> None:
    stored(home)
    (Path(home.directory) / LEADER_EPOCHS).write_text("0\n3\n0 0\n2 7\n4 12\n")
    assert home.open().leader_epochs.entries == [(0, 0)]


def test_a_recovered_log_knows_the_last_five_batches_of_a_producer(home: LogHome) -> None:
    stored(home)
    log = home.open()
    assert home.append(log, batch_of(b"7", producer_id=7, sequence=7)).is_duplicate


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
        self.home.config = self.home.config.replace(segment_bytes=300, index_interval_bytes=80, segment_index_bytes=240)
        self.log: Log = self.home.open()
        self.written: dict[int, bytes] = {}
        """By offset. A power cut may lose the end of a segment and leave what was in the next one."""
        self.flushed = 0

    @rule(value=st.binary(min_size=1, max_size=60))
    def append(self, value: bytes) -> None:
        offset = self.log.log_end_offset
        self.home.append(self.log, batch_of(value))
        self.written[offset] = value

    @rule()
    def flush(self) -> None:
        self.log.flush(T)
        self.flushed = self.log.log_end_offset
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
        self.flushed = self.log.log_end_offset
        self.log = self.home.open(clean=True)
        assert self.home.report.segments_rebuilt == 0

    @rule(kept=st.integers(0, 400))
    def power_cut(self, kept: int) -> None:
        recovery_point = self.log.recovery_point
        self.log.abandon()
        self.home.files.cut_power(str(self.home.path), lambda name, unsynced: min(kept, unsynced))
        self.log = self.home.open(recovery_point=recovery_point)
        found = {h.base_offset: record.value for h, data in self.log.batches() for record in iterate_records(data)}
        assert found.items() <= self.written.items()
        assert {offset for offset in self.written if offset < self.flushed} <= set(found)
        assert self.log.log_end_offset >= self.flushed
        self.written = {offset: self.written[offset] for offset in found}

    @invariant()
    def every_record_is_found(self) -> None:
        for offset in sorted(self.written)[-3:]:
            found = self.log.read(offset, max_bytes=1, upper_bound_offset=1 << 40, at_least_one_batch=True)
            assert found.region is not None
            assert headers_in(found.region.read())[0].base_offset == offset


def test_what_was_flushed_outlives_any_power_cut(tmp_path_factory: pytest.TempPathFactory) -> None:
    LogUnderPowerCuts.directory = tmp_path_factory.mktemp("power")  # type: ignore[attr-defined]
    LogUnderPowerCuts.TestCase.settings = settings(
        max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    LogUnderPowerCuts.TestCase("runTest").runTest()
