"""How pages are written: by prometheus-client, and line by line; the library's parser reads both."""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metrics.pages import Pages
from broker.metrics.series import Counted, Family, Samples, count, counter, distribution, gauge, one
from broker.metrics.table import LINES_A_PIECE, Column, Table, label_text, write
from broker.runtime.histogram import Histogram
from tests.support.metrics import OPENMETRICS, Page

SIZE = gauge("a_size", "How large it is", "topic", "partition")
GROWN = counter("b_grown_total", "How often it has grown", "topic", "partition")
SEEN = count("c_seen_count", "How often it was seen", "topic", "partition")
ODD = 'a "quoted" \\ name\nof two lines'


class Row(NamedTuple):
    labels: str
    value: float | None


class Source:
    """A subject with these samples."""

    def __init__(self, *samples: Samples) -> None:
        self._samples = samples

    @property
    def families(self) -> tuple[Family, ...]:
        return tuple(samples.family for samples in self._samples)

    def collect(self) -> Iterator[Samples]:
        yield from self._samples


def nothing() -> Iterator[None]:
    yield from ()


def page_of(*sources: Source, tables: tuple[Table, ...] = (), accept: str = "") -> Page:
    async def make() -> str:
        page = await Pages(nothing, sources=sources, tables=tables).page(accept)
        return b"".join(page.pieces).decode()

    return Page(asyncio.run(make()), is_openmetrics=bool(accept))


def table(*values: tuple[str, str, float | None]) -> Table:
    rows = [Row(label_text(("topic", "partition"), (topic, partition)), value) for topic, partition, value in values]
    return Table([Column(family, lambda row: row.value) for family in (SIZE, GROWN, SEEN)], lambda: rows)


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_both_ways_of_writing_are_read_alike(accept: str) -> None:
    values = [("orders", "0", 1.0), ("orders", "1", 2.5), (ODD, "0", 3.0)]
    by_line = page_of(tables=(table(*values),), accept=accept)
    by_library = page_of(
        Source(*[Samples(family, [((t, p), v) for t, p, v in values]) for family in (SIZE, GROWN, SEEN)]), accept=accept
    )
    for family in (SIZE, GROWN, SEEN):
        assert by_line.of(family.name) == by_library.of(family.name)
        assert len(by_line.of(family.name)) == 3
    for name in ("a_size", "b_grown", "c_seen_count"):
        assert by_line.types[name] == by_library.types[name]
        assert by_line.helps[name] == by_library.helps[name]


@given(topic=st.text(st.characters(codec="utf-8"), max_size=20), value=st.integers(0, 2**53))
def test_any_label_comes_back_as_it_was(topic: str, value: int) -> None:
    for is_openmetrics in (False, True):
        text = b"".join(write(table((topic, "0", value)), is_openmetrics=is_openmetrics)).decode()
        page = Page(text + ("# EOF\n" if is_openmetrics else ""), is_openmetrics=is_openmetrics)
        assert page.values["a_size", frozenset({("topic", topic), ("partition", "0")})] == value


def test_a_row_without_a_value_has_no_line() -> None:
    page = page_of(tables=(table(("orders", "0", None), ("orders", "1", 5)),))
    assert page.labelled("a_size") == [{"topic": "orders", "partition": "1"}]


def test_a_table_comes_in_pieces_of_few_lines() -> None:
    pieces = list(write(table(*[("orders", str(n), n) for n in range(1_000)]), is_openmetrics=False))
    assert len(pieces) == 3 * 1_000 / LINES_A_PIECE
    assert max(piece.count(b"\n") for piece in pieces) == LINES_A_PIECE + 2  # help and type


def test_a_series_of_all_stands_without_labels_among_its_parts() -> None:
    page = page_of(Source(Samples(GROWN, [((), 3), (("orders", "0"), 1), (("payments", "0"), 2)])))
    assert page["b_grown_total"] == 3
    assert page['b_grown_total{topic="orders",partition="0"}'] == 1


def test_a_family_without_values_is_not_mentioned() -> None:
    assert "a_size" not in page_of(Source(Samples(SIZE, []))).types


def test_a_distribution_has_its_percentiles_and_its_count() -> None:
    took = distribution("took_ms", "How long it took", "request", bean="")
    histogram = Histogram()
    histogram.record(2_000, 98)
    histogram.record(64_000, 2)
    page = page_of(Source(*took.collect([Counted(("Produce",), histogram.counts, 7)], divisor=1000)))
    assert page['took_ms{request="Produce",quantile="0.50"}'] == 2.047
    assert page['took_ms{request="Produce",quantile="0.98"}'] == 2.047
    assert page['took_ms{request="Produce",quantile="0.99"}'] == 65.535
    assert page['took_ms{request="Produce",quantile="0.999"}'] == 65.535
    assert page['took_ms_count{request="Produce"}'] == 7


def test_of_nothing_the_percentiles_are_0() -> None:
    took = distribution("took_ms", "How long it took", bean="")
    page = page_of(Source(*took.collect([Counted((), Histogram().counts, 0)])))
    assert page['took_ms{quantile="0.99"}'] == 0


def test_a_page_is_made_once_for_all_who_ask_at_the_same_time_and_anew_for_who_asks_later() -> None:
    looks = 0

    def look() -> Iterator[None]:
        nonlocal looks
        looks += 1
        yield

    async def ask() -> tuple[int, int]:
        pages = Pages(look, sources=(Source(one(gauge("up", "Whether it is up"), 1)),), tables=())
        together = await asyncio.gather(*[pages.page("") for _ in range(50)])
        later = await pages.page("")
        return len({id(page) for page in (*together, later)}), looks

    assert asyncio.run(ask()) == (2, 2)


def test_who_goes_away_does_not_take_the_page_from_the_others() -> None:
    async def ask() -> int:
        pages = Pages(nothing, sources=(), tables=(table(*[("orders", str(n), n) for n in range(5_000)]),))
        leaving, staying = (asyncio.create_task(pages.page("")) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        page = await staying
        return len(page.pieces)

    assert asyncio.run(ask()) > 20


def test_a_large_page_lets_the_loop_turn_in_between() -> None:
    async def ask() -> int:
        pages = Pages(nothing, sources=(), tables=(table(*[("orders", str(n), n) for n in range(20_000)]),))
        making = asyncio.create_task(pages.page(""))
        turns = 0
        while not making.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(ask()) > 5
