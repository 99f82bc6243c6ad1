"""Cases: writing topics to Parquet by `ottla pipeline archive`, and by a Spark job that reads with Spark's
connector."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from bench.limits import MEGABYTE
from bench.processes import OwnBroker
from bench.spark_topic import TOPIC, ask, connector_jars, has_spark, make_topic


def one_record(directory: Path, scale: float) -> dict[str, float]:
    """Archive batches of one record."""
    return _archiving(directory, records=1, topic_bytes=int(64 * MEGABYTE * scale))


def hundred_records(directory: Path, scale: float) -> dict[str, float]:
    """Archive batches of 100 records."""
    return _archiving(directory, records=100, topic_bytes=int(512 * MEGABYTE * scale))


def eight_thousand_records(directory: Path, scale: float) -> dict[str, float]:
    """Archive batches of 8,000 records, 1.7 MB."""
    return _archiving(directory, records=8_000, topic_bytes=int(512 * MEGABYTE * scale))


def _archiving(directory: Path, *, records: int, topic_bytes: int) -> dict[str, float]:
    """MB of the topic's files and rows a second, for both ways of archiving; MB of the written files; and the start
    time of Spark, which is not part of either. None without Spark."""
    if not has_spark():
        return {}
    jars = connector_jars("archive is measured alone")
    home = directory / "ours"
    size, rows = make_topic(home, records=records, topic_bytes=topic_bytes)
    with closing(OwnBroker(home)) as broker:
        asked = {
            "bootstrap": broker.bootstrap,
            "data": str(home / "data"),
            "dest": str(directory / "written"),
            "topic": TOPIC,
            "rows": rows,
            "jars": [str(path) for path in jars],
        }
        found = ask("bench.spark_archiver", asked)
    shutil.rmtree(directory)
    figures = {"mb": size / MEGABYTE, "rows": float(rows), "spark_start_s": found["start_s"]}
    for way in ("archive", "spark_job"):
        if f"{way}_s" in found:
            figures[f"{way}_mb_s"] = size / MEGABYTE / found[f"{way}_s"]
            figures[f"{way}_rows_s"] = rows / found[f"{way}_s"]
            figures[f"{way}_written_mb"] = found[f"{way}_bytes"] / MEGABYTE
    if "spark_job_s" in found:
        figures["to_spark_job_ratio"] = found["spark_job_s"] / found["archive_s"]
    return figures
