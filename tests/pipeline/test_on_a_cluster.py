"""`archive`, `audit`, `stats` and `sql` on a cluster of two workers; for the others: restore/test_on_spark.py."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from dev.broker_process import BrokerProcess
from dev.repository import REPOSITORY
from dev.spark_home import linked_home
from pipeline.archive.archive import Archive
from tests.pipeline.archive.archives import seen_by_duckdb, seen_by_pyarrow
from tests.pipeline.restore.archiving import stored
from tests.support.clients import Record, connect

MASTER = ("--master", "local-cluster[2,1,1024]")
TOPIC = "orders"
PARTITIONS = 4
RECORDS = 500
"""Of each partition."""

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(600)]


def value(partition: int, offset: int) -> bytes:
    return b"%d of %d" % (offset, partition)


def test_each_command_on_a_cluster(own_broker: BrokerProcess, tmp_path: Path) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic(TOPIC, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        client.produce(
            TOPIC, [Record(value=value(partition, offset), partition=partition) for offset in range(RECORDS)]
        )
    own_broker.stop()
    home = linked_home(tmp_path / "spark", Path(pyspark.__file__).parent)

    def do(command: str, *words: str | Path) -> None:
        ran = subprocess.run(
            [sys.executable, "-m", "pipeline", command, "--data-dir", own_broker.data_directory, *words, *MASTER],
            cwd=REPOSITORY, env={**os.environ, "SPARK_HOME": str(home)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr

    do("archive", "--dest", tmp_path / "archive")
    do("audit", "--deep", "--topics", TOPIC, "--report", tmp_path / "audit.json")
    do("stats", "--report", tmp_path / "stats.json")
    do("sql", "--output", tmp_path / "rows.csv", f"select partition, offset, text(value) from {TOPIC} order by 1, 2")

    places = [(TOPIC, partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)]
    assert seen_by_pyarrow(tmp_path / "archive") == seen_by_duckdb(tmp_path / "archive") == places
    written = {partition: stored(own_broker.data_directory, TOPIC, partition) for partition in range(PARTITIONS)}
    for partition, batches in written.items():
        archived = Archive.open(tmp_path / "archive").batches(TOPIC, partition)
        assert [batch.data for batch in archived] == batches
    audit = json.loads((tmp_path / "audit.json").read_text())
    assert (audit["findings"], audit["counts"]["batches"]) == ([], sum(map(len, written.values())))
    (counted,) = json.loads((tmp_path / "stats.json").read_text())["topics"]
    assert [each["records"] for each in counted["partitions"]] == [RECORDS] * PARTITIONS
    with (tmp_path / "rows.csv").open(newline="") as rows:
        _, *found = csv.reader(rows)
    assert found == [
        [str(partition), str(offset), value(partition, offset).decode()] for _, partition, offset in places
    ]
    assert {path.name for path in (home / "work").glob("*/*")} == {"0", "1"}, "both workers were there"
