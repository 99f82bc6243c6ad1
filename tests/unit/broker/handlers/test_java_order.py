"""The order of Java's hash maps: by bucket, in a bucket by insertion, in a table that grows; and that of Kafka's."""

import pytest

from broker.coordinators.partitioning import java_hash, partition_of
from broker.handlers.java_order import (
    as_in_timeline_map,
    capacity_for,
    capacity_of_copy,
    concurrent_map_order,
    hash_map_order,
    hash_of_map,
    hash_of_partition,
    timeline_map_order,
)


def test_keys_come_out_by_bucket_and_keys_of_one_bucket_as_they_went_in() -> None:
    assert java_hash("Aa") == java_hash("BB")
    assert hash_map_order(["user", "client-id"], java_hash) == ["client-id", "user"]
    assert hash_map_order(["b", "Aa", "a", "BB"], java_hash) == ["Aa", "BB", "a", "b"]
    assert hash_map_order(["b", "BB", "a", "Aa"], java_hash) == ["BB", "Aa", "a", "b"]


def test_the_upper_half_of_a_hash_code_counts_too() -> None:
    assert hash_map_order([0x0003_0000, 2, -1], lambda key: key) == [-1, 2, 0x0003_0000]


@pytest.mark.parametrize(("count", "capacity"), [(12, 16), (13, 32), (24, 32), (25, 64)])
def test_a_table_doubles_where_more_than_three_quarters_are_taken(count: int, capacity: int) -> None:
    keys = [capacity, *range(1, count)]  # the first key is in bucket 0 of a table of this size
    assert hash_map_order(keys, lambda key: key)[0] == capacity
    assert hash_map_order(keys, lambda key: key, capacity * 2)[-1] == capacity


def test_tables_are_made_for_the_keys_that_are_expected() -> None:
    assert [capacity_for(expected) for expected in (0, 1, 2, 3, 4, 5)] == [1, 1, 2, 4, 4, 8]
    assert [capacity_of_copy(size) for size in (0, 1, 2, 3, 6, 12)] == [1, 2, 4, 8, 16, 32]


def test_a_map_has_the_sum_of_its_entries_as_its_hash_code() -> None:
    assert hash_of_map({"user": None}) == java_hash("user")
    assert hash_of_map({"a": "b", "c": "d"}) == (97 ^ 98) + (99 ^ 100)


@pytest.mark.parametrize(
    ("groups", "partitions", "listed"),
    [
        (60, 1, [20, 33, 59, 46, 12, 2, 51, 38, 25, 30, 43, 17]),
        (40, 50, [1, 21, 25, 13, 9, 5, 33, 37, 29, 17, 4, 10]),
    ],
)
def test_groups_come_as_kafka_lists_them(groups: int, partitions: int, listed: list[int]) -> None:
    """``listed`` are the first numbers in an answer of Kafka 4.4.0."""
    by_partition: dict[int, list[str]] = {}
    for number in range(groups):
        by_partition.setdefault(partition_of(f"grp-{number}", partitions), []).append(f"grp-{number}")
    in_order = concurrent_map_order(range(partitions), lambda index: hash_of_partition("__consumer_offsets", index))
    found = [group for index in in_order for group in timeline_map_order(by_partition.get(index, ()), java_hash)]
    assert found[: len(listed)] == [f"grp-{number}" for number in listed]
    assert len(found) == groups


def test_members_come_as_kafka_describes_them() -> None:
    """Kafka's own ConsumerGroupDescribeRequestTest expects these two so."""
    assert as_in_timeline_map(["member-1", "member-2"], str) == ["member-2", "member-1"]
