"""The names of partition directories, and what is no such name."""

import pytest

from storage.errors import WrongDirectory
from storage.topic_partition import MISNAMED, TopicPartition, parse_dir_name


@pytest.mark.parametrize("topic", ["orders", "a-b.c_d", "x" * 249])
def test_directory_names_come_back(topic: str) -> None:
    partition = TopicPartition(topic, 12)
    assert parse_dir_name(partition.dir_name) == (partition, "")
    name = partition.suffixed_dir_name("0123456789abcdef" * 2, "delete")
    assert len(name) <= 255
    assert parse_dir_name(name).fate == "delete"
    assert parse_dir_name(name).topic_partition.topic == topic[: 255 - len("-12.-delete") - 32]


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("a-00", 0),
        ("a-+1", 1),
        ("a-0000000000000000007", 7),
        ("a-\N{ARABIC-INDIC DIGIT ONE}", 1),
        ("a-\N{FULLWIDTH DIGIT ONE}0", 10),
    ],
)
def test_another_spelling_of_a_number_is_told_from_the_partitions_own(name: str, partition: int) -> None:
    assert parse_dir_name(name) == (TopicPartition("a", partition), MISNAMED)


def test_a_dash_before_a_number_belongs_to_the_topic() -> None:
    assert parse_dir_name("a--1") == (TopicPartition("a-", 1), "")


@pytest.mark.parametrize(
    "name",
    ["orders", "orders-", "-1", "orders-x", "orders-1-delete", "orders-1 ", "orders- 1", "orders-1_0", "orders-++1",
     "orders-2147483648", f"orders-{'9' * 240}", "orders-\N{SUPERSCRIPT TWO}", "orders-x.1-delete", "a.-delete",
     "orders-1.-delete"],
)  # fmt: skip
def test_other_directory_names_are_refused(name: str) -> None:
    with pytest.raises(WrongDirectory):
        parse_dir_name(name)
