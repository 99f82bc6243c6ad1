"""`ottla pipeline archive` killed with Spark and all: at every named write step, then at random moments.

After each kill three readers who know of no manifest look at the directory, a fourth one at the Delta table, and the
broker gets new records. What the next command finds is what the kill has left.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from dev.broker_process import BrokerProcess
from dev.repository import REPOSITORY
from pipeline.archive.archive import Archive
from pipeline.archive.manifest import read_manifest
from pipeline.archive.verification import findings
from pipeline.broker import Broker
from pipeline.errors import NOT_DONE
from pipeline.requirements import Missing, require_java, require_libraries
from tests.crash.promises import Promise, require
from tests.pipeline.archive.archives import Seen, seen_by_delta, seen_by_duckdb, seen_by_pyarrow
from tests.support.clients import Record, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC: Final = "orders"
PARTITIONS: Final = 2
RECORDS: Final = 700
"""A round, partition by partition: more than a range of 1 MB holds."""
VALUE_BYTES: Final = 2_000
DAY_MS: Final = 86_400_000

DELTA_STEPS: Final = ("delta files linked", "delta committed", "delta files removed")
RUN_STEPS: Final = (
    "plan written", "attempt begun", "rows written", "rows placed", "batches placed", "receipt left",
    "manifest written", "manifest published", *DELTA_STEPS, "run removed", "plan removed", "offsets committed",
)  # fmt: skip
COMPACTION_STEPS: Final = (
    "directory built", "compaction planned", "manifest written", "manifest published", "directory exchanged",
    *DELTA_STEPS,
)  # fmt: skip
SETTLING_STEPS: Final = ("replaced removed", "compaction forgotten")
"""The next one's first steps."""
_COMPACTION_EVERY: Final = 4


class CannotRun(Exception):
    """Why this machine cannot do it."""


@dataclass
class ArchiveSummary:
    """What was done."""

    kills_at_steps: int = 0
    kills_at_random: int = 0
    ended_before: int = 0
    """Commands that were done before they could be killed."""
    rows: int = 0


class ArchiveKills:
    """A broker, an archive of it, and the commands that are killed."""

    def __init__(self, directory: Path, *, seed: int, report: Callable[[str], None]) -> None:
        """Raises CannotRun."""
        try:
            require_libraries()
            require_java()
            import duckdb  # noqa: F401
        except (Missing, ImportError) as reason:
            raise CannotRun(str(reason)) from reason
        self._directory = directory
        self._dest = directory / "archive"
        self._chance = random.Random(seed)
        self._report = report
        self._produced = 0
        self._in_table: Seen = []
        """What the Delta table has had."""
        self._broker = BrokerProcess(directory)
        self._spark: SparkSession | None = None

    def __enter__(self) -> ArchiveKills:
        self._broker.start()
        connect("confluent-kafka", self._broker.bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.close()
        if self._spark is not None:
            self._spark.stop()

    def go(self, kills: int) -> ArchiveSummary:
        """Every step once, then so many random moments. Raises PromiseBroken."""
        summary = ArchiveSummary()
        for command, steps in ((self._archive, RUN_STEPS), (self._compact, (*COMPACTION_STEPS, *SETTLING_STEPS))):
            for step in steps:
                self._kill_at(command, step, summary)
        began = time.monotonic()
        self._run(self._archive())
        seconds = time.monotonic() - began
        for number in range(kills):
            self._produce()
            command = self._compact if number % _COMPACTION_EVERY == _COMPACTION_EVERY - 1 else self._archive
            moment = self._chance.uniform(0, seconds * 1.1)
            self._kill_after(command(), moment, summary)
            self._look(f"{moment:.2f} s after {command.__name__[1:]} began")
        self._run(self._archive())
        self._run(self._compact())
        rows = self._look("the end")
        for where, seen in ("directory", rows), ("Delta table", self._in_table):
            text = f"{len(seen)} rows in the {where} for {len(self._all())} records"
            require(seen == self._all(), Promise.ARCHIVE, text)
        committed = Broker(self._broker.bootstrap).committed("archive.archive")
        require(set(committed.values()) == {self._produced}, Promise.ARCHIVE, f"committed: {committed}")
        summary.rows = len(rows)
        return summary

    def _archive(self) -> list[str]:
        online = ["--data-dir", str(self._broker.data_directory), "--bootstrap", self._broker.bootstrap]
        # What a killed Spark leaves behind goes with the directory.
        settings = ("spark.driver.memory=1g", f"spark.local.dir={self._directory}")
        spark = ["--master", "local[2]", *(word for one in settings for word in ("--spark-conf", one))]
        return ["--dest", str(self._dest), "--format", "delta", *online, *spark, "--target-file-mb", "1"]

    def _compact(self) -> list[str]:
        return ["compact", "--dest", str(self._dest)]

    def _kill_at(self, command: Callable[[], list[str]], step: str, summary: ArchiveSummary) -> None:
        self._produce()
        if command == self._compact:
            # It needs something to merge, or something that it has replaced.
            self._run(self._archive())
            if step in SETTLING_STEPS:
                self._run(self._compact())
        counter = self._directory / "counter"
        counter.unlink(missing_ok=True)
        process = self._start("tests.pipeline.archive.kill_at", step, "1", str(counter), *command())
        code = process.wait(600)
        require(code == -signal.SIGKILL, Promise.ARCHIVE, f"exit code {code}: it did not come to '{step}'")
        summary.kills_at_steps += 1
        self._look(f"'{step}' of {command.__name__[1:]}")

    def _kill_after(self, words: list[str], seconds: float, summary: ArchiveSummary) -> None:
        process = self._start("pipeline", "archive", *words)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            # Workers are not in this group: they go on until they notice.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            summary.kills_at_random += 1
            return
        # Compaction does nothing while a run has not ended, and says so.
        may_refuse = words[0] == "compact" and code == NOT_DONE
        require(code == 0 or may_refuse, Promise.ARCHIVE, f"exit code {code} of {words}\n{self._log()}")
        summary.ended_before += 1

    def _run(self, words: list[str]) -> None:
        code = self._start("pipeline", "archive", *words).wait(600)
        require(code == 0, Promise.ARCHIVE, f"exit code {code} of {words}\n{self._log()}")

    def _start(self, module: str, *words: str) -> subprocess.Popen[bytes]:
        with (self._directory / "commands.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *words], cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True, env={**os.environ, "TMPDIR": str(self._directory)},
            )  # fmt: skip

    def _log(self) -> str:
        return "\n".join((self._directory / "commands.log").read_text(errors="replace").splitlines()[-20:])

    def _produce(self) -> None:
        client = connect("confluent-kafka", self._broker.bootstrap)
        now = int(time.time() * 1000)
        for partition in range(PARTITIONS):
            records = [
                Record(
                    value=self._chance.randbytes(VALUE_BYTES), partition=partition,
                    timestamp_ms=now - DAY_MS * self._chance.randint(0, 1),
                )
                for _ in range(RECORDS)
            ]  # fmt: skip
            client.produce(TOPIC, records)
        self._produced += RECORDS

    def _all(self) -> Seen:
        return [(TOPIC, partition, offset) for partition in range(PARTITIONS) for offset in range(self._produced)]

    def _look(self, after: str) -> Seen:
        """What the three readers find, who must agree."""
        found = self._seen(after)
        require(len(found) == len(set(found)), Promise.ARCHIVE, f"rows are there twice after {after}")
        require(set(found) <= set(self._all()), Promise.ARCHIVE, f"rows that nobody has produced after {after}")
        manifest = read_manifest(self._dest)
        if manifest is not None:
            counted = sum(file.rows for file in manifest.files)
            published = {
                (TOPIC, number, offset)
                for topic in manifest.topics.values()
                for number, partition in topic.partitions.items()
                for offset in range(partition.from_offset, partition.until_offset)
            }
            require(published <= set(found), Promise.ARCHIVE, f"archived rows are not to be seen after {after}")
            require(counted == len(published), Promise.ARCHIVE, f"the manifest counts {counted} rows after {after}")
            table = seen_by_delta(self._dest)
            require(len(table) == len(set(table)), Promise.ARCHIVE, f"the Delta table has rows twice after {after}")
            require(
                set(self._in_table) <= set(table) <= published, Promise.ARCHIVE,
                f"the Delta table has {len(table)} rows, had {len(self._in_table)} of {len(published)} after {after}",
            )  # fmt: skip
            self._in_table = table
            damages = [one for one in findings(Archive.open(self._dest), lambda size: None) if one.is_damage]
            require(not damages, Promise.ARCHIVE, f"after {after}: {damages}")
        self._report(f"archive: {after}: {len(found):,} rows of {len(self._all()):,}, once for three readers")
        return found

    def _seen(self, after: str) -> Seen:
        while True:
            found = seen_by_pyarrow(self._dest)
            others = {"DuckDB": seen_by_duckdb(self._dest), "Spark": self._seen_by_spark()}
            # A worker that has outlived its driver may put its file in place between two of them.
            if seen_by_pyarrow(self._dest) == found:
                break
        for name, seen in others.items():
            require(seen == found, Promise.ARCHIVE, f"pyarrow and {name} differ after {after}")
        return found

    def _seen_by_spark(self) -> Seen:
        if not any(self._dest.glob("topic=*/date=*/*.parquet")):
            return []
        rows: list[Any] = self._session.read.parquet(str(self._dest)).select("topic", "partition", "offset").collect()
        return sorted((row.topic, row.partition, row.offset) for row in rows)

    @property
    def _session(self) -> SparkSession:
        if self._spark is None:
            from pyspark.sql import SparkSession

            builder: Any = SparkSession.builder
            for key, value in (
                ("spark.ui.enabled", "false"), ("spark.driver.memory", "1g"), ("spark.log.level", "OFF"),
                ("spark.driver.host", "127.0.0.1"), ("spark.driver.bindAddress", "127.0.0.1"),
            ):  # fmt: skip
                builder = builder.config(key, value)
            self._spark = builder.master("local[2]").appName("tests/crash").getOrCreate()
        assert self._spark is not None
        return self._spark
