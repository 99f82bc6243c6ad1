"""`python -m dev.spark_start`: prints the options with which tests start Spark, for SPARK_SUBMIT_OPTS.

Its classes come from an archive (`dev.class_archive`). The JVM's second compiler, which pays only under a long load, is
left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dev.class_archive import with_archive
from pipeline.requirements import Missing, require_java

ONE_COMPILER: Final = "-XX:TieredStopAtLevel=1"
PATIENCE_S: Final = 300.0
A_JOB: Final = """
import sys
from pyspark import SparkContext
from pyspark.sql import SparkSession

settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
builder = SparkSession.builder.master("local[2]")
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.config("spark.local.dir", sys.argv[1]).config("spark.sql.warehouse.dir", sys.argv[1]).getOrCreate()
rows = spark.range(1000).selectExpr("id % 7 AS key", "CAST(id AS STRING) AS value")
spark.createDataFrame(rows.rdd.map(tuple), rows.schema).write.parquet(f"{sys.argv[1]}/rows")
spark.read.parquet(f"{sys.argv[1]}/rows").groupBy("key").count().orderBy("key").collect()
spark.stop()
jvm = SparkContext._gateway.proc
jvm.stdin.close()
jvm.wait()
"""
"""What the pipeline does with Spark, in small: it loads nearly all classes that the tests need. It waits for the end of
the JVM, which writes the archive then."""


def options() -> list[str]:
    """The options of Spark's JVM, after those that SPARK_SUBMIT_OPTS has already; only these where Spark or Java is
    missing."""
    given = os.environ.get("SPARK_SUBMIT_OPTS", "").split()
    try:
        require_java()
    except Missing:
        return given
    if (spark := find_spec("pyspark")) is None or spark.origin is None:
        return given
    jars = Path(spark.origin).parent / "jars"
    return [*given, ONE_COMPILER, *with_archive("spark", str(jars), _archive_classes)]


def _archive_classes(jars: str, options: Sequence[str]) -> None:
    environment = {
        **os.environ,
        "SPARK_SUBMIT_OPTS": " ".join([ONE_COMPILER, *options]),
        "PYSPARK_PYTHON": sys.executable,
    }
    sys.stderr.write(f"Archiving the classes of {jars}, half a minute once ...\n")
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-c", A_JOB, place]
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    if done.returncode:
        sys.stderr.write(f"The archive of Spark's classes lacks some, since a job failed: {done.stderr[-2000:]}\n")


if __name__ == "__main__":
    sys.stdout.write(" ".join(options()) + "\n")
