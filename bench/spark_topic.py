"""The setup of cases with Spark: a topic's files as a broker would have written them, and a Spark in a process of its
own."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from bench.conversation import Conversation
from bench.limits import MEGABYTE
from bench.processes import REPOSITORY, OwnBroker
from dev import spark_connector
from dev.maven import NoJars
from pipeline.requirements import Missing, require_libraries, require_spark
from storage.batch.record_batch import stamp
from storage.batch.records import Record, encode_batch

TOPIC: Final = "read"
PARTITIONS: Final = 4
VALUE_BYTES: Final = 200

CONNECTOR: Final = {"format": "kafka", "kafka.max.poll.records": "10000", "minPartitions": str(PARTITIONS)}
"""The options of Spark's connector that docs/spark.md recommends."""


def has_spark() -> bool:
    """Whether cases with Spark can be measured here; if not, the reason is printed."""
    try:
        require_libraries()
        require_spark()
    except Missing as reason:
        sys.stderr.write(f"not measured: {reason}\n")
        return False
    return True


def connector_jars(otherwise: str) -> list[Path]:
    """The jars of Spark's Kafka connector. If they cannot be had: none, and a line that says what happens
    ``otherwise``."""
    try:
        return spark_connector.jars()
    except NoJars as reason:
        sys.stderr.write(f"{otherwise}: {reason}\n")
        return []


def make_topic(home: Path, *, records: int, topic_bytes: int) -> tuple[int, int]:
    """Make a data directory with a topic of batches with so many records each, after a clean stop of our broker.
    Returns the topic's bytes and rows. Writing its files is quicker than producing the records."""
    broker = OwnBroker(home)
    with Conversation(broker.bootstrap) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
    broker.close()
    batches = _batches(records)
    count = max(topic_bytes // PARTITIONS // len(batches[0]), 1)
    size = 0
    for number in range(PARTITIONS):
        with (home / "data" / f"{TOPIC}-{number}" / f"{0:020d}.log").open("r+b") as file:
            for at in range(count):
                batch = batches[at % len(batches)]
                stamp(batch, at * records, 0)
                size += file.write(batch)
    # What is written behind a broker's back is found by recovery.
    (home / "data" / ".kafka_cleanshutdown").unlink()
    OwnBroker(home).close()
    return size, count * records * PARTITIONS


def _batches(records: int) -> list[bytearray]:
    """Different batches of the same size, one MB of them and at least four. Their values are words that a codec can
    compress, but no codec finds the content of one batch in the next."""
    chance = random.Random(1)
    words = [bytes(chance.choices(b"abcdefghij", k=10)) for _ in range(1_000)]
    now_ms = int(time.time() * 1000)
    return [
        encode_batch(
            [
                Record(
                    timestamp=now_ms,
                    key=b"key %08d" % number,
                    value=b"".join(chance.choices(words, k=VALUE_BYTES // len(words[0]))),
                )
                for number in range(records)
            ]
        )
        for _ in range(max(MEGABYTE // VALUE_BYTES // records, 4))
    ]


def ask(module: str, asked: dict[str, Any]) -> dict[str, float]:
    """Run a module of the bench that starts a Spark. Gives it JSON at its stdin, and returns the JSON in the last line
    of its stdout."""
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable},
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} ended with exit code {done.returncode}:\n{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def session(jars: list[str]) -> Any:
    """The Spark session of all of these cases, with two workers."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.driver.host", "127.0.0.1")
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    return builder.getOrCreate()
