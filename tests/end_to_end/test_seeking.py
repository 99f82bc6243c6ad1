"""A consumer may start at any offset and at any time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.clients import Client, Record, values

START_MS = 1_700_000_000_000


@pytest.fixture
def hundred_records(client: Client, new_topic: Callable[..., str]) -> str:
    """One record a second, one hundred of them, in several batches."""
    topic = new_topic()
    for first in range(0, 100, 20):
        numbers = range(first, first + 20)
        records = [Record(value=b"%d" % number, timestamp_ms=START_MS + number * 1000) for number in numbers]
        client.produce(topic, records)
    return topic


def test_seek_by_offset_starts_at_exactly_that_record(client: Client, hundred_records: str) -> None:
    for offset in (0, 1, 19, 20, 57, 99):
        (first, *_) = client.consume(hundred_records, partition=0, offset=offset, count=1)
        assert (first.offset, first.value) == (offset, b"%d" % offset)


def test_seek_to_the_end_waits_for_the_next_record(client: Client, hundred_records: str) -> None:
    ((_, end),) = client.offsets(hundred_records).values()
    client.produce(hundred_records, [Record(value=b"new")])

    assert end == 100
    assert values(client.consume(hundred_records, partition=0, offset=end, count=1)) == [b"new"]


@pytest.mark.parametrize(
    ("after_start_ms", "expected"),
    [(-1_000_000, 0), (0, 0), (1, 1), (1000, 1), (19_500, 20), (20_000, 20), (98_001, 99), (99_000, 99)],
)
def test_seek_by_time_finds_the_first_record_at_or_after_it(
    client: Client, hundred_records: str, after_start_ms: int, expected: int
) -> None:
    found = client.offset_for_time(hundred_records, 0, START_MS + after_start_ms)

    assert found == expected
    assert values(client.consume(hundred_records, partition=0, offset=expected, count=1)) == [b"%d" % expected]


def test_a_time_after_the_last_record_has_no_offset(client: Client, hundred_records: str) -> None:
    assert client.offset_for_time(hundred_records, 0, START_MS + 99_001) is None


def test_the_first_and_next_offsets_are_those_of_the_log(client: Client, hundred_records: str) -> None:
    assert client.offsets(hundred_records) == {0: (0, 100)}
