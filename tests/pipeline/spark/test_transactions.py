"""`kafka_log` on transactions that our own broker wrote: the rows that Spark's Kafka connector and a consumer see."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dev.broker_process import BrokerProcess
from tests.pipeline.spark.rows import READ_COMMITTED, READ_UNCOMMITTED, from_kafka_log, rows_of
from tests.pipeline.spark.test_same_rows import same_rows
from tests.pipeline.written_transactions import ABORTED, BEHIND, COMMITTED, NO_TIMEOUTS, TOPIC, Ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSETS = {READ_COMMITTED: COMMITTED, READ_UNCOMMITTED: sorted(COMMITTED + ABORTED + BEHIND)}


@pytest.mark.usefixtures("connector")
def test_beside_the_broker_and_without_it_a_job_has_the_rows_of_its_isolation_level(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "data")
    for directory in (ledger.directory, ledger.killed):
        for isolation, offsets in OFFSETS.items():
            frame = from_kafka_log(spark, directory, subscribe=TOPIC, kafka_isolation_level=isolation)
            assert [row.offset for row in rows_of(frame)] == offsets
    with BrokerProcess(tmp_path, settings=NO_TIMEOUTS) as broker:
        seen = same_rows(spark, broker.data_directory, broker.bootstrap, [TOPIC])
    assert {isolation: [row.offset for row in rows] for isolation, rows in seen.items()} == OFFSETS


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_a_stream_of_committed_records_waits_for_the_open_transaction(
    spark: SparkSession, tmp_path: Path, commit: bool
) -> None:
    ledger = Ledger(tmp_path / "data")

    def streamed() -> list[int]:
        """The offsets of all rows that the stream has written, with those that there are now."""
        options = {"subscribe": TOPIC, "startingOffsets": "earliest", "kafka.isolation.level": READ_COMMITTED}
        frame = spark.readStream.format("kafka_log").options(**options).load(str(ledger.directory))
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{tmp_path}/checkpoint")
        query = writer.trigger(availableNow=True).start(f"{tmp_path}/rows")
        assert query.awaitTermination(120)
        rows = spark.read.schema(frame.schema).parquet(f"{tmp_path}/rows").select("offset").collect()
        return sorted(row.offset for row in rows)

    assert streamed() == COMMITTED
    assert streamed() == COMMITTED

    ledger.go_on(commit=commit)

    assert streamed() == COMMITTED + (BEHIND if commit else BEHIND[1:])
