"""The sparse indexes and the index of aborted transactions, each on its own."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.errors import CorruptIndex, DiskFull
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex
from storage.index.transaction_index import AbortedTransaction, TransactionIndex
from storage.open_files import OpenFiles
from tests.support.files import FaultyFileSystem

ROOMY = 64_000


def offset_index(path: Path, *, base: int = 100, max_bytes: int = ROOMY, found: int = 0) -> OffsetIndex:
    index = OffsetIndex(
        FaultyFileSystem(), OpenFiles(4), str(path / "x.index"), base_offset=base, max_bytes=max_bytes, file_bytes=found
    )
    if not found:
        index.create()
    return index


def time_index(path: Path, *, base: int = 100, max_bytes: int = ROOMY) -> TimeIndex:
    index = TimeIndex(
        FaultyFileSystem(), OpenFiles(4), str(path / "x.timeindex"), base_offset=base, max_bytes=max_bytes, file_bytes=0
    )
    index.create()
    return index


def test_an_empty_index_points_to_the_beginning(tmp_path: Path) -> None:
    assert offset_index(tmp_path).lookup(123) == (100, 0)
    assert time_index(tmp_path).lookup(5) == (-1, 100)


def test_the_last_entry_at_or_below_the_offset_is_found(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.append(105, 158)
    index.append(109, 316)
    assert [index.lookup(offset) for offset in (100, 104, 105, 108, 109, 1000)] == [
        (100, 0), (100, 0), (105, 158), (105, 158), (109, 316), (109, 316),
    ]  # fmt: skip


def test_a_live_index_has_its_full_length_and_a_trimmed_one_its_entries(tmp_path: Path) -> None:
    index = offset_index(tmp_path, max_bytes=67)
    index.append(105, 158)
    index.write_out()
    assert (tmp_path / "x.index").read_bytes() == bytes.fromhex("00000005 0000009e") + bytes(56)
    index.trim()
    assert (tmp_path / "x.index").read_bytes().hex() == "000000050000009e"
    assert index.lookup(105) == (105, 158)
    index.append(107, 200)
    assert index.lookup(200) == (107, 200)
    assert (tmp_path / "x.index").stat().st_size == 64


def test_entries_that_come_after_a_search_are_found(tmp_path: Path) -> None:
    index = offset_index(tmp_path, max_bytes=ROOMY)
    for number in range(1, 200):
        index.append(100 + number, number * 10)
        assert index.lookup(10_000) == (100 + number, number * 10)


def test_an_offset_index_is_full_at_its_last_entry_and_a_time_index_one_before(tmp_path: Path) -> None:
    offsets, times = offset_index(tmp_path, max_bytes=24), time_index(tmp_path, max_bytes=36)
    offsets.append(101, 10)
    offsets.append(102, 20)
    assert not offsets.is_full
    offsets.append(103, 30)
    assert offsets.is_full
    times.append(1, 101)
    assert not times.is_full
    times.append(2, 102)
    assert times.is_full
    times.append(3, 103)
    assert times.entries == 2
    times.append(3, 103, is_last=True)
    assert times.entries == 3


def test_only_a_larger_timestamp_makes_an_entry(tmp_path: Path) -> None:
    index = time_index(tmp_path)
    for timestamp, offset in ((50, 105), (50, 107), (49, 108), (51, 109)):
        index.append(timestamp, offset)
    assert [index.entry(n) for n in range(index.searchable())] == [(50, 105), (51, 109)]
    assert index.last == (51, 109)


def test_entries_wait_for_each_other_until_somebody_searches(tmp_path: Path) -> None:
    index = offset_index(tmp_path, base=0)
    written = index.file().path
    for number in range(1, 64):
        index.append(number, number * 10)
    assert (index.entries, index.last_entry()) == (63, (63, 630))
    assert not any(Path(written).read_bytes())
    index.append(64, 640)
    assert Path(written).read_bytes()[504:512].hex() == "0000004000000280"
    index.append(65, 650)
    index.let_go()
    assert not any(Path(written).read_bytes()[512:])
    assert index.lookup(65) == (65, 650)
    assert Path(written).read_bytes()[512:520].hex() == "000000410000028a"


def test_waiting_entries_are_cut_and_trimmed_as_written_ones(tmp_path: Path) -> None:
    index = offset_index(tmp_path, base=0)
    for number in range(1, 70):
        index.append(number, number * 10)
    index.cut(67)
    assert (index.entries, index.last_entry()) == (67, (67, 670))
    index.trim()
    assert (tmp_path / "x.index").stat().st_size == 67 * 8
    index.append(68, 680)
    index.cut(60)
    index.append(61, 611)
    assert [index.lookup(n) for n in (60, 61, 99)] == [(60, 600), (61, 611), (61, 611)]


def on_faulty_files(path: Path, files: FaultyFileSystem) -> OffsetIndex:
    index = OffsetIndex(files, OpenFiles(4), str(path / "i"), base_offset=0, max_bytes=800, file_bytes=0)
    index.create()
    return index


def test_a_search_goes_without_entries_that_find_no_room(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    index = on_faulty_files(tmp_path, files)
    index.append(1, 10)
    assert index.lookup(5) == (1, 10)
    index.append(2, 20)
    files.fill_up(3)
    assert index.lookup(5) == (1, 10)
    assert index.first_entry_from_position(11) is None
    files.make_room()
    assert index.lookup(5) == (2, 20)


def test_an_entry_that_finds_no_room_is_not_there(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    index = on_faulty_files(tmp_path, files)
    for number in range(1, 64):
        index.append(number, number * 10)
    files.fill_up(3)
    with pytest.raises(DiskFull):
        index.append(64, 640)
    with pytest.raises(DiskFull):
        index.trim()
    assert index.entries == 63
    files.make_room()
    assert index.lookup(99) == (63, 630)
    index.append(65, 650)
    assert index.lookup(99) == (65, 650)


def test_an_index_let_go_opens_again_when_it_is_needed(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.append(105, 158)
    index.let_go()
    assert index.lookup(200) == (105, 158)
    index.let_go()
    index.append(106, 200)
    assert index.lookup(200) == (106, 200)


def test_the_first_entry_at_or_behind_a_position_is_found(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    assert index.first_entry_from_position(0) is None
    for number in range(1, 5):
        index.append(100 + number, number * 100)
    assert index.first_entry_from_position(0) == (101, 100)
    assert index.first_entry_from_position(200) == (102, 200)
    assert index.first_entry_from_position(201) == (103, 300)
    assert index.first_entry_from_position(401) is None


def test_cutting_forgets_entries_at_and_above_an_offset(tmp_path: Path) -> None:
    offsets, times = offset_index(tmp_path), time_index(tmp_path)
    for number in range(1, 6):
        offsets.append(100 + number, number * 100)
        times.append(1000 + number, 100 + number)
    offsets.cut_from(104)
    times.cut_from(104)
    assert (offsets.entries, times.entries) == (3, 3)
    assert times.last == (1003, 103)
    assert offsets.lookup(999) == (103, 300)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=st.lists(st.integers(1, 40), min_size=1, max_size=2600), data=st.data())
def test_searching_the_warm_end_first_finds_what_a_plain_search_finds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("index")
    offsets, times, position, entries = [], [], 0, []
    at = 0
    for step in steps:
        at += step
        position += step * 7
        offsets.append((at, position))
        times.append((at * 3, at))
        entries.append(at)
    (path / "x.index").write_bytes(b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in offsets))
    (path / "x.timeindex").write_bytes(b"".join(t.to_bytes(8, "big") + o.to_bytes(4, "big") for t, o in times))
    files, open_files = FaultyFileSystem(), OpenFiles(4)
    by_offset = OffsetIndex(
        files, open_files, str(path / "x.index"), base_offset=1000, max_bytes=ROOMY, file_bytes=8 * len(steps)
    )
    by_time = TimeIndex(
        files, open_files, str(path / "x.timeindex"), base_offset=1000, max_bytes=ROOMY, file_bytes=12 * len(steps)
    )
    for _ in range(10):
        wanted = data.draw(st.one_of(st.integers(-5, at + 50), st.sampled_from(entries)))
        plain = [(1000 + o, p) for o, p in offsets if o <= wanted]
        assert by_offset.lookup(1000 + wanted) == (plain[-1] if plain else (1000, 0))
        plain = [(t, 1000 + o) for t, o in times if t <= wanted * 3]
        assert by_time.lookup(wanted * 3) == (plain[-1] if plain else (-1, 1000))


# Aborted transactions -------------------------------------------------------------------------------------------------


def transaction_index(path: Path, content: bytes | None = None) -> TransactionIndex:
    if content is not None:
        (path / "x.txnindex").write_bytes(content)
    return TransactionIndex(
        FaultyFileSystem(), OpenFiles(4), str(path / "x.txnindex"), base_offset=100,
        file_bytes=-1 if content is None else len(content),
    )  # fmt: skip


KAFKAS_ENTRY = bytes.fromhex("0000 0000000000000fa0 0000000000000068 000000000000006b 000000000000006c")


def test_the_first_aborted_transaction_makes_the_file(tmp_path: Path) -> None:
    index = transaction_index(tmp_path)
    assert list(index) == []
    assert not (tmp_path / "x.txnindex").exists()
    index.append(AbortedTransaction(4000, 104, 107, 108))
    assert (tmp_path / "x.txnindex").read_bytes() == KAFKAS_ENTRY
    index.let_go()
    assert list(index) == [(4000, 104, 107, 108)]


@pytest.mark.parametrize(("found", "left"), [(0, None), (0, b""), (33, KAFKAS_ENTRY[:-1])])
def test_an_index_of_transactions_that_another_process_has_cut_is_not_used(
    tmp_path: Path, found: int, left: bytes | None
) -> None:
    index = transaction_index(tmp_path)
    index.append(AbortedTransaction(4000, 104, 107, 108))
    index.let_go()
    (tmp_path / "x.txnindex").unlink()
    if left is not None:
        (tmp_path / "x.txnindex").write_bytes(left)

    with pytest.raises(CorruptIndex, match=rf"x.txnindex has {found} bytes, expected 34: another process has cut it"):
        list(index)

    assert not index.is_confirmed, "the next reader compares it with the markers, and makes it anew"
    index.reset()
    assert list(index) == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (KAFKAS_ENTRY[:-1], "multiple of 34"),
        (KAFKAS_ENTRY * 2, "behind 107"),
        (b"\0\1" + KAFKAS_ENTRY[2:], "version 1"),
        (KAFKAS_ENTRY[:18] + bytes(8) + KAFKAS_ENTRY[26:], "offset 0 behind 99"),
    ],
)
def test_a_damaged_transaction_index_is_recognised(tmp_path: Path, content: bytes, complaint: str) -> None:
    with pytest.raises(CorruptIndex, match=complaint):
        transaction_index(tmp_path, content).check()


def test_transactions_whose_marker_is_gone_are_forgotten(tmp_path: Path) -> None:
    index = transaction_index(tmp_path)
    for last in (107, 110, 115):
        index.append(AbortedTransaction(1, last - 2, last, last + 1))
    index.cut_from(110)
    assert [t.last_offset for t in index] == [107]
    assert (tmp_path / "x.txnindex").stat().st_size == 34
