"""`ottla pipeline audit`: whether topics are whole."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pipeline.audit.check import Checked, check_parts
from pipeline.audit.page import audit_page
from pipeline.audit.plan import Plan, Surveyed, plan, survey_all, tasks_of
from pipeline.audit.report import Audit, put_together
from pipeline.broker import Broker
from pipeline.command_line import add_source_options, add_spark_options
from pipeline.errors import DAMAGED, DONE, PipelineError
from pipeline.progress import Progress
from pipeline.reports.files import check_places, write_reports
from pipeline.session import spark_session
from pipeline.topic_names import chosen_topics
from pipeline.work import on_workers
from storage.errors import DirectoryLocked, StorageError
from storage.files import File, FileSystem
from storage.loading import PRODUCER_ID_EXPIRATION_MS
from storage.log_dir import lock_for_reading
from storage.topic_partition import TopicPartition


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `audit`."""
    add_source_options(parser, default_topics="everything in the directories, internal topics as well")
    parser.add_argument(
        "--deep", action="store_true", help="open the records of each batch, too: ten times the work, and more"
    )
    parser.add_argument(
        "--report", dest="reports", action="append", default=[], metavar="PATH",
        help="write a report to PATH, which ends with .html or .json; once for each",
    )  # fmt: skip
    parser.add_argument(
        "--producer-id-expiration-ms", metavar="MS", type=int, default=PRODUCER_ID_EXPIRATION_MS,
        help="what the broker's producer.id.expiration.ms is (default: %(default)s)",
    )  # fmt: skip
    add_spark_options(parser)


def run(options: argparse.Namespace) -> int:
    """Audit. Returns the exit code: 0 no damage, 1 damage."""
    check_places(options.reports)
    files = FileSystem()
    paths = list(dict.fromkeys(path.rstrip("/") or "/" for path in options.data_dirs))
    try:
        audit = _audited(files, paths, options)
    except FileNotFoundError as error:
        raise PipelineError(f"there is no {error.filename}") from error
    except StorageError as error:
        raise PipelineError(str(error)) from error
    for finding in audit.findings:
        print(finding)
    print(audit.summary)
    sys.stdout.flush()
    write_reports(options.reports, audit.to_json, lambda: audit_page(audit))
    return DONE if audit.is_whole else DAMAGED


def _audited(files: FileSystem, paths: Sequence[str], options: argparse.Namespace) -> Audit:
    for path in paths:
        if not files.is_directory(path):
            raise PipelineError(f"{path} is no directory")
    if options.bootstrap is not None:
        broker = Broker(options.bootstrap)
        surveyed = survey_all(files, paths)
        _check_is_its(broker, surveyed)
        return _check(files, surveyed, options, broker)
    # While these locks are held, no broker starts in the directories.
    locks = _lock(files, paths)
    audit = _check(files, survey_all(files, paths), options, None)
    del locks
    # Where there was no lock file, nothing kept a broker away.
    _lock(files, paths)
    return audit


def _lock(files: FileSystem, paths: Sequence[str]) -> list[File | None]:
    try:
        return [lock_for_reading(files, path) for path in paths]
    except DirectoryLocked as error:
        raise PipelineError(f"{error}; --bootstrap says where that broker is") from error


def _check_is_its(broker: Broker, surveyed: Surveyed) -> None:
    """Raise PipelineError unless the broker is of the directories' cluster: its high watermarks mean nothing for
    others."""
    cluster_id = broker.cluster_id()
    for directory in surveyed.directories:
        if directory.properties is not None and directory.properties.cluster_id != cluster_id:
            raise PipelineError(
                f"{directory.path} is of cluster {directory.properties.cluster_id}, and the broker at "
                f"{broker.bootstrap} of {cluster_id}"
            )


def _check(files: FileSystem, surveyed: Surveyed, options: argparse.Namespace, broker: Broker | None) -> Audit:
    topics = None
    if options.topics or options.topic_pattern is not None:
        topics = chosen_topics(surveyed.topics, options.topics, options.topic_pattern, options.data_dirs)
        if not topics:
            raise PipelineError(f"no topic has a name that matches {options.topic_pattern!r}")
    ends = None if broker is None else lambda places: live_ends(broker, places)
    planned = plan(files, surveyed, topics, live_ends=ends, expiration_ms=options.producer_id_expiration_ms)
    if not planned.parts and all(directory.properties is None for directory in planned.directories):
        raise PipelineError(f"there is no log to audit in {', '.join(options.data_dirs)}")
    results, seconds = _run_tasks(planned, options) if planned.parts else ([], 0.0)
    return put_together(
        planned,
        results,
        is_deep=options.deep,
        bootstrap=options.bootstrap,
        topics=topics,
        finished_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
        seconds=seconds,
    )


def live_ends(broker: Broker, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """The high watermarks of those of these partitions that a running broker has."""
    # A topic may have been deleted since its directory was listed.
    known = broker.topics()
    there = [place for place in places if place.topic in known and place.partition in known[place.topic].partitions]
    return {place: bounds.high_watermark for place, bounds in broker.bounds(there).items()}


def _run_tasks(planned: Plan, options: argparse.Namespace) -> tuple[list[Checked], float]:
    """Run the audit's tasks. Returns their results, and the seconds that they took without the start of Spark."""
    tasks = tasks_of(planned.parts)
    with spark_session(options, "audit") as spark:
        progress = Progress("audit", len(tasks), unit="parts")
        begun = time.monotonic()
        try:
            results = on_workers(spark, check_parts, tasks, options.deep, on_done=progress.advance)
        finally:
            progress.close()
        seconds = time.monotonic() - begun
    return [checked for together in results for checked in together], seconds
