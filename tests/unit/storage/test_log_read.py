"""The batches that a read gives at every offset and under every limit."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.errors import OffsetOutOfRange
from storage.index.offset_index import OffsetIndex, OffsetPosition
from storage.log import Log
from storage.retention import apply_retention
from tests.support.logs import LogHome, T, batch_of, headers_in

EVERYTHING = 1 << 30


def filled(home: LogHome, batch_sizes: list[int], *, segment_bytes: int = 100_000, interval: int = 300) -> Log:
    """A log with batches of so many records, in several segments."""
    home.config = home.config.replace(segment_bytes=segment_bytes, index_interval_bytes=interval)
    log = home.open()
    for count in batch_sizes:
        home.append(log, batch_of(*[b"x" * 10] * count))
    return log


def read(log: Log, offset: int, *, most: int = EVERYTHING, bound: int | None = None, at_least: bool = True) -> bytes:
    found = log.read(
        offset,
        max_bytes=most,
        upper_bound_offset=log.log_end_offset if bound is None else bound,
        at_least_one_batch=at_least,
    )
    data = b"" if found.region is None else found.region.read()
    assert len(data) == found.size
    return data


@pytest.mark.parametrize("is_reopened", [False, True])
def test_every_offset_is_found_in_the_batch_that_holds_it(home: LogHome, is_reopened: bool) -> None:
    log = filled(home, [1, 5, 3, 1, 1, 8, 2] * 12, segment_bytes=3000)
    assert len(log.segments) > 3
    if is_reopened:
        log.close(T)
        log = home.open(clean=True)
    for offset in range(log.log_end_offset):
        first = headers_in(read(log, offset))[0]
        assert first.base_offset <= offset <= first.last_offset


def test_a_reader_who_follows_gets_every_batch_once(home: LogHome) -> None:
    log = filled(home, [1, 5, 3] * 30, segment_bytes=3000)
    offset, seen = 0, []
    while offset < log.log_end_offset:
        headers = headers_in(read(log, offset, most=500))
        seen += [h.base_offset for h in headers]
        offset = headers[-1].next_offset
    assert seen == [h.base_offset for h, _ in log.batches()]


def test_a_reader_of_one_batch_after_the_other_is_helped_by_the_index_once(
    home: LogHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(home, [4] * 50, interval=0).close(T)
    log = home.open(clean=True)
    looked_up: list[int] = []
    lookup = OffsetIndex.lookup

    def counting(index: OffsetIndex, offset: int) -> OffsetPosition:
        looked_up.append(offset)
        return lookup(index, offset)

    monkeypatch.setattr(OffsetIndex, "lookup", counting)
    assert [headers_in(read(log, offset, most=1))[0].base_offset for offset in range(0, 200, 4)] == [*range(0, 200, 4)]
    assert looked_up == [0]
    read(log, 100)
    assert looked_up == [0, 100]


def test_what_was_read_last_does_not_lead_astray_when_the_log_has_been_cut_below_it(home: LogHome) -> None:
    log = filled(home, [1, 1, 1, 1])
    log.close(T)
    log = home.open(clean=True)
    assert headers_in(read(log, 1))[0].base_offset == 1
    log.truncate_to(1, T)
    home.append(log, batch_of(*[b"y" * 10] * 3))
    for _ in range(300):
        home.append(log, batch_of(b"y"))
    assert headers_in(read(log, 2))[0].base_offset == 1


def test_a_read_stays_in_its_segment(home: LogHome) -> None:
    log = filled(home, [1] * 60, segment_bytes=1000)
    end = log.segments.bases[1]
    assert headers_in(read(log, 0))[-1].last_offset == end - 1


def test_the_last_batch_may_be_cut_short(home: LogHome) -> None:
    log = filled(home, [1, 1])
    size = log.size // 2
    assert len(read(log, 0, most=size + 1)) == size + 1


def test_the_first_batch_comes_whole_whatever_the_limit(home: LogHome) -> None:
    log = filled(home, [5, 1])
    (first, _) = [h.size for h, _ in log.batches()]
    assert len(read(log, 0, most=0)) == first
    assert len(read(log, 0, most=first - 1)) == first


def test_a_first_batch_that_does_not_fit_is_left_out_where_one_was_given_already(home: LogHome) -> None:
    log = filled(home, [5, 1])
    (first, _) = [h.size for h, _ in log.batches()]
    assert read(log, 0, most=first - 1, at_least=False) == b""
    assert len(read(log, 0, most=first, at_least=False)) == first


def test_nothing_at_or_behind_the_upper_bound_is_given(home: LogHome) -> None:
    log = filled(home, [1] * 50, segment_bytes=2000)
    for bound in range(log.log_end_offset + 1):
        data = read(log, 0, bound=bound) if bound else b""
        assert all(h.last_offset < bound for h in headers_in(data))
        if bound and bound <= log.segments.bases[1]:
            assert headers_in(data)[-1].last_offset == bound - 1
        assert read(log, bound, bound=bound) == b""


def test_a_bound_inside_a_batch_leaves_the_batch_out(home: LogHome) -> None:
    log = filled(home, [2, 4, 2])
    assert [h.base_offset for h in headers_in(read(log, 0, bound=4))] == [0]
    assert read(log, 3, bound=4) == b""


def test_offsets_outside_the_log_are_refused(home: LogHome) -> None:
    log = filled(home, [1] * 4)
    assert read(log, 4) == b""
    with pytest.raises(OffsetOutOfRange, match=r"offsets 0 to 4, and 5 was asked for"):
        read(log, 5)
    log.start_offset_to(2)
    with pytest.raises(OffsetOutOfRange):
        read(log, 1)
    assert headers_in(read(log, 2))[0].base_offset == 2


def test_a_gap_left_by_compaction_is_skipped(home: LogHome) -> None:
    log = home.open()
    for base in (0, 10, 20):
        data = batch_of(b"x").data
        data[0:8] = base.to_bytes(8, "big")
        log.stage_trusted(data, keep_offsets=True)
    log.append_all(T)
    assert headers_in(read(log, 5))[0].base_offset == 10
    assert headers_in(read(log, 11))[0].base_offset == 20


def test_a_gap_at_the_end_of_a_segment_continues_in_the_next(home: LogHome) -> None:
    log = home.open()
    log.stage_trusted(batch_of(b"x").data, keep_offsets=True)
    log.append_all(T)
    log.config = home.config.replace(segment_ms=10)
    data = batch_of(b"y", timestamp=T + 11).data
    data[0:8] = (10).to_bytes(8, "big")
    log.stage_trusted(data, keep_offsets=True)
    log.append_all(T)
    assert log.segments.bases == (0, 1)  # a segment begins where the last one ends, so that none looks lost
    assert headers_in(read(log, 4))[0].base_offset == 10


def test_reading_near_the_end_touches_no_file(home: LogHome) -> None:
    log = filled(home, [1] * 300)
    home.files.disk.reads.clear()
    for offset in range(log.log_end_offset - 100, log.log_end_offset):
        assert log.read(offset, max_bytes=500, upper_bound_offset=log.log_end_offset, at_least_one_batch=True).size
    assert home.files.disk.reads == []


def test_finding_a_place_reads_an_index_interval_and_a_header_at_most(home: LogHome) -> None:
    log = filled(home, [1] * 400, interval=1000)
    largest = max(h.size for h, _ in log.batches())
    for offset in range(0, 100):
        home.files.disk.reads.clear()
        log.read(offset, max_bytes=10_000, upper_bound_offset=log.log_end_offset, at_least_one_batch=True)
        assert sum(r.size for r in home.files.disk.reads if r.name.endswith(".log")) <= 1000 + largest + 61


def test_a_removed_segment_stays_readable_for_whoever_is_being_sent_it(home: LogHome) -> None:
    log = filled(home, [1] * 60, segment_bytes=1000)
    log.config = log.config.replace(retention_bytes=0)
    region = log.read(0, max_bytes=EVERYTHING, upper_bound_offset=10, at_least_one_batch=True).region
    assert region is not None
    before = region.read()
    for removal in apply_retention(log, T):
        removal.perform()
    assert log.log_start_offset > 10
    assert region.read() == before


def test_readable_bytes_is_what_a_read_gives(home: LogHome) -> None:
    log = filled(home, [1] * 20)
    for offset in range(20):
        for bound in (offset, offset + 1, 20):
            assert log.readable_bytes(offset, bound, EVERYTHING) == len(read(log, offset, bound=bound))
    assert log.readable_bytes(21, 20, EVERYTHING) == 0
    assert log.readable_bytes(0, 20, 50) == 50


def test_few_files_are_open_however_many_segments_are_read(home: LogHome) -> None:
    log = filled(home, [1] * 200, segment_bytes=500)
    assert len(log.segments) > 20
    for offset in range(200):
        read(log, offset)
    assert len(home.open_files) <= home.open_files.limit


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    batch_sizes=st.lists(st.integers(1, 9), min_size=1, max_size=60),
    interval=st.integers(0, 2000),
    segment_bytes=st.integers(300, 4000),
    limits=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 3000)), min_size=1, max_size=20),
)
def test_a_read_is_the_log_cut_at_its_limits(
    tmp_path_factory: pytest.TempPathFactory,
    batch_sizes: list[int],
    interval: int,
    segment_bytes: int,
    limits: list[tuple[int, int]],
) -> None:
    home = LogHome(tmp_path_factory.mktemp("log"))
    log = filled(home, batch_sizes, segment_bytes=segment_bytes, interval=interval)
    all_batches = list(log.batches())
    for offset, most in limits:
        if offset >= log.log_end_offset:
            continue
        segment_end = log.segments.end_of(log.segments.at(offset), log.log_end_offset)
        expected = b"".join(data for h, data in all_batches if h.last_offset >= offset and h.base_offset < segment_end)
        first = next(h.size for h, _ in all_batches if h.last_offset >= offset)
        assert read(log, offset, most=most) == expected[: max(most, first)]
