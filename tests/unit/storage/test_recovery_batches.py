"""Damaged batches: above the recovery point the log is cut; below it and after a clean stop they alone are lost."""

from collections.abc import Callable

import pytest

from storage.batch.record_batch import HEADER_SIZE, read_header, seal
from storage.batch.records import iterate_records
from storage.file_names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX
from storage.log import Log
from tests.support.damage import ALL, RECORDS, KnownLog, damage
from tests.support.logs import LogHome, T, batch_of

VICTIM = 5
"""Which batch of its segment is damaged."""


def with_bytes(content: bytes, position: int, new: bytes) -> bytes:
    return content[:position] + new + content[position + len(new) :]


def leaping(content: bytes, at: int, by: int) -> bytes:
    offset = int.from_bytes(content[at : at + 8], "big") + by
    return with_bytes(content, at, offset.to_bytes(8, "big"))


# What becomes of a segment's file: its content, where the damaged batch begins and where it ends. Then what the log
# says, and whether the batch's header can still be believed, so that the batch is stepped over and counts.
DAMAGES: dict[str, tuple[Callable[[bytes, int, int], bytes], str, bool]] = {
    "magic": (lambda c, at, end: with_bytes(c, at + 16, b"\7"), "magic 7", False),
    "crc": (lambda c, at, end: with_bytes(c, end - 3, b"\xee"), "names the CRC", True),
    "length too small": (
        lambda c, at, end: with_bytes(c, at + 8, bytes(3) + b"\5"),
        "says that it has 17 bytes",
        False,
    ),
    "length too large": (lambda c, at, end: with_bytes(c, at + 8, b"\x10"), "of its 2684", False),
    "length off by one": (lambda c, at, end: leaping(c, at + 4, 1), "names the CRC", False),
    "zeros": (lambda c, at, end: with_bytes(c, at, bytes(end - at)), "there are zeros", False),
    "zeros in its header": (lambda c, at, end: with_bytes(c, at, bytes(40)), "magic 0", False),
    "rubbish": (lambda c, at, end: with_bytes(c, at, b"\2\xa7" * ((end - at) // 2)), "of its 44499635", False),
    "offset too small": (lambda c, at, end: leaping(c, at, -3), "has offsets", False),
    "an offset out of reach": (lambda c, at, end: leaping(c, at, 1 << 33), "has offsets", False),
    "missing from the middle": (lambda c, at, end: c[:at] + c[at + 20 :], "", False),
}
TORN: dict[str, tuple[Callable[[bytes, int], bytes], str]] = {
    "an incomplete last batch": (lambda c, at: c[:-7], "of its"),
    "an incomplete header": (lambda c, at: c[: at + 30], "less than the header"),
    "zeros behind the last batch": (lambda c, at: c + bytes(500), "there are zeros"),
    "rubbish behind the last batch": (lambda c, at: c + b"\xa7\x31" * 100, "magic"),
    "a batch again": (lambda c, at: c + c[at:], "has offsets"),
}


def harm(known: KnownLog, base_offset: int, what: str, victim: int = VICTIM) -> tuple[int, int]:
    """Damage a batch in the middle of a segment; its offset and its position."""
    positions = known.batch_positions(base_offset)
    at, end = positions[victim], positions[victim + 1]
    damage(known.path(base_offset, LOG_SUFFIX), lambda content: DAMAGES[what][0](content, at, end))
    return base_offset + victim, at


def readable_values(log: Log) -> dict[int, bytes | None]:
    """By offset, what a reader gets that leaves out what it cannot decode."""
    values: dict[int, bytes | None] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, max_bytes=1, upper_bound_offset=ALL, at_least_one_batch=True)
        if read.region is None:
            break
        data = bytearray(read.region.read())
        header = read_header(data)
        assert header.last_offset >= offset, "a reader would never get on"
        if seal(bytearray(data)) == header.crc:
            values |= {record.offset: record.value for record in iterate_records(data)}
        offset = header.next_offset
    return values


def surviving(known: KnownLog, *, without: set[int]) -> dict[int, bytes]:
    return {offset: value for offset, value in known.values.items() if offset not in without}


def check_survivors(known: KnownLog, lost: set[int]) -> None:
    found = readable_values(known.log)
    assert {offset: found.get(offset) for offset in surviving(known, without=lost)} == surviving(known, without=lost)
    assert not lost & set(found)
    for offset in range(known.log.log_end_offset):
        if offset not in lost:
            by_time = known.log.offset_for_timestamp(T + offset, ALL)
            assert by_time is not None
            assert by_time.offset == offset


# Above the recovery point ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [1, -1], ids=["an older segment", "the active segment"])
@pytest.mark.parametrize("what", DAMAGES)
def test_after_an_unclean_stop_the_log_ends_before_a_batch_with(home: LogHome, what: str, place: int) -> None:
    known = KnownLog.stopped(home, clean=False)
    base_offset = known.bases[place]
    offset, position = harm(known, base_offset, what)
    size = known.path(base_offset, LOG_SUFFIX).stat().st_size

    log = known.start()
    assert log.log_end_offset == offset
    assert log.segments.bases == known.bases[: known.bases.index(base_offset) + 1]
    assert known.path(base_offset, LOG_SUFFIX).stat().st_size == position
    check_survivors(known, lost=set(range(offset, RECORDS)))
    (line,) = known.lines
    said = DAMAGES[what][1]
    assert line.startswith(f"{known.path(base_offset, LOG_SUFFIX)}, position {position}, offset {offset}: ")
    assert said in line
    assert f"{size - position} bytes were cut off" in line
    assert ("the 2 segments behind it" in line) == (place == 1)
    assert (
        log.producers.entries[7].last_sequence == sum(v != b"gone" for o, v in known.values.items() if o < offset) - 1
    )
    assert home.append(log, batch_of(b"more")).first_offset == offset


@pytest.mark.parametrize("what", TORN)
def test_after_an_unclean_stop_the_active_segment_loses(home: LogHome, what: str) -> None:
    known = KnownLog.stopped(home, clean=False)
    path = known.path(known.bases[-1], LOG_SUFFIX)
    last = known.batch_positions(known.bases[-1])[-1]
    whole = path.stat().st_size
    damage(path, lambda content: TORN[what][0](content, last))
    found = path.stat().st_size
    end, end_offset = (whole, RECORDS) if found > whole else (last, RECORDS - 1)

    log = known.start()
    assert (log.log_end_offset, path.stat().st_size) == (end_offset, end)
    check_survivors(known, lost=set(range(end_offset, RECORDS)))
    (line,) = known.lines
    assert line.startswith(f"{path}, position {end}, offset {end_offset}: ")
    assert TORN[what][1] in line
    assert line.endswith(f"{found - end} bytes were cut off")
    assert home.report.bytes_cut == found - end


@pytest.mark.parametrize("place", [1, -1], ids=["an older segment", "the active segment"])
def test_an_offset_that_leaps_is_believed_as_far_as_the_next_segment(home: LogHome, place: int) -> None:
    known = KnownLog.stopped(home, clean=False)
    base_offset = known.bases[place]
    offset, at = base_offset + VICTIM, known.batch_positions(base_offset)[VICTIM]
    damage(known.path(base_offset, LOG_SUFFIX), lambda content: leaping(content, at, 60))
    log = known.start()
    # Compaction leaves gaps, and offsets stand outside the CRC: in the last segment nothing contradicts the leap, and
    # what follows falls back behind it.
    assert log.log_end_offset == (offset if place == 1 else offset + 61)
    (line,) = known.lines
    assert "has offsets" in line


def test_what_was_recovered_is_said_in_numbers(home: LogHome) -> None:
    known = KnownLog.stopped(home, clean=False)
    known.start(recovery_point=known.bases[1])
    report = home.report
    sizes = [known.path(base, LOG_SUFFIX).stat().st_size for base in known.bases[1:]]
    assert report.recovered_from_offset == known.bases[1]
    assert report.segments_rebuilt == len(sizes)
    assert report.bytes_recovered == sum(sizes)
    assert (report.bytes_cut, report.log_end_offset, report.findings) == (0, RECORDS, [])


# Below the recovery point ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [1, -1], ids=["an older segment", "the active segment"])
@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("index", ["with its index", "without its index"])
@pytest.mark.parametrize("stop", ["a clean stop", "a flush"])
def test_what_was_on_disk_stays_around_a_batch_with(
    home: LogHome, what: str, place: int, index: str, stop: str
) -> None:
    known = KnownLog.stopped(home, clean=stop == "a clean stop")
    base_offset = known.bases[place]
    offset, position = harm(known, base_offset, what)
    if index == "without its index":
        known.path(base_offset, OFFSET_INDEX_SUFFIX).unlink()

    log = known.start(clean=stop == "a clean stop", recovery_point=RECORDS)
    assert log.log_end_offset == RECORDS
    assert log.segments.bases == known.bases
    assert home.report.bytes_cut == 0
    if index == "with its index" and (place == 1 or stop == "a clean stop"):
        # Nobody has read it: a fetch sends what is there, and the reader finds out. It gets on behind it.
        readable = log.read(offset + 1, max_bytes=1, upper_bound_offset=ALL, at_least_one_batch=True)
        assert readable.region is not None
        assert log.read(RECORDS - 1, max_bytes=1, upper_bound_offset=ALL, at_least_one_batch=True).region is not None
        return
    check_survivors(known, lost={offset})
    assert [line for line in known.lines if f"position {position}" in line]
    assert home.append(log, batch_of(b"more", producer_id=7, sequence=known.last_sequence + 1)).first_offset == RECORDS


@pytest.mark.parametrize("stop", ["a clean stop", "a flush"])
@pytest.mark.parametrize("what", sorted(set(TORN) - {"zeros behind the last batch", "rubbish behind the last batch"}))
def test_a_lost_end_is_not_written_over_with_the_same_offsets(home: LogHome, what: str, stop: str) -> None:
    known = KnownLog.stopped(home, clean=stop == "a clean stop")
    base_offset = known.bases[-1]
    last = known.batch_positions(base_offset)[-1]
    damage(known.path(base_offset, LOG_SUFFIX), lambda content: TORN[what][0](content, last))
    log = known.start(clean=stop == "a clean stop", recovery_point=RECORDS)
    assert log.log_end_offset == RECORDS
    if what == "a batch again":
        check_survivors(known, lost=set())
        return
    assert log.segments.bases == (*known.bases, RECORDS)
    assert f"ends at offset {RECORDS - 1}, and was on disk up to {RECORDS}" in known.lines[-1]
    assert log.read(RECORDS - 1, max_bytes=1, upper_bound_offset=ALL, at_least_one_batch=True).region is None
    assert log.readable_bytes(RECORDS - 1, ALL, 100) == 0, "a reader there waits"
    # Only the snapshot of a clean stop knows of the batch that is lost.
    sequence = known.last_sequence + (stop == "a clean stop")
    more = batch_of(b"more", producer_id=7, sequence=sequence, timestamp=T + RECORDS)
    assert home.append(log, more).first_offset == RECORDS
    read = log.read(RECORDS - 1, max_bytes=1, upper_bound_offset=ALL, at_least_one_batch=True)
    assert read.region is not None
    check_survivors(known, lost={RECORDS - 1})


@pytest.mark.parametrize("what", ["zeros behind the last batch", "rubbish behind the last batch"])
def test_what_stands_behind_a_log_that_was_closed_is_cut_off(home: LogHome, what: str) -> None:
    known = KnownLog.stopped(home, clean=True)
    path = known.path(known.bases[-1], LOG_SUFFIX)
    size = path.stat().st_size
    damage(path, lambda content: TORN[what][0](content, 0))
    known.start(clean=True, recovery_point=RECORDS)
    assert path.stat().st_size == size
    known.check()
    assert len(known.lines) == 1


@pytest.mark.parametrize("stop", ["an unclean stop", "a clean stop", "a flush"])
@pytest.mark.parametrize("what", ["missing", "empty"])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_the_others_answer_without_a_segment_that_is(home: LogHome, what: str, place: int, stop: str) -> None:
    known = KnownLog.stopped(home, clean=stop == "a clean stop")
    base_offset = known.bases[place]
    path = known.path(base_offset, LOG_SUFFIX)
    damage(path, lambda content: None if what == "missing" else b"")
    end_offset = {**dict(zip(known.bases, known.bases[1:], strict=False)), known.bases[-1]: RECORDS}[base_offset]

    log = known.start(clean=stop == "a clean stop", recovery_point=0 if stop == "an unclean stop" else RECORDS)
    # Nothing says that it had been on disk: then what stood behind it does not stay alone, as behind a torn batch.
    is_end_lost = stop == "an unclean stop" and not (place == 0 and what == "missing")
    assert log.log_end_offset == (base_offset if is_end_lost else RECORDS)
    lost = set(range(base_offset, RECORDS if is_end_lost else end_offset))
    found = readable_values(log)
    expected = surviving(known, without=lost)
    assert {offset: found.get(offset) for offset in expected} == expected
    home.append(log, batch_of(b"more"))
    log.close(T)
    assert readable_values(known.start(clean=True))[known.log.log_end_offset - 1] == b"more"


# What steps over it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", range(4, 9))
@pytest.mark.parametrize("what", ["magic", "zeros", "rubbish", "length too large"])
def test_a_reader_gets_on_behind_damage_that_nobody_has_noticed(home: LogHome, what: str, victim: int) -> None:
    known = KnownLog.stopped(home, clean=True)
    offset, position = harm(known, known.bases[1], what, victim)
    known.start(clean=True, recovery_point=RECORDS)
    found = readable_values(known.log)
    assert found == surviving(known, without={offset}) | {o: found[o] for o in found if o not in known.values}
    assert [record for header, data in known.log.batches() for record in (header.base_offset,)] == [
        number for number in range(RECORDS) if number != offset
    ]
    (line,) = [line for line in known.lines if "reading goes on" in line]
    assert f"has no batch at position {position}" in line


def test_a_large_hole_is_stepped_over(home: LogHome) -> None:
    log = home.open()
    for number in range(40):
        home.append(log, batch_of(bytes(100_000), timestamp=T + number))
    log.close(T)
    known = KnownLog(home)
    positions = known.batch_positions(0)
    damage(known.path(0, LOG_SUFFIX), lambda c: with_bytes(c, positions[3], bytes(positions[34] - positions[3] + 99)))
    known.path(0, OFFSET_INDEX_SUFFIX).unlink()
    log = known.start(clean=True, recovery_point=40)
    assert [header.base_offset for header, _ in log.batches()] == [0, 1, 2, 35, 36, 37, 38, 39]
    (line,) = [line for line in known.lines if "zeros" in line]
    assert "offsets 3 to 34 cannot be read" in line


def test_a_batch_inside_a_damaged_batch_is_not_taken_for_one_of_the_log(home: LogHome) -> None:
    inner = bytes(batch_of(b"inner").data)
    log = home.open()
    home.append_values(log, b"a")
    home.append(log, batch_of(b"x" * 50 + with_bytes(inner, 0, (1).to_bytes(8, "big")) + b"y" * 50))
    home.append_values(log, b"c")
    log.close(T)
    known = KnownLog(home)
    position = known.batch_positions(0)[1]
    damage(known.path(0, LOG_SUFFIX), lambda c: with_bytes(c, position, bytes(HEADER_SIZE)))
    known.path(0, OFFSET_INDEX_SUFFIX).unlink()
    log = known.start(clean=True, recovery_point=3)
    assert [header.base_offset for header, _ in log.batches()] == [0, 2]


@pytest.mark.parametrize("victim", range(3, 8))
@pytest.mark.parametrize("what", sorted(set(DAMAGES) - {"missing from the middle"}))
def test_every_offset_of_a_damaged_batch_of_several_records_leads_behind_it(
    home: LogHome, what: str, victim: int
) -> None:
    home.config = home.config.replace(index_interval_bytes=200)
    log = home.open()
    for number in range(12):
        home.append(log, batch_of(b"a", b"b", b"c", timestamp=T + number))
    log.close(T)
    known = KnownLog(home)
    harm(known, 0, what, victim)
    log = known.start(clean=True, recovery_point=36)
    for offset in range(36):
        read = log.read(offset, max_bytes=1, upper_bound_offset=ALL, at_least_one_batch=True)
        assert read.region is not None
        begins = read_header(read.region.read()).base_offset
        assert begins == offset // 3 * 3 or offset // 3 == victim, f"offset {offset} leads to {begins}"
