"""Which records of a batch stay, and which keys it adds to the offset map."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch.record_batch import HEADER_SIZE, read_header
from storage.batch.records import Record, encode_batch, encode_fields, encode_record
from storage.cleaning.offset_map import OffsetMap
from storage.cleaning.record_selection import Selection, note_keys, select_records
from storage.errors import UndecodableRecords
from tests.support.batches import T, record


def section_of(*records: Record) -> bytes:
    return bytes(encode_batch(records)[HEADER_SIZE:])


def a_map(*known: tuple[bytes, int], latest_offset: int | None = None) -> OffsetMap:
    offsets = OffsetMap(64, 0.9)
    for key, offset in known:
        offsets.put(key, offset)
    offsets.latest_offset = max((offset for _, offset in known), default=-1)
    if latest_offset is not None:
        offsets.latest_offset = latest_offset
    return offsets


def select(section: bytes, count: int, offsets: OffsetMap, *, drops_tombstones: bool = False) -> Selection:
    return select_records(section, count, 100, T, offsets, drops_tombstones)


# Noting keys ----------------------------------------------------------------------------------------------------------


def test_keys_are_noted_with_their_last_offsets() -> None:
    offsets = a_map()
    section = section_of(record(key=b"a"), record(key=b"b"), record(None, key=b"a"))
    assert note_keys(section, 3, 100, 0, offsets)
    assert offsets.get(b"a") == 102
    assert offsets.get(b"b") == 101
    assert offsets.latest_offset == 102


def test_records_without_a_key_and_before_the_first_dirty_offset_are_not_noted() -> None:
    offsets = a_map()
    section = section_of(record(key=b"a"), record(key=None), record(key=b"b"))
    assert note_keys(section, 3, 100, 101, offsets)
    assert offsets.get(b"a") == -1
    assert offsets.size == 1


def test_a_full_map_says_up_to_which_record_it_goes() -> None:
    offsets = OffsetMap(4, 0.5)
    section = section_of(*(record(key=b"%d" % number) for number in range(4)))
    assert not note_keys(section, 4, 100, 0, offsets)
    assert offsets.latest_offset == 101


# Selecting ------------------------------------------------------------------------------------------------------------


def test_of_records_with_the_same_key_the_last_stays() -> None:
    old, new = record(b"old", key=b"a"), record(b"new", key=b"a")
    selection = select(section_of(old, new), 2, a_map((b"a", 101)))
    assert selection == Selection(encode_record(0, 1, encode_fields(new)), 1, T, False, 0)


def test_a_section_of_which_nothing_goes_is_given_back_as_it_is() -> None:
    section = section_of(record(key=b"a"), record(key=b"b"))
    selection = select(section, 2, a_map((b"a", 100), (b"b", 101)))
    assert selection.section is section
    assert selection.record_count == 2


def test_records_behind_the_map_stay_with_or_without_a_key() -> None:
    section = section_of(record(key=b"a"), record(key=None), record(key=b"a"))
    assert select(section, 3, a_map((b"a", 100))).record_count == 3


def test_a_record_without_a_key_goes() -> None:
    section = section_of(record(key=None), record(key=b"a"), record(key=None))
    selection = select(section, 3, a_map((b"a", 101), latest_offset=102))
    assert selection.record_count == 1
    assert selection.section == encode_record(0, 1, encode_fields(record(key=b"a")))
    assert selection.without_key == 2


def test_a_key_that_the_map_does_not_have_stays() -> None:
    assert select(section_of(record(key=b"a")), 1, a_map((b"b", 500))).record_count == 1


def test_a_tombstone_stays_until_its_time_is_over() -> None:
    section = section_of(record(None, key=b"a"))
    kept = select(section, 1, a_map((b"a", 100)))
    assert (kept.record_count, kept.has_tombstones) == (1, True)
    gone = select(section, 1, a_map((b"a", 100)), drops_tombstones=True)
    assert (gone.section, gone.record_count, gone.has_tombstones) == (b"", 0, False)


def test_an_empty_value_is_no_tombstone() -> None:
    selection = select(section_of(record(b"", key=b"a")), 1, a_map((b"a", 100)), drops_tombstones=True)
    assert (selection.record_count, selection.has_tombstones) == (1, False)


def test_the_largest_timestamp_is_that_of_the_records_that_stay() -> None:
    section = section_of(
        record(key=b"a", timestamp=T), record(key=b"a", timestamp=T + 9), record(key=b"a", timestamp=T + 5)
    )
    assert select(section, 3, a_map((b"a", 102))).max_timestamp == T + 5


keys = st.none() | st.binary(max_size=2)
contents = st.lists(
    st.builds(
        record,
        st.none() | st.binary(max_size=200),
        key=keys,
        timestamp=st.integers(T, T + 10**10),
        headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


@given(contents, st.dictionaries(st.binary(max_size=2), st.integers(90, 130)), st.integers(95, 125), st.booleans())
def test_a_selection_is_what_the_rules_say_record_by_record(
    records: list[Record], known: dict[bytes, int], latest_offset: int, drops_tombstones: bool
) -> None:
    batch = encode_batch(records)
    header = read_header(batch)
    offsets = a_map(*known.items(), latest_offset=latest_offset)
    selection = select_records(
        bytes(batch[HEADER_SIZE:]), len(records), 100, header.base_timestamp, offsets, drops_tombstones
    )
    staying = [
        (number, one)
        for number, one in enumerate(records)
        if 100 + number > latest_offset
        or (
            one.key is not None
            and 100 + number >= known.get(one.key, -1)
            and not (one.value is None and drops_tombstones)
        )
    ]
    expected = [
        encode_record(one.timestamp - header.base_timestamp, number, encode_fields(one)) for number, one in staying
    ]
    assert selection.section == b"".join(expected)
    assert selection.record_count == len(staying)
    assert selection.max_timestamp == max((one.timestamp for _, one in staying), default=-1)
    assert selection.has_tombstones == any(one.value is None for _, one in staying)


@given(st.binary(max_size=60), st.integers(0, 5))
def test_bytes_that_are_no_records_are_refused_or_read_within_their_bounds(section: bytes, count: int) -> None:
    for read in (
        lambda: note_keys(section, count, 100, 0, a_map()),
        lambda: select(section, count, a_map()),
    ):
        with suppress(UndecodableRecords):
            read()


@pytest.mark.parametrize("cut", [1, 3, 8])
def test_a_section_that_is_cut_short_is_refused(cut: int) -> None:
    section = section_of(record(key=b"a"), record(key=b"b"))[:-cut]
    with pytest.raises(UndecodableRecords, match="record 1"):
        select(section, 2, a_map())
    with pytest.raises(UndecodableRecords, match="record 1"):
        note_keys(section, 2, 100, 0, a_map())


def test_bytes_behind_the_last_record_are_refused() -> None:
    with pytest.raises(UndecodableRecords, match="2 bytes follow the last of 1 records"):
        select(section_of(record(key=b"a")) + b"xx", 1, a_map())
