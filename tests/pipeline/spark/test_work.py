"""Functions of our packages on Spark's workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.kafka_log.options import OptionError, read_options
from pipeline.work import on_workers
from storage.errors import WrongDirectory
from storage.topic_partition import parse_dir_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GIVEN = [{"path": "/data", "subscribe": name} for name in ("a", "b", "c", "d", "e")]


def test_results_come_in_the_order_of_the_items_and_progress_is_told(spark: SparkSession) -> None:
    told: list[int] = []
    found = on_workers(spark, read_options, GIVEN, on_done=told.append)
    assert found == [read_options(given) for given in GIVEN]
    assert sum(told) == len(GIVEN)
    assert on_workers(spark, read_options, []) == []


def test_an_error_of_the_pipeline_comes_as_itself(spark: SparkSession) -> None:
    with pytest.raises(OptionError, match=r"^subscribe names no topic: ','$"):
        on_workers(spark, read_options, [*GIVEN, {"path": "/data", "subscribe": ","}])


def test_so_does_one_of_storage(spark: SparkSession) -> None:
    with pytest.raises(WrongDirectory, match="found directory 'orders' among the logs"):
        on_workers(spark, parse_dir_name, ["orders-0", "orders"])
