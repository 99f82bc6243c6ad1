"""Writes a topic to Parquet by `archive` and by a plain Spark job, in turns: `python -m bench.spark_archiver`.

stdin: {"bootstrap": …, "data": …, "dest": …, "topic": …, "rows": …, "jars": […]}
stdout, last line: {"start_s": seconds until Spark has started, "archive_s": …, "archive_bytes": …, "spark_job_s": …,
…}; without jars only `archive`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from bench.spark_topic import CONNECTOR, session
from pipeline.archive.command import add_options, archive
from pipeline.schema import COLUMNS

ROUNDS: Final = 3
"""Counted rounds; before them each way runs once, uncounted, so that code is compiled and data cached."""


def main() -> None:
    asked = json.load(sys.stdin)
    started = time.perf_counter()
    spark = session(asked["jars"])
    start_s = time.perf_counter() - started
    ways: dict[str, Callable[[Path], object]] = {"archive": partial(_archive, spark, asked)}
    if asked["jars"]:
        ways["spark_job"] = partial(_spark_job, spark, asked)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    written: dict[str, float] = {}
    try:
        for number in range(ROUNDS + 1):
            # Every second round runs backwards: what one way leaves behind does not always meet the same other one.
            for name in list(ways) if number % 2 else reversed(ways):
                dest = Path(asked["dest"]) / f"{name}-{number}"
                started = time.perf_counter()
                ways[name](dest)
                if number:
                    taken[name].append(time.perf_counter() - started)
                written[name] = _checked(name, dest, asked["rows"])
                shutil.rmtree(dest)
    finally:
        spark.stop()
    found = {"start_s": start_s}
    for name, seconds in taken.items():
        found |= {f"{name}_s": statistics.median(seconds), f"{name}_bytes": written[name]}
    sys.stdout.write(json.dumps(found) + "\n")


def _archive(spark: Any, asked: dict[str, Any], dest: Path) -> None:
    """Run `ottla pipeline archive` in the Spark that is running."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    words = ["--data-dir", asked["data"], "--bootstrap", asked["bootstrap"], "--topics", asked["topic"]]
    archive(parser.parse_args([*words, "--dest", str(dest)]), spark=spark)


def _spark_job(spark: Any, asked: dict[str, Any], dest: Path) -> None:
    """Write the same columns with the same codec, but no directories by topic and date: Spark would sort all rows for
    them."""
    options = {**CONNECTOR, "kafka.bootstrap.servers": asked["bootstrap"], "includeHeaders": "true"}
    frame = spark.read.format(options.pop("format")).options(**options).option("subscribe", asked["topic"]).load()
    frame.select(*COLUMNS).write.option("compression", "zstd").parquet(str(dest))


def _checked(name: str, dest: Path, rows: int) -> int:
    """The bytes of the files with rows. Checks that they have all rows."""
    files = list(dest.rglob("part-*.parquet"))
    found = sum(pq.read_metadata(path).num_rows for path in files)
    if found != rows:
        raise RuntimeError(f"{name} has written {found} rows, expected {rows}")
    return sum(path.stat().st_size for path in files)


if __name__ == "__main__":
    main()
