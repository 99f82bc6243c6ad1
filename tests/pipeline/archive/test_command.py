"""The command as it is used, with Spark: beside a broker, without one, and killed in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dev.broker_process import BrokerProcess
from dev.repository import REPOSITORY
from pipeline.archive.archive import Archive
from pipeline.broker import Broker, Commit
from pipeline.reading.scan import Scan
from pipeline.source import Source
from storage.batch.record_batch import read_header
from storage.topic_partition import TopicPartition
from tests.pipeline.archive.archives import CLUSTER, TOPIC_ID, Seen, seen_by_delta, seen_by_duckdb, seen_by_pyarrow
from tests.pipeline.conftest import FIXTURES
from tests.support.clients import Record, connect
from tests.support.damage import break_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = ("--master", "local[2]", "--spark-conf", "spark.driver.memory=1g")
PARTITIONS = 2
BATCH = 50

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(400)]


def run(*words: str | Path, module: str = "pipeline", expected: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command with a process group of its own; nothing of it is there when this returns."""
    command = [sys.executable, "-m", module, *map(str, words)]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == expected, f"exit code {process.returncode}\n{out}{err}"
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def archive(broker: BrokerProcess, dest: Path, *words: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
    return run("archive", *_online(broker, dest), *words, expected=expected)


def _online(broker: BrokerProcess, dest: Path) -> list[str]:
    return ["--data-dir", str(broker.data_directory), "--bootstrap", broker.bootstrap, "--dest", str(dest), *SPARK]


def seen_by_spark(spark: SparkSession, dest: Path) -> Seen:
    if not any(dest.glob("topic=*")):
        return []
    rows = spark.read.parquet(str(dest)).select("topic", "partition", "offset").collect()
    return sorted((row.topic, row.partition, row.offset) for row in rows)


def seen(spark: SparkSession, dest: Path) -> Seen:
    """What all three find, who agree."""
    found = seen_by_spark(spark, dest)
    assert found == seen_by_pyarrow(dest) == seen_by_duckdb(dest)
    return found


def produce(broker: BrokerProcess, topic: str, count: int) -> None:
    client = connect("confluent-kafka", broker.bootstrap)
    if topic not in client.topics():
        client.create_topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        client.produce(topic, [Record(value=b"%d" % number, key=b"k", partition=partition) for number in range(count)])


def all_of(topic: str, count: int) -> Seen:
    return [(topic, partition, offset) for partition in range(PARTITIONS) for offset in range(count)]


def test_killed_three_times_the_archive_has_every_row_once_and_the_broker_knows_how_far_it_is(
    spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    dest = tmp_path / "archive"
    produced = 0
    for number, step in enumerate(("rows placed", "manifest written", "manifest published")):
        produce(own_broker, "orders", BATCH)
        produced += BATCH
        # The very first manifest names nothing yet: it says whose archive it is.
        counter, times = tmp_path / f"counter-{number}", "1" if number else "2"
        run(step, times, counter, *_online(own_broker, dest), module="tests.pipeline.archive.kill_at", expected=-9)
        found = seen(spark, dest)
        assert len(set(found)) == len(found), step
        assert set(found) <= set(all_of("orders", produced)), step

    produce(own_broker, "orders", BATCH)
    produced += BATCH
    told = archive(own_broker, dest).stdout

    assert "archived" in told
    assert seen(spark, dest) == all_of("orders", produced)
    ends = {TopicPartition("orders", partition): Commit(produced, 0, "") for partition in range(PARTITIONS)}
    assert Broker(own_broker.bootstrap).commits("archive.archive") == ends
    assert "no damage" in run("archive", "verify", "--dest", dest).stdout


def test_without_a_broker_nothing_is_committed_and_the_next_run_with_one_does_it(
    spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    dest = tmp_path / "archive"
    produce(own_broker, "orders", BATCH)
    produce(own_broker, "payments", 1)
    own_broker.stop()

    offline = ["archive", "--data-dir", own_broker.data_directory, "--dest", dest, "--name", "nightly"]
    told = run(*offline, "--topics", "orders", *SPARK).stdout

    assert "nothing was committed to the group archive.nightly: the next run with --bootstrap does it" in told
    assert seen(spark, dest) == all_of("orders", BATCH)
    own_broker.start()
    told = archive(own_broker, dest, "--name", "nightly", "--topic-pattern", "ord.*").stdout
    assert "nothing new" in told
    broker = Broker(own_broker.bootstrap)
    assert set(broker.committed("archive.nightly").values()) == {BATCH}
    manifest = Archive.open(dest).manifest
    assert manifest.topics["orders"].configs == {}
    assert manifest.topics["orders"].partition_count == PARTITIONS


def test_a_delta_table_is_kept_from_the_run_that_names_it_on(own_broker: BrokerProcess, tmp_path: Path) -> None:
    dest = tmp_path / "archive"
    for number, words in enumerate(((), ("--format", "delta"), ()), 1):
        produce(own_broker, "orders", BATCH)
        archive(own_broker, dest, *words)
        assert seen_by_delta(dest) == (all_of("orders", number * BATCH) if number > 1 else [])

    assert run("archive", "compact", "--dest", dest).stdout.startswith(f"{3 * PARTITIONS} files became {PARTITIONS}")

    assert seen_by_delta(dest) == seen_by_pyarrow(dest) == all_of("orders", 3 * BATCH)
    assert "no damage" in run("archive", "verify", "--dest", dest).stdout
    refused = archive(own_broker, dest, "--format", "parquet", expected=2).stderr
    assert "is a Delta table, too, and is kept as one" in refused


def test_what_apache_kafka_wrote_comes_back_batch_for_batch(
    spark: SparkSession, kafka_directory: Callable[[str], Path], tmp_path: Path
) -> None:
    data, dest = kafka_directory("kafka-dir"), tmp_path / "archive"

    run("archive", "--data-dir", data, "--dest", dest, *SPARK)

    found = Archive.open(dest)
    with Source.open([str(data)]) as source:
        for partition in source.partitions(source.topics()):
            stretches = Scan(partition.readable(), pytest.fail).stretches()
            original = [
                stretch.data[at : at + read_header(stretch.data, at).size]
                for stretch in stretches
                for at in stretch.begins
            ]
            archived = [batch.data for batch in found.batches(partition.topic, partition.partition)]
            assert archived == original, partition
    expected = json.loads((FIXTURES / "expected.json").read_text())["topics"]
    assert seen(spark, dest) == sorted(
        (topic, int(partition), offset)
        for topic, told in expected.items()
        for partition, visible in told["records"].items()
        for offset in visible["read_committed"]
    )
    assert "no damage" in run("archive", "verify", "--dest", dest).stdout


def test_damage_in_what_apache_kafka_wrote_ends_it_or_is_passed_over(
    spark: SparkSession, kafka_directory: Callable[[str], Path], tmp_path: Path
) -> None:
    data, dest = kafka_directory("kafka-dir"), tmp_path / "archive"
    path = data / "plain-0" / f"{0:020d}.log"
    position, offset = break_batch(path, 2)
    expected = json.loads((FIXTURES / "expected.json").read_text())["topics"]
    rest = sorted(
        (topic, int(partition), each)
        for topic, told in expected.items()
        for partition, visible in told["records"].items()
        for each in visible["read_committed"]
        if (topic, each) != ("plain", offset)
    )

    refused = run("archive", "--data-dir", data, "--dest", dest, *SPARK, expected=1)

    assert refused.stdout == ""
    assert f"{path} at {position} (offset {offset}): found the CRC" in refused.stderr
    assert Archive.open(dest).files() == []
    found = seen(spark, dest)
    assert len(set(found)) == len(found)
    assert set(found) <= set(rest)
    assert "plain" not in {topic for topic, _, _ in found}
    assert "0 files with 0 rows: no damage" in run("archive", "verify", "--dest", dest).stdout

    run("archive", "--data-dir", data, "--dest", dest, "--on-damage", "skip-batch", *SPARK)

    assert seen(spark, dest) == rest
    (gap,) = Archive.open(dest).manifest.topics["plain"].partitions[0].gaps
    assert (gap.from_offset, gap.until_offset) == (offset, offset + 1)
    assert "found the CRC" in gap.reason
    assert "no damage" in run("archive", "verify", "--dest", dest).stdout


def archived_records(line: str) -> int:
    """How many a cycle has told of."""
    assert line.startswith(("archived ", "nothing new")), line
    return int(line.split()[1]) if line.startswith("archived") else 0


def test_again_and_again_until_it_is_told_to_end(own_broker: BrokerProcess, tmp_path: Path) -> None:
    dest = tmp_path / "archive"
    produce(own_broker, "orders", BATCH)
    command = [sys.executable, "-m", "pipeline", "archive", *_online(own_broker, dest), "--interval", "1"]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as archiver:
        assert archiver.stdout is not None
        assert archived_records(archiver.stdout.readline()) == PARTITIONS * BATCH
        produce(own_broker, "orders", BATCH)
        # It may come by between one partition and the other.
        more = 0
        while more < PARTITIONS * BATCH:
            more += archived_records(archiver.stdout.readline())

        refused = archive(own_broker, dest, expected=2).stderr
        assert f"another process archives to {dest} (process id {archiver.pid})" in refused
        assert run("archive", "compact", "--dest", dest).stdout.startswith(
            f"{2 * PARTITIONS} files became {PARTITIONS}"
        )
        archiver.terminate()
        archiver.communicate()

    assert archiver.returncode == 130
    assert seen_by_pyarrow(dest) == seen_by_duckdb(dest) == all_of("orders", 2 * BATCH)


def test_hold_lets_retention_wait_for_the_archive(own_broker: BrokerProcess, tmp_path: Path) -> None:
    produce(own_broker, "orders", BATCH)

    archive(own_broker, tmp_path / "archive", "--hold", "--name", "nightly")

    broker = Broker(own_broker.bootstrap)
    assert broker.topic_configs(["orders"])["orders"]["ottla.archive.group"] == "archive.nightly"
    refused = archive(own_broker, tmp_path / "other", "--hold", expected=2).stderr
    assert "topic orders is held by the group archive.nightly" in refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topics", "ordres"], r"there is no topic ordres in .*; did you mean orders\?"),
        (["--topic-pattern", "("], r"the pattern '\(' cannot be read"),
        (["--partition-by", "date"], "found 'date'; expected topic,date or topic"),
        (["--name", "a b"], "found 'a b'; expected letters"),
        (["--dest", "{file}"], "is no directory"),
        (["--hold"], "needs the broker: --bootstrap"),
    ],
)
def test_what_cannot_be_is_a_sentence_and_nothing_is_made(tmp_path: Path, words: list[str], said: str) -> None:
    data = tmp_path / "data"
    log = data / "orders-0"
    log.mkdir(parents=True)
    (log / "00000000000000000000.log").touch()
    (data / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER}\nnode.id=1\ndirectory.id={TOPIC_ID}\n")
    (tmp_path / "file").touch()
    given = [word.replace("{file}", str(tmp_path / "file")) for word in words]

    refused = run(
        "archive", "--data-dir", data, "--dest", tmp_path / "archive", *given, *SPARK, expected=2
    ).stderr  # fmt: skip

    assert re.search(said, refused)
    assert "Traceback" not in refused
    assert not (tmp_path / "archive").exists()


def test_without_java_it_says_how_to_get_one(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "archive", "--data-dir", str(tmp_path), "--dest", str(tmp_path / "archive")],
        cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "Java" in done.stderr
    assert not (tmp_path / "archive").exists()
