"""The partition of a key by Kafka's hash. Expected values are from Java, and from a running Kafka 4.3.1."""

import pytest

from broker.coordinators.partitioning import java_hash, partition_of


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("", 0),
        ("g1", 3242),
        ("my-group", -1_906_497_762),
        ("polygenelubricants", -(2**31)),
        ("größe", 98_762_257),
        ("😀", 1_772_899),
        ("a\ud83d", 58_364),
    ],
)
def test_the_hash_is_that_of_java(key: str, hashed: int) -> None:
    assert java_hash(key) == hashed


@pytest.mark.parametrize(
    ("key", "partition"), [("g1", 42), ("my-group", 12), ("tx1", 45), ("", 0), ("polygenelubricants", 0)]
)
def test_a_key_stands_in_the_partition_in_which_kafka_looks_for_it(key: str, partition: int) -> None:
    assert partition_of(key, 50) == partition


def test_a_long_key_is_hashed_too() -> None:
    assert partition_of("x" * 32_767, 50) == 38
