"""The offset map: the last offset of each key, within its memory."""

from hypothesis import given
from hypothesis import strategies as st

from storage.cleaning.offset_map import OffsetMap


def test_a_later_offset_takes_the_place_of_an_earlier_one() -> None:
    offsets = OffsetMap(8, 0.9)
    assert offsets.put(b"a", 3)
    assert offsets.put(b"b", 4)
    assert offsets.put(b"a", 9)
    assert offsets.get(b"a") == 9
    assert offsets.get(b"b") == 4
    assert offsets.get(b"c") == -1
    assert offsets.size == 2


def test_the_first_offset_of_a_log_is_an_offset_as_any_other() -> None:
    offsets = OffsetMap(8, 0.9)
    offsets.put(b"", 0)
    assert offsets.get(b"") == 0


def test_a_full_map_takes_nothing_more_and_keeps_what_it_has() -> None:
    offsets = OffsetMap(10, 0.5)
    assert [offsets.put(b"%d" % number, number) for number in range(6)] == [True] * 5 + [False]
    assert not offsets.put(b"0", 7), "a full map takes no later offset of a key that it has"
    assert [offsets.get(b"%d" % number) for number in range(6)] == [0, 1, 2, 3, 4, -1]
    assert offsets.utilization == 0.5


def test_one_slot_stays_empty_whatever_the_load_factor_so_that_a_search_ends() -> None:
    offsets = OffsetMap(4, 1.0)
    assert offsets.most_keys == 3
    for number in range(4):
        offsets.put(b"%d" % number, number)
    assert offsets.get(b"not there") == -1


@given(st.lists(st.binary(max_size=3)))
def test_the_map_holds_what_a_dictionary_holds(keys: list[bytes]) -> None:
    offsets, expected = OffsetMap(len(keys) + 2, 1.0), dict[bytes, int]()
    for offset, key in enumerate(keys):
        assert offsets.put(key, offset)
        expected[key] = offset
    assert {key: offsets.get(key) for key in keys} == expected
    assert offsets.size == len(expected)
