"""Retention waits until segments are archived: up to an offset that the caller gives, and to a number of bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.log_config import LogConfig
from storage.log import Log
from storage.log_stats import NOTHING, Stretch
from storage.retention import apply_retention
from tests.support.logs import LogHome, T, batch_of, segmented, values_in

SEGMENT = 2 * batch_of(b"0").header.size
"""Bytes of a segment: two records, a minute from one to the next."""
ALL_TOO_OLD = T + 86_400_000


def swept(log: Log, held_from: int | None, now_ms: int = ALL_TOO_OLD) -> tuple[int, ...]:
    """The base offsets that are left."""
    apply_retention(log, now_ms, held_from)
    return log.segments.bases


@pytest.mark.parametrize(
    ("held_from", "left"),
    [
        (0, (0, 2, 4, 6, 8)),
        (1, (0, 2, 4, 6, 8)),
        (2, (2, 4, 6, 8)),
        (5, (4, 6, 8)),
        (9, (8,)),
        (10, (10,)),
        (None, (10,)),
    ],
)
def test_what_is_too_old_goes_in_whole_segments_up_to_what_is_archived(
    home: LogHome, held_from: int | None, left: tuple[int, ...]
) -> None:
    log = segmented(home, retention_ms=1000)
    assert swept(log, held_from) == left
    assert log.log_start_offset == left[0]


def test_what_is_too_large_waits_as_well(home: LogHome) -> None:
    log = segmented(home, retention_bytes=SEGMENT)
    assert swept(log, 0) == (0, 2, 4, 6, 8)
    assert log.held == Stretch(0, 8, 4 * SEGMENT)
    assert swept(log, 4) == (4, 6, 8)
    assert swept(log, 10) == (8,), "retention itself keeps the last"


def test_what_is_archived_and_not_due_stays(home: LogHome) -> None:
    log = segmented(home, retention_ms=600_000)
    newest_of_second = T + 3 * 60_000
    assert swept(log, 10, newest_of_second + 600_001) == (4, 6, 8)
    assert log.held == NOTHING


def test_it_tells_what_it_holds_and_no_more_once_that_is_archived(home: LogHome) -> None:
    log = segmented(home, retention_ms=1000)
    swept(log, 3)
    assert (log.held, log.held.records) == (Stretch(3, 10, 4 * SEGMENT), 7)
    assert log.given_up == NOTHING
    swept(log, 10)
    assert log.held == NOTHING


def test_what_nobody_waits_for_any_more_goes(home: LogHome) -> None:
    log = segmented(home, retention_ms=1000)
    swept(log, 0)
    assert swept(log, None) == (10,)
    assert (log.held, log.given_up, log.stats.records_given_up) == (NOTHING, NOTHING, 0)


def test_records_that_are_deleted_on_demand_wait_for_nobody(home: LogHome) -> None:
    log = segmented(home, retention_ms=1000)
    log.start_offset_to(5)
    assert swept(log, 0) == (4, 6, 8)
    assert values_in(log)[0] == b"5"


def test_above_the_limit_the_oldest_go_and_it_is_told_which(home: LogHome) -> None:
    log = segmented(home, retention_ms=1000, ottla_archive_max_bytes=2 * SEGMENT)
    assert swept(log, 1) == (6, 8)
    assert (log.given_up, log.given_up.records) == (Stretch(1, 6, 3 * SEGMENT), 5)
    assert log.held == Stretch(6, 10, 2 * SEGMENT)
    assert swept(log, 1) == (6, 8)
    assert log.given_up == NOTHING, "it was told once"
    assert log.stats.records_given_up == 5


def test_one_byte_too_many_is_a_segment_too_many(home: LogHome) -> None:
    log = segmented(home, retention_ms=1000, ottla_archive_max_bytes=5 * SEGMENT - 1)
    assert swept(log, 0) == (2, 4, 6, 8)
    log.config = log.config.replace(ottla_archive_max_bytes=4 * SEGMENT)
    assert swept(log, 0) == (2, 4, 6, 8)


def test_what_retention_would_have_kept_does_not_count(home: LogHome) -> None:
    log = segmented(home, retention_bytes=3 * SEGMENT, ottla_archive_max_bytes=2 * SEGMENT)
    assert swept(log, 0) == (0, 2, 4, 6, 8)
    log.config = log.config.replace(ottla_archive_max_bytes=SEGMENT)
    assert swept(log, 0) == (2, 4, 6, 8)


def test_with_a_limit_of_nothing_it_is_as_if_nobody_waited(home: LogHome) -> None:
    log = segmented(home, retention_ms=1000, ottla_archive_max_bytes=0)
    assert swept(log, 0) == (10,)
    assert log.given_up == Stretch(0, 10, 5 * SEGMENT)


def test_the_active_segment_is_given_up_only_if_nobody_is_writing_to_it(home: LogHome) -> None:
    log = segmented(home, retention_ms=1000, ottla_archive_max_bytes=0)
    log.append_all(T)
    home.append(log, batch_of(b"10", timestamp=T))
    log.stage(batch_of(b"11", timestamp=ALL_TOO_OLD), leader_epoch=0)
    assert swept(log, 0) == (10,)
    assert log.given_up == Stretch(0, 10, 5 * SEGMENT)
    log.append_all(T)
    assert values_in(log) == [b"10", b"11"]


def test_a_topic_that_only_compacts_holds_nothing(home: LogHome) -> None:
    log = segmented(home, retention_ms=1000, cleanup_policy=frozenset({"compact"}))
    log.start_offset_to(5)
    assert swept(log, 0) == (4, 6, 8)
    assert log.held == NOTHING


@given(
    held_from=st.none() | st.integers(0, 10),
    retention_ms=st.integers(-1, 11).map(lambda minutes: minutes * 60_000),
    retention_bytes=st.integers(-1, 6 * SEGMENT),
    max_bytes=st.integers(-1, 6 * SEGMENT),
    high_watermark=st.integers(0, 10),
    start=st.integers(0, 10),
)
def test_it_holds_no_less_than_it_must_and_no_more_than_it_may(
    held_from: int | None,
    retention_ms: int,
    retention_bytes: int,
    max_bytes: int,
    high_watermark: int,
    start: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def kept(held_from: int | None) -> Log:
        home = LogHome(tmp_path_factory.mktemp("log"), config=LogConfig(segment_index_bytes=12_000))
        log = segmented(
            home, retention_ms=retention_ms, retention_bytes=retention_bytes, ottla_archive_max_bytes=max_bytes
        )
        log.high_watermark = high_watermark
        log.start_offset_to(min(start, high_watermark))
        apply_retention(log, T + 10 * 60_000, held_from)
        return log

    unheld, held = kept(None), kept(held_from)

    before = unheld.log_start_offset
    extra = sum(segment.size for segment in held.segments if segment.base_offset < unheld.segments[0].base_offset)
    assert held.segments[0].base_offset <= unheld.segments[0].base_offset
    assert extra == held.held.size
    if max_bytes >= 0:
        assert extra <= max_bytes
    if held_from is None:
        assert held.segments.bases == unheld.segments.bases
    elif max_bytes < 0:
        assert held.log_start_offset <= max(held_from, min(start, high_watermark))
        assert held.given_up == NOTHING
    else:
        assert held.log_start_offset <= max(before, held_from)
