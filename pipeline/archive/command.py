"""`ottla pipeline archive`: topics to Parquet; and its subcommands `verify`, `compact` and `files`."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.archive.archive import Archive
from pipeline.archive.compaction import bytes_to_merge, compact, settle
from pipeline.archive.durable import make_directory
from pipeline.archive.locking import as_archiver, changing
from pipeline.archive.manifest import DELTA, TABLE_FORMATS, Manifest
from pipeline.archive.online import commit_archived, hold, known_of
from pipeline.archive.places import PARTITIONINGS, PLAN
from pipeline.archive.planning import read_plan
from pipeline.archive.range_archiving import Receipt, Task, archive_range
from pipeline.archive.run import At, Known, Run, Settings, check_destination, nothing, open_for_archiving
from pipeline.archive.verification import bytes_to_check, findings
from pipeline.broker import Broker, BrokerError
from pipeline.command_line import SKIP_BATCH, add_reading_options, add_source_options, add_spark_options
from pipeline.errors import DAMAGED, DONE, PipelineError
from pipeline.interruption import ended_by_sigterm
from pipeline.progress import Progress
from pipeline.requirements import require_delta, require_spark
from pipeline.session import spark_session
from pipeline.source import Source, split
from pipeline.work import on_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MB: Final = 1 << 20
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,200}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `archive` and of its subcommands."""
    add_source_options(parser, data_dir_required=False)
    group = parser.add_argument_group("the archive")
    group.add_argument("--dest", type=Path, metavar="DIRECTORY", help="where it is; made if it is missing")
    group.add_argument(
        "--name", type=_name, help="its group on the broker is archive.NAME (default: the name of --dest)"
    )
    group.add_argument(
        "--partition-by", type=_partitioning, default=PARTITIONINGS[0], metavar="COLUMNS",
        help="by what rows go into directories: topic,date (the default) or topic",
    )  # fmt: skip
    group.add_argument(
        "--format", choices=TABLE_FORMATS,
        help="delta: a Delta Lake table, too, in _delta below --dest (default: what the archive is, parquet if new)",
    )  # fmt: skip
    group.add_argument(
        "--target-file-mb", type=_positive, default=128, metavar="MB",
        help="how much of a log goes into one file, about (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--accept-gap", action="store_true",
        help="go on where records were deleted before they were archived, and write the gap down",
    )  # fmt: skip
    group.add_argument(
        "--hold", action="store_true",
        help="let retention wait for the archive: sets ottla.archive.group on the topics (needs --bootstrap)",
    )  # fmt: skip
    when = parser.add_argument_group("when").add_mutually_exclusive_group()
    when.add_argument("--once", action="store_true", help="archive what is there and end (the default)")
    when.add_argument("--interval", type=_positive, metavar="SECONDS", help="archive again and again, so far apart")
    add_reading_options(parser)
    add_spark_options(parser)
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(metavar="ACTION", title="what can be done to an archive, instead")
    for name, function, text in (
        ("verify", _run_verify, "check an archive; exit code 1 if it is damaged"),
        ("compact", _run_compact, "merge small files"),
        ("files", _run_files, "list the files with rows that the manifest names"),
    ):
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        action.add_argument("--dest", type=Path, required=True, metavar="DIRECTORY", help="where it is")
        action.add_argument("--json", action="store_true", help="one JSON object a line")
        if name == "compact":
            action.add_argument(
                "--target-file-mb", type=_positive, default=128, metavar="MB",
                help="how large files become, about (default: %(default)s)",
            )  # fmt: skip
        action.set_defaults(run=function)


def run(options: argparse.Namespace) -> int:
    """Archive once, or repeatedly. Returns the exit code; raises PipelineError."""
    return archive(options)


def archive(options: argparse.Namespace, at: At = nothing, spark: SparkSession | None = None) -> int:
    """Run like `run`, reporting each step to a callback, on a given Spark session or a new one."""
    for name in ("dest", "data_dirs"):
        if not getattr(options, name):
            raise PipelineError(f"--{name.replace('_', '-').removesuffix('s')} is missing")
    if options.hold and options.bootstrap is None:
        raise PipelineError("--hold sets a config of the topics, and needs the broker: --bootstrap")
    dest = options.dest.resolve()
    check_destination(dest)
    # Whatever can be known to be missing is, before anything is made.
    require_spark()
    if options.format == DELTA:
        require_delta()
    with Source.open(options.data_dirs, options.bootstrap) as source:
        source.topics(options.topics, options.topic_pattern)
    make_directory(dest)
    with ExitStack() as stack, ended_by_sigterm():
        stack.enter_context(as_archiver(dest))
        archiver = _Archiver(options, dest, stack, at, spark)
        if options.interval is None:
            archiver.cycle()
            return DONE
        while True:
            begun = time.monotonic()
            try:
                archiver.cycle()
            except BrokerError as error:
                # The broker may be back the next time; nothing is lost but time.
                sys.stderr.write(f"{error}; tried again in {options.interval} s\n")
            time.sleep(max(begun + options.interval - time.monotonic(), 0))


class _Archiver:
    """Archives once for each call of `cycle`, with the given options. Spark starts when there is work."""

    def __init__(
        self, options: argparse.Namespace, dest: Path, stack: ExitStack, at: At, spark: SparkSession | None
    ) -> None:
        self._options = options
        self._dest = dest
        self._stack = stack
        self._at = at
        self._spark = spark
        self._broker = None if options.bootstrap is None else Broker(options.bootstrap)

    def cycle(self) -> None:
        options = self._options
        with Source.open(options.data_dirs, options.bootstrap) as source, changing(self._dest):
            topics = source.topics(options.topics, options.topic_pattern)
            settings = Settings(
                dest=self._dest,
                name=options.name or _name(self._dest.name),
                cluster_id=source.cluster_id,
                isolation=options.isolation,
                partition_by=options.partition_by,
                table_format=options.format,
                skip_damaged=options.on_damage == SKIP_BATCH,
                accepts_gaps=options.accept_gap,
            )
            manifest = open_for_archiving(settings, self._at)
            if self._broker is not None and options.hold:
                hold(self._broker, manifest.group, topics)
            before = manifest
            planned = read_plan(self._dest) if (self._dest / PLAN).exists() else None
            known_topics = set(source.topics()) | set(topics)
            needed = {*topics, *(planned.topic_ids if planned is not None else ())} & known_topics
            partitions = source.partitions(needed)
            one = Run(
                settings,
                partitions,
                lambda whole: split(whole, options.target_file_mb * _MB),
                self._work,
                known=self._known(manifest, topics, partitions),
                at=self._at,
            )
            manifest = one.go(manifest, topics)
            if self._broker is not None:
                there = source.partitions(set(manifest.topics) & known_topics)
                commit_archived(self._broker, manifest, {(one.topic, one.topic_id) for one in there})
                self._at("offsets committed")
        self._tell(before, manifest)

    def _known(self, manifest: Manifest, topics: Sequence[str], partitions: Sequence[Any]) -> Known:
        if self._broker is not None:
            return known_of(self._broker, topics, manifest.group)
        counts: dict[str, int] = {}
        for partition in partitions:
            counts[partition.topic] = max(counts.get(partition.topic, 0), partition.partition + 1)
        return Known(partition_counts=counts)

    def _work(self, tasks: Sequence[Task], run: Path, at: At) -> list[Receipt]:
        if self._spark is None:
            self._spark = self._stack.enter_context(spark_session(self._options, "archive"))
        progress = Progress("archived", len(tasks), unit="ranges")
        try:
            return on_workers(self._spark, archive_range, tasks, at, on_done=progress.advance)
        finally:
            progress.close()

    def _tell(self, before: Manifest, after: Manifest) -> None:
        new = set(after.files) - set(before.files)
        if not new and after.plan == before.plan:
            line = f"nothing new; {self._dest} is up to date"
        else:
            line = (
                f"archived {sum(file.rows for file in new):,} records in {len(new):,} files, "
                f"{sum(file.bytes for file in new) / _MB:,.1f} MB, to {self._dest}"
            )
        if self._broker is None:
            line += f"; nothing was committed to the group {after.group}: the next run with --bootstrap does it"
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _run_verify(options: argparse.Namespace) -> int:
    archive = Archive.open(options.dest)
    damages = 0
    progress = Progress("checked", bytes_to_check(archive))
    try:
        for finding in findings(archive, progress.advance):
            damages += finding.is_damage
            _put_out(
                options,
                finding._asdict(),
                f"{'damage' if finding.is_damage else 'note'}: {finding.path}: {finding.text}",
            )
    finally:
        progress.close()
    rows = sum(file.rows for file in archive.manifest.files)
    summary = {"files": len(archive.manifest.files), "rows": rows, "damages": damages}
    _put_out(
        options, summary, f"{summary['files']:,} files with {rows:,} rows: {damages or 'no'} damage{'s'[: damages > 1]}"
    )
    return DAMAGED if damages else DONE


def _run_compact(options: argparse.Namespace) -> int:
    return compact_archive(options)


def compact_archive(options: argparse.Namespace, at: At = nothing) -> int:
    """Run `compact`, reporting each step to a callback."""
    dest = Archive.open(options.dest).dest
    with changing(dest):
        manifest = settle(dest, Archive.open(dest).manifest, at)
        target = options.target_file_mb * _MB
        progress = Progress("merged", bytes_to_merge(manifest, target))
        try:
            _, summary = compact(dest, manifest, target, on_bytes=progress.advance, at=at)
        finally:
            progress.close()
    _put_out(
        options, summary._asdict(),
        f"{summary.files_before:,} files became {summary.files_after:,}, "
        f"{summary.bytes_before / _MB:,.1f} MB {summary.bytes_after / _MB:,.1f} MB",
    )  # fmt: skip
    return DONE


def _run_files(options: argparse.Namespace) -> int:
    archive = Archive.open(options.dest)
    for file in archive.files():
        path = archive.path(file)
        try:
            _put_out(options, {**file._asdict(), "path": str(path)}, str(path))
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of stdout has closed it; the interpreter must not flush once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            break
    return DONE


def _put_out(options: argparse.Namespace, entry: dict[str, Any], line: str) -> None:
    sys.stdout.write(f"{json.dumps(entry) if options.json else line}\n")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected letters, digits, dots, underscores and hyphens")
    return text


def _partitioning(text: str) -> tuple[str, ...]:
    columns = tuple(text.split(","))
    if columns not in PARTITIONINGS:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected topic,date or topic")
    return columns


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a whole number above 0")
    return int(text)
