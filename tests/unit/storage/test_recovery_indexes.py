"""Indexes that are missing, cut short, wrong, ahead of their log or full of zeros: every record is found with them."""

from collections.abc import Callable

import pytest

from storage.errors import DiskFull
from storage.file_names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from storage.retention import apply_retention
from tests.support.damage import RECORDS, Damage, KnownLog, damage, segment_at
from tests.support.logs import LogHome, T, batch_of

INDEXES = {OFFSET_INDEX_SUFFIX: 8, TIME_INDEX_SUFFIX: 12, TRANSACTION_INDEX_SUFFIX: 34}

# What becomes of an index, whose entries have so many bytes.
DAMAGES: dict[str, Callable[[int], Damage]] = {
    "missing": lambda size: lambda content: None,
    "torn in an entry": lambda size: lambda content: content[:-3],
    "without its last entries": lambda size: lambda content: content[: len(content) // size // 2 * size],
    "emptied": lambda size: lambda content: b"",
    "zeros": lambda size: lambda content: bytes(len(content)),
    "zeros in its second half": lambda size: lambda content: _with_zeros(content, len(content) // size // 2 * size),
    "preallocated zeros behind it": lambda size: lambda content: content + bytes(100 * size),
    "wrong entries": lambda size: lambda content: _every_entry(content, size, lambda e: e[:-1] + bytes([e[-1] ^ 5])),
    "falling entries": lambda size: lambda content: b"".join(reversed(_entries(content, size))),
    "ahead of the log": lambda size: lambda content: content + _far_beyond(size),
    "rubbish": lambda size: lambda content: (b"\xa7\x13\x5c" * len(content))[: len(content)],
}
SEGMENTS = {"an older segment": 1, "the active segment": -1}
STOPS = ("an unclean stop", "a clean stop", "a flush and an unclean stop")

# An index of aborted transactions that is gone looks like one that never had an entry, and so does a shorter one: even
# Apache Kafka notices neither. What is rebuilt after an unclean stop is right.
UNNOTICED = {"missing", "without its last entries", "emptied"}
# Searches begin with an earlier entry, and go on by headers as always.
ONLY_SLOWER = {(OFFSET_INDEX_SUFFIX, what) for what in ("without its last entries", "emptied", "falling entries")}


def _entries(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


def _every_entry(content: bytes, size: int, change: Callable[[bytes], bytes]) -> bytes:
    return b"".join(map(change, _entries(content, size)))


def _with_zeros(content: bytes, position: int) -> bytes:
    return content[:position] + bytes(len(content) - position)


def _far_beyond(size: int) -> bytes:
    offset = (RECORDS + 50).to_bytes(4, "big")
    if size == 8:
        return offset + (1 << 30).to_bytes(4, "big")
    if size == 12:
        return (T + RECORDS + 50).to_bytes(8, "big") + offset
    return bytes(2) + b"".join(n.to_bytes(8, "big") for n in (8, RECORDS + 50, RECORDS + 51, RECORDS + 52))


def start(known: KnownLog, stop: str) -> None:
    if stop == "a clean stop":
        known.start(clean=True, recovery_point=RECORDS)
    elif stop == "an unclean stop":
        known.start()
    else:
        # The log had been flushed to its end. Its last segment is checked all the same, as the one that is appended to.
        known.start(recovery_point=RECORDS)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("place", SEGMENTS)
@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("suffix", INDEXES)
def test_every_record_is_found_with_an_index_that_is(
    home: LogHome, suffix: str, what: str, place: str, stop: str
) -> None:
    known = KnownLog.stopped(home, clean=True)
    base_offset = known.bases[SEGMENTS[place]]
    path = known.path(base_offset, suffix)
    before = path.read_bytes()
    damage(path, DAMAGES[what](INDEXES[suffix]))

    start(known, stop)
    is_checked = stop == "an unclean stop" or (place == "the active segment" and stop != "a clean stop")
    if suffix == TRANSACTION_INDEX_SUFFIX and what in UNNOTICED and not is_checked:
        assert known.log.log_end_offset == RECORDS
        return
    known.check()
    log = known.log
    assert home.append(log, batch_of(b"more", producer_id=7, sequence=known.last_sequence + 1)).first_offset == RECORDS
    if is_checked:
        assert known.lines_about(path.name) == [] or what == "missing", "it was not even looked at"
    else:
        assert len(known.lines_about(path.name)) == (0 if (suffix, what) in ONLY_SLOWER else 1)
    log.close(T)
    if base_offset == known.bases[1] and (is_checked or known.lines):
        assert path.read_bytes() == before, "an index made anew is the one that was written"


@pytest.mark.parametrize("what", ["missing", "torn in an entry"])
@pytest.mark.parametrize("suffix", [OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX])
def test_a_missing_or_torn_index_is_made_anew_at_the_start(home: LogHome, suffix: str, what: str) -> None:
    known = KnownLog.stopped(home, clean=True)
    path = known.path(known.bases[1], suffix)
    before = path.read_bytes()
    damage(path, DAMAGES[what](INDEXES[suffix]))
    known.start(clean=True, recovery_point=RECORDS)
    assert home.report.segments_rebuilt == 1
    problem = "is missing" if what == "missing" else f"has {len(before) - 3} bytes, no multiple of {INDEXES[suffix]}"
    size = known.path(known.bases[1], ".log").stat().st_size
    log_path = known.path(known.bases[1], ".log")
    assert known.lines == [f"{path} {problem}: made anew from the {size} bytes of {log_path}"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", [OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX])
def test_an_index_of_zeros_is_found_out_when_it_is_used_and_one_line_says_so(home: LogHome, suffix: str) -> None:
    known = KnownLog.stopped(home, clean=True)
    base_offset = known.bases[1]
    path = known.path(base_offset, suffix)
    before = path.read_bytes()
    damage(path, DAMAGES["zeros"](INDEXES[suffix]))
    known.start(clean=True, recovery_point=RECORDS)
    assert (home.report.segments_rebuilt, known.lines) == (0, [])
    known.check()
    (line,) = known.lines
    assert line.startswith(str(path))
    assert line.endswith(f"the indexes have been made anew from the {segment_at(known.log, base_offset).size} bytes of "
                         f"{known.path(base_offset, '.log')}")  # fmt: skip
    assert path.read_bytes() == before


def test_a_damaged_index_is_mended_once(home: LogHome) -> None:
    known = KnownLog.stopped(home, clean=True)
    damage(known.path(known.bases[1], OFFSET_INDEX_SUFFIX), DAMAGES["wrong entries"](8))
    known.start(clean=True, recovery_point=RECORDS)
    known.check()
    assert len(known.lines) == 1
    known.log.close(T)
    known.start(clean=True, recovery_point=RECORDS)
    known.check()
    assert known.lines == []


def test_an_index_that_finds_no_room_to_be_made_anew_costs_time_and_nothing_else(home: LogHome) -> None:
    known = KnownLog.stopped(home, clean=True)
    damage(known.path(known.bases[1], OFFSET_INDEX_SUFFIX), DAMAGES["zeros"](8))
    known.start(clean=True, recovery_point=RECORDS)
    home.files.fill_up()
    known.check()
    home.files.make_room()
    known.check()


# Retention ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", sorted(set(DAMAGES) - {"missing", "torn in an entry"}))
@pytest.mark.parametrize("place", [0, 1, -1])
def test_retention_removes_nothing_young_because_of_a_damaged_time_index(home: LogHome, what: str, place: int) -> None:
    known = KnownLog.stopped(home, clean=True)
    damage(known.path(known.bases[place], TIME_INDEX_SUFFIX), DAMAGES[what](12))
    # The oldest segment's newest record is just young enough.
    home.config = home.config.replace(retention_ms=1000)
    home.now_ms = T + known.bases[1] - 1 + 1000
    log = known.start(clean=True, recovery_point=RECORDS)
    assert apply_retention(log, home.now_ms) == []
    assert log.segments.bases == known.bases
    (removal,) = apply_retention(log, home.now_ms + 1)
    assert removal.paths[0].endswith(f"{0:020d}.log.deleted")
    assert log.segments.bases == known.bases[1:]


def test_a_time_index_without_its_last_entries_does_not_make_a_segment_old(home: LogHome) -> None:
    known = KnownLog.stopped(home, clean=True)
    damage(known.path(0, TIME_INDEX_SUFFIX), lambda content: content[:12])
    log = known.start(clean=True, recovery_point=RECORDS)
    assert log.segments[0].largest == (T + known.bases[1] - 1, known.bases[1] - 1)
    (line,) = known.lines
    assert "ends with timestamp" in line


def test_appends_go_on_over_a_preallocated_index_that_a_stop_had_not_trimmed(home: LogHome) -> None:
    known = KnownLog.stopped(home, clean=True)
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        damage(known.path(known.bases[-1], suffix), lambda content: content + bytes(24 * 2000))
    log = known.start(clean=True, recovery_point=RECORDS)
    home.append(log, batch_of(b"more", timestamp=T + RECORDS))
    assert log.segments.bases == known.bases, "the index is not full"
    assert log.segments.active.largest == (T + RECORDS, RECORDS)


# Searching far --------------------------------------------------------------------------------------------------------


def test_a_search_that_has_to_go_too_far_makes_the_index_anew(home: LogHome) -> None:
    home.config = home.config.replace(segment_index_bytes=64_000)
    log = home.open()
    value = bytes(20_000)
    for _ in range(300):
        home.append(log, batch_of(value))
    log.close(T)
    index = f"{0:020d}{OFFSET_INDEX_SUFFIX}"
    before = home.bytes_of(index)
    assert len(before) == 8 * 299
    known = KnownLog(home)
    path = known.path(0, OFFSET_INDEX_SUFFIX)
    path.write_bytes(before[:80])
    known.start(clean=True, recovery_point=300)
    assert home.bytes_of(index) == before, "the end of the log was looked for, from the last entry on"
    assert len(known.lines_about(index)) == 1


def test_large_batches_need_no_more_entries_than_they_have(home: LogHome) -> None:
    log = home.open()
    for size in (6 << 20, 10, 7 << 20, 10, 10, 5 << 20, 5 << 20, 10):
        home.append(log, batch_of(bytes(size)))
    log.close(T)
    known = KnownLog(home)
    log = known.start(clean=True, recovery_point=8)
    for offset in range(8):
        read = log.read(offset, max_bytes=1, upper_bound_offset=9, at_least_one_batch=True)
        assert read.region is not None
    assert known.lines == []


def test_a_full_disk_while_recovering_costs_index_entries(home: LogHome) -> None:
    known = KnownLog.stopped(home, clean=False)
    home.files.fail("write", 28, suffix=OFFSET_INDEX_SUFFIX)
    try:
        known.start()
    except DiskFull:
        pytest.fail("an index entry is not worth a start")
    known.check()
