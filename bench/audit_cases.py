"""Case: the audit of a data directory, of headers and CRCs only, with records, and spread over Spark's tasks."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from bench.limits import MEGABYTE
from config.log_config import LogConfig
from pipeline.audit.check import check_parts
from pipeline.audit.plan import LogPart, plan, survey_all, tasks_of
from pipeline.requirements import Missing, require_java, require_libraries
from storage.batch.checksum import crc32c
from storage.batch.records import Record, encode_batch
from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    MetaProperties,
    write_clean_shutdown,
    write_meta_properties,
    write_offset_checkpoint,
)
from storage.files import FileSystem
from storage.loading import open_log
from storage.topic_partition import TopicPartition

TOPIC = "audited"
LOGS = 4
VALUE_BYTES = 200
SEGMENT_BYTES = 64 << 20


def one_record(directory: Path, scale: float) -> dict[str, float]:
    """Audit batches of one record."""
    return _audit(directory, records=1, log_bytes=int(32 * MEGABYTE * scale))


def hundred_records(directory: Path, scale: float) -> dict[str, float]:
    """Audit batches of a hundred records."""
    return _audit(directory, records=100, log_bytes=int(128 * MEGABYTE * scale))


def many_records(directory: Path, scale: float) -> dict[str, float]:
    """Audit batches of 8,000 records."""
    return _audit(directory, records=8_000, log_bytes=int(128 * MEGABYTE * scale))


def _audit(directory: Path, *, records: int, log_bytes: int) -> dict[str, float]:
    """MB and rows a second: of one process with and without records, of all processors by Spark, and of reading and CRC
    alone."""
    data = directory / "data"
    size, rows = _make_whole(data, records=records, log_bytes=log_bytes)
    files = FileSystem()
    parts = plan(files, survey_all(files, [str(data)]), None, part_bytes=SEGMENT_BYTES).parts

    def check(with_records: bool) -> None:
        assert not any(checked.counts["damage"] for checked in check_parts(parts, with_records)), (
            "the directory is whole"
        )

    seconds = {
        "crc": _seconds(lambda: _read_all(data)),
        "process": _seconds(lambda: check(False)),
        "deep": _seconds(lambda: check(True)),
    }
    # What needs Spark is measured where there is one.
    with contextlib.suppress(Missing):
        seconds["spark"] = _seconds_of_spark(tasks_of(parts))
    figures = {"mb": size / MEGABYTE, "rows": float(rows)}
    for way, taken in seconds.items():
        figures[f"{way}_mb_s"] = size / MEGABYTE / taken
        figures[f"{way}_rows_s"] = rows / taken
    shutil.rmtree(directory)
    return figures


def _seconds_of_spark(tasks: list[list[LogPart]]) -> float:
    require_libraries()
    require_java()
    from pipeline.session import spark_session
    from pipeline.work import on_workers

    with spark_session(argparse.Namespace(master="local[*]", spark_conf=[]), "bench") as spark:
        # The first tasks wait for their Python processes.
        on_workers(spark, check_parts, tasks, False)
        return _seconds(lambda: on_workers(spark, check_parts, tasks, False))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _read_all(data: Path) -> None:
    """Read all files and compute the CRCs: the least work that an audit can do."""
    for path in data.glob("*/*.log"):
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(1 << 18):
                crc32c(chunk)


def _make_whole(data: Path, *, records: int, log_bytes: int) -> tuple[int, int]:
    """Make a data directory as a broker leaves it after a clean stop, with batches of an idempotent producer. Returns
    bytes and rows of its logs."""
    files, now_ms = FileSystem(), int(time.time() * 1000)
    files.make_directory(str(data))
    content = [Record(timestamp=now_ms, key=b"key %d" % n, value=os.urandom(VALUE_BYTES)) for n in range(records)]
    batch = encode_batch(content, producer_id=1, producer_epoch=0, base_sequence=0)
    ends: dict[TopicPartition, int] = {}
    for number in range(LOGS):
        place = TopicPartition(TOPIC, number)
        log = open_log(
            files, str(data / place.dir_name), topic_partition=place, config=LogConfig(segment_bytes=SEGMENT_BYTES),
            now_ms=now_ms,
        )  # fmt: skip
        log.assign_epoch_start(0)
        for _ in range(max(log_bytes // len(batch), 1)):
            log.stage_trusted(bytearray(batch), leader_epoch=0)
            log.append_all(now_ms)
        log.advance_high_watermark(log.log_end_offset)
        ends[place] = log.log_end_offset
        log.close(now_ms)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        write_offset_checkpoint(files, str(data / name), ends)
    properties = MetaProperties(cluster_id="benchbenchbenchbenchbe", node_id=1, directory_id=os.urandom(16))
    write_meta_properties(files, str(data / META_PROPERTIES), properties, "today")
    write_clean_shutdown(files, str(data / CLEAN_SHUTDOWN), -1)
    return sum(path.stat().st_size for path in data.glob("*/*.log")), sum(ends.values())
