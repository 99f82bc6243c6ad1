"""The setup of cases with Spark: a topic as a broker would have written it, and a Spark in a process of its own."""

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
"""Spark's connector as docs/spark.md advises."""


def has_spark() -> bool:
    """Whether Spark can be measured here; if not, why is said."""
    try:
        require_libraries()
        require_spark()
    except Missing as reason:
        sys.stderr.write(f"not measured: {reason}\n")
        return False
    return True


def connector_jars(otherwise: str) -> list[Path]:
    """The jars of Spark's Kafka connector; none if they cannot be had, and what is done ``otherwise`` is said."""
    try:
        return spark_connector.jars()
    except NoJars as reason:
        sys.stderr.write(f"{otherwise}: {reason}\n")
        return []


def make_topic(home: Path, *, records: int, topic_bytes: int) -> tuple[int, int]:
    """A data directory with a topic of batches with so many records each, left in order by our broker; the topic's
    bytes and rows. Writing its files is quicker than producing them."""
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
    """Different ones of the same size, one MB of them and at least four: of words that a codec can do something with,
    but no codec finds one of these batches again in the next."""
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
    """What a program of the bench answers, which starts a Spark: JSON at its stdin, and in its stdout's last line."""
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
    """The Spark of two workers that all of these cases have."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.driver.host", "127.0.0.1")
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    return builder.getOrCreate()
