"""combine: what becomes of stored and written state batches, against a model that keeps a state for each offset."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broker.coordinators.share.batches import combine
from broker.coordinators.share.persister import NO_START_OFFSET, StateBatch

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4

Model = dict[int, tuple[int, int]]
"""Delivery count and state by offset."""


def batches() -> st.SearchStrategy[list[StateBatch]]:
    batch = st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, 20),
        st.integers(0, 8),
        st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
        st.integers(0, 3),
    )
    return st.lists(batch, max_size=6)


def as_model(found: list[StateBatch] | tuple[StateBatch, ...], start_offset: int = NO_START_OFFSET) -> Model:
    model: Model = {}
    for batch in found:
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            state = batch.delivery_count, batch.delivery_state
            model[offset] = max(model.get(offset, state), state)
    return model


@given(batches(), batches(), st.integers(-1, 25))
def test_every_offset_keeps_its_highest_state(
    stored: list[StateBatch], written: list[StateBatch], start_offset: int
) -> None:
    combined = combine(stored, written, start_offset)
    assert as_model(combined) == as_model(stored + written, start_offset)


@given(batches(), batches(), st.integers(-1, 25))
def test_the_result_is_sorted_and_as_short_as_it_can_be(
    stored: list[StateBatch], written: list[StateBatch], start_offset: int
) -> None:
    combined = combine(stored, written, start_offset)
    for before, after in pairwise(combined):
        assert before.last_offset < after.first_offset
        is_neighbour = before.last_offset + 1 == after.first_offset
        assert not (is_neighbour and before[2:] == after[2:])


@given(batches(), batches(), batches())
def test_the_order_of_writes_makes_no_difference(
    first: list[StateBatch], second: list[StateBatch], third: list[StateBatch]
) -> None:
    one = combine(combine(first, second, NO_START_OFFSET), third, NO_START_OFFSET)
    other = combine(combine(first, third, NO_START_OFFSET), second, NO_START_OFFSET)
    assert as_model(one) == as_model(other)


def test_a_later_delivery_replaces_a_part_of_a_batch() -> None:
    stored = [StateBatch(100, 109, AVAILABLE, 1)]
    written = [StateBatch(103, 105, AVAILABLE, 2)]
    assert combine(stored, written, 100) == (
        StateBatch(100, 102, AVAILABLE, 1),
        StateBatch(103, 105, AVAILABLE, 2),
        StateBatch(106, 109, AVAILABLE, 1),
    )


def test_what_is_below_the_start_offset_is_cut_off() -> None:
    stored = [StateBatch(100, 109, ACKNOWLEDGED, 1), StateBatch(110, 119, ARCHIVED, 1)]
    assert combine(stored, [], 115) == (StateBatch(115, 119, ARCHIVED, 1),)
