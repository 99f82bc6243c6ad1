"""Cases: reading topics with Spark, by `kafka_log`, and by Spark's Kafka connector from our broker and Apache Kafka.

Each case writes the files of a topic, lets our broker recover them and stop, gives Apache Kafka a copy, and starts a
Spark that reads the topic in all ways in turns (`bench.spark_reader`): all columns but headers, into a sink that drops
them.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack, closing
from pathlib import Path

from bench.limits import MEGABYTE
from bench.processes import OwnBroker
from bench.spark_topic import CONNECTOR, TOPIC, ask, connector_jars, has_spark, make_topic
from dev.apache_kafka import ApacheKafka
from dev.kafka_jars import NoKafka, libraries


def one_record(directory: Path, scale: float) -> dict[str, float]:
    """Read batches of one record."""
    return _reading(directory, records=1, topic_bytes=int(64 * MEGABYTE * scale))


def hundred_records(directory: Path, scale: float) -> dict[str, float]:
    """Read batches of 100 records."""
    return _reading(directory, records=100, topic_bytes=int(512 * MEGABYTE * scale))


def eight_thousand_records(directory: Path, scale: float) -> dict[str, float]:
    """Read batches of 8,000 records, 1.7 MB."""
    return _reading(directory, records=8_000, topic_bytes=int(512 * MEGABYTE * scale))


def _reading(directory: Path, *, records: int, topic_bytes: int) -> dict[str, float]:
    """MB of the topic's files and rows a second, for each way of reading; none without Spark."""
    if not has_spark():
        return {}
    jars = connector_jars("kafka_log is measured alone")
    home = directory / "ours"
    size, rows = make_topic(home, records=records, topic_bytes=topic_bytes)
    with ExitStack() as stack:
        others: dict[str, str] = {}
        if jars:
            try:
                others["kafka"] = stack.enter_context(closing(_kafka_on_a_copy(home, directory / "kafka"))).bootstrap
            except NoKafka as reason:
                sys.stderr.write(f"not compared with Apache Kafka: {reason}\n")
        ours = stack.enter_context(closing(OwnBroker(home)))
        seconds = _read(home / "data", ours.bootstrap, others, rows=rows, jars=jars)
    shutil.rmtree(directory)
    figures = {"mb": size / MEGABYTE, "rows": float(rows)}
    for way, taken in seconds.items():
        figures[f"{way}_mb_s"] = size / MEGABYTE / taken
        figures[f"{way}_rows_s"] = rows / taken
    if "connector" in seconds:
        figures["to_connector_ratio"] = seconds["connector"] / seconds["kafka_log"]
    if "connector_on_kafka" in seconds:
        figures["connector_to_kafka_ratio"] = seconds["connector_on_kafka"] / seconds["connector"]
    return figures


def _kafka_on_a_copy(home: Path, copy: Path) -> ApacheKafka:
    kafka = ApacheKafka(copy, settings={"node.id": "1"}, port=0, libraries=str(libraries()))
    shutil.copytree(home / "data", kafka.data_directory)
    kafka.start()
    return kafka


def _read(data: Path, bootstrap: str, others: dict[str, str], *, rows: int, jars: list[Path]) -> dict[str, float]:
    """The seconds of each way of reading."""
    ways: dict[str, dict[str, str]] = {
        "kafka_log": {"format": "kafka_log", "path": str(data), "kafka.bootstrap.servers": bootstrap}
    }
    if jars:
        ways["connector"] = {**CONNECTOR, "kafka.bootstrap.servers": bootstrap}
        for name, address in others.items():
            ways[f"connector_on_{name}"] = {**CONNECTOR, "kafka.bootstrap.servers": address}
    asked = {"ways": ways, "topic": TOPIC, "rows": rows, "jars": [str(path) for path in jars]}
    return ask("bench.spark_reader", asked)
