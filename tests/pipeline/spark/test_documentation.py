"""The jobs in docs/spark.md, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dev.broker_process import BrokerProcess
from dev.repository import REPOSITORY
from pipeline.kafka_log.options import OptionError, read_options
from tests.support.clients import Record, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (REPOSITORY / "docs/spark.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
JOBS = [text for language, text in BLOCK.findall(PAGE) if language == "python"]


@pytest.mark.usefixtures("connector")
@pytest.mark.timeout(300)
def test_every_job_of_the_page_runs(spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("orders", partitions=2)
    client.create_topic("answers")
    client.produce("orders", [Record(key=b"%d" % n, value=b"order %d" % n, partition=n % 2) for n in range(200)])

    names = {"spark": spark}

    def run(text: str) -> None:
        for theirs, ours in (
            ("localhost:9092", own_broker.bootstrap),
            ("/var/lib/ottla", str(own_broker.data_directory)),
            ("/data/", f"{tmp_path}/"),
        ):
            text = text.replace(theirs, ours)
        exec(compile(text, "docs/spark.md", "exec"), names)

    assert len(JOBS) == 6
    for job in JOBS:
        run(job)
    client.produce("orders", [Record(value=b"order %d" % n) for n in range(200, 250)])
    for job in JOBS:
        if "checkpointLocation" in job:
            run(job)

    for place in ("orders", "copies"):
        rows = spark.read.parquet(str(tmp_path / place)).select("value").collect()
        assert sorted(bytes(row.value) for row in rows) == sorted(b"order %d" % n for n in range(250))
    assert {record.value for record in client.consume_all("answers")} == {b"ORDER %d" % n for n in range(200)}


@pytest.mark.parametrize(
    "word",
    [
        "read", "readStream", "write", "checkpointLocation", "availableNow=True", "startingOffsets", "endingOffsets",
        "startingTimestamp", "subscribePattern", "minPartitions", "includeHeaders", "read_committed",
    ],
)  # fmt: skip
def test_a_job_with_the_connector_shows(word: str) -> None:
    assert any(re.search(rf"\b{re.escape(word)}\b", job) for job in JOBS if 'format("kafka")' in job)


def test_what_is_no_python_is_how_to_install_it() -> None:
    others = [text for language, text in BLOCK.findall(PAGE) if language != "python"]
    assert all(line.startswith(("pip install ", "spark-submit ")) for text in others for line in text.splitlines())


def test_every_option_of_the_page_is_one() -> None:
    table = PAGE[PAGE.index("### Its options") : PAGE.index("### Where the two differ")]
    named = {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`([\w.]+)`", row)
    }
    assert len(named) > 15
    for name in named:
        with pytest.raises(OptionError) as caught:
            read_options({name: "?"})
        assert "has no option" not in str(caught.value), caught.value
