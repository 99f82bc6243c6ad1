"""The options of `kafka_log`, as text and as they are meant."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not here")

from pipeline.kafka_log.options import EARLIEST, LATEST, OFFSET, TIME, OptionError, Place, read_options
from pipeline.reading.ranges import Wanted
from pipeline.schema import COLUMNS
from storage.topic_partition import TopicPartition

ENOUGH = {"path": "/data", "subscribe": "orders"}


def test_the_defaults_are_those_of_the_connector() -> None:
    options = read_options(ENOUGH)
    assert options.wanted == Wanted(read_committed=False)
    assert options.fail_on_data_loss
    assert (options.starting, options.ending, options.bootstrap) == (None, None, None)


def test_names_come_in_any_case() -> None:
    options = read_options({"PATH": "/data/", "SubScribe": "orders, payments", "INCLUDEHEADERS": "True"})
    assert options.data_dirs == ("/data",)
    assert options.subscription.topics == ("orders", "payments")
    assert options.wanted.columns == COLUMNS


def test_all_of_log_dirs() -> None:
    options = read_options({"log.dirs": "/data/1, /data/2", "paths": '["/data/3"]', "subscribe": "orders"})
    assert options.data_dirs == ("/data/1", "/data/2", "/data/3")


def test_places_by_partition() -> None:
    options = read_options(ENOUGH | {"startingOffsets": '{"orders": {"0": 23, "1": -2}}', "endingOffsets": "latest"})
    assert options.starting is not None
    assert options.starting.of(TopicPartition("orders", 0)) == Place(OFFSET, 23)
    assert options.starting.of(TopicPartition("orders", 1)) == EARLIEST
    with pytest.raises(OptionError, match="startingOffsets says nothing of orders-2"):
        options.starting.of(TopicPartition("orders", 2))
    assert options.ending is not None
    assert options.ending.of(TopicPartition("orders", 7)) == LATEST


def test_a_time_goes_before_offsets() -> None:
    options = read_options(ENOUGH | {"startingTimestamp": "5", "startingOffsets": "earliest"})
    assert options.starting is not None
    assert options.starting.of(TopicPartition("orders", 0)) == Place(TIME, 5)


def test_columns_in_the_order_in_which_they_are_named() -> None:
    options = read_options(ENOUGH | {"columns": "value, OFFSET", "includeHeaders": "true"})
    assert options.wanted.columns == ("value", "offset", "headers")


def test_the_smaller_limit_counts() -> None:
    limits = {"maxOffsetsPerTrigger": "100", "maxRowsPerTrigger": "70"}
    assert read_options(ENOUGH | limits).most_offsets == 70


def test_what_only_a_consumer_needs_is_let_be() -> None:
    assert read_options(ENOUGH | {"kafka.max.poll.records": "10000"}) == read_options(ENOUGH)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscribe": "a"}, r"needs the broker's data directory"),
        ({"path": "/data"}, "one of subscribe, subscribePattern and assign must say .* found none"),
        (ENOUGH | {"assign": '{"a":[0]}'}, "found subscribe and assign"),
        ({"path": "/data", "subscribe": " , "}, "subscribe names no topic"),
        ({"path": "/data", "assign": '{"a":["x"]}'}, r"assign is .* expected JSON like \{\"orders\": \[0, 1\]\}"),
        (ENOUGH | {"startingOfsets": "earliest"}, "no option 'startingOfsets'; did you mean 'startingOffsets'?"),
        (ENOUGH | {"kafka.isolation.levl": "x"}, "did you mean 'kafka.isolation.level'?"),
        (ENOUGH | {"zzz": "x"}, "kafka_log has no option 'zzz'$"),
        (ENOUGH | {"kafka.isolation.level": "serializable"}, "expected read_uncommitted or read_committed"),
        (ENOUGH | {"startingOffsets": "first"}, "startingOffsets is 'first'; expected JSON like"),
        (ENOUGH | {"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets says -3 for orders-0"),
        (ENOUGH | {"startingOffsets": '{"orders": {"0": 1.5}}'}, "startingOffsets is"),
        (ENOUGH | {"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        (ENOUGH | {"endingOffsets": '{"orders": {"0": -2}}'}, "endingOffsets cannot be earliest"),
        (ENOUGH | {"startingTimestamp": "yesterday"}, "startingTimestamp is 'yesterday'; expected a whole number$"),
        (ENOUGH | {"splitBytes": "0"}, "splitBytes is '0'; expected a whole number above 0"),
        (ENOUGH | {"includeHeaders": "yes"}, "includeHeaders is 'yes'; expected true or false"),
        (ENOUGH | {"columns": "key,valeu"}, "columns names 'valeu'; there are key, value, topic"),
        (ENOUGH | {"onDamage": "ignore"}, "expected fail or skip-batch"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        read_options(given)
