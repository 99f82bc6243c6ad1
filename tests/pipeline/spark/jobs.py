"""Streaming jobs as a user runs them: a process of its own, killed in the middle, started again.

    python tests/pipeline/spark/jobs.py FORMAT TRIGGER OUTPUT [OPTION=VALUE ...]

writes what it reads as Parquet into OUTPUT/rows, with the checkpoint in OUTPUT/checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
PATIENCE_S = 120.0


def main(source: str, trigger: str, output: str, *options: str) -> None:
    """The job itself."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    for key, value in _settings().items():
        builder = builder.config(key, value)
    spark = builder.master("local[2]").getOrCreate()
    reader = spark.readStream.format(source).options(**dict(option.split("=", 1) for option in options))
    writer = reader.load().writeStream.format("parquet").option("checkpointLocation", f"{output}/checkpoint")
    triggers: dict[str, Any] = {"availableNow": True} if trigger == "availableNow" else {"processingTime": "0 seconds"}
    query = writer.trigger(**triggers).start(f"{output}/rows")
    query.awaitTermination()


def _settings() -> Mapping[str, str]:
    from dev import spark_connector
    from tests.pipeline.conftest import SPARK_SETTINGS

    return {**SPARK_SETTINGS, "spark.jars": ",".join(map(str, spark_connector.jars()))}


class Job:
    """A job that runs, from the outside."""

    def __init__(self, output: Path, source: str, trigger: str, options: Mapping[str, Any]) -> None:
        self.output = output
        output.mkdir(parents=True, exist_ok=True)
        words = [f"{name}={value}" for name, value in options.items()]
        with (output / "job.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.spark.jobs", source, trigger, str(output), *words],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def committed(self) -> int:
        """How many micro-batches are done for good."""
        return sum(path.name.isdigit() for path in (self.output / "checkpoint/commits").glob("*"))

    def await_batches(self, more_than: int) -> None:
        """Wait until more micro-batches than these are done."""
        deadline = time.monotonic() + PATIENCE_S
        while self.committed <= more_than:
            assert self._process.poll() is None, f"the job has ended\n{self.log_text()}"
            assert time.monotonic() < deadline, f"not more than {more_than} micro-batches\n{self.log_text()}"
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL for its driver and everything below it, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def log_text(self) -> str:
        return "\n".join((self.output / "job.log").read_text(errors="replace").splitlines()[-40:])


if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))
    main(*sys.argv[1:])
