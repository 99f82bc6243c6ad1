"""`ottla pipeline restore`: its options and its output."""

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import Final

from config.errors import InvalidConfig
from config.log_config import LogConfig, validate_topic_overrides
from pipeline.archive.archive import Archive
from pipeline.archive.run import At, nothing
from pipeline.broker import Broker
from pipeline.command_line import add_spark_options
from pipeline.errors import DONE, PipelineError
from pipeline.reading.segment_files import raised_as_pipeline_errors
from pipeline.restore.archived import Archived
from pipeline.restore.journal import Journal
from pipeline.restore.offset_map import JSON, PARQUET
from pipeline.restore.plan import Place, Plan, Wishes, make_plan, name_pair
from pipeline.restore.producing import Produced, restore_by_producing
from pipeline.restore.segments import restore_segments
from pipeline.session import check_workers, workers

SEGMENTS: Final = "segments"
PRODUCE: Final = "produce"

_EPILOG: Final = """\
--mode segments works offline: no broker may be running in DIR. Offsets, time stamps, headers, batches, leader epochs,
aborted transactions and their markers come back as they were, whatever isolation the archive was made with. It starts
a broker of its own on DIR for the topics and the groups' offsets. --mode produce brings the committed records, in
their order and partition, under new offsets, which --offset-map writes down.

A restore that was interrupted goes on when it is asked for once more in the same words. Records older than a topic's
retention are deleted again by the next broker: --config retention.ms=-1 keeps them.

Without --master one process does it all, and needs no Java. With it, Spark's workers make the segments, some of a
partition each, or produce, a partition each; they must see the archive and DIR under the same paths.

exit code: 0 done; 1 the archive is damaged or lacks records; 2 it could not be done."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `restore`."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--archive", required=True, metavar="DIR", help="what `archive` had as --dest")
    parser.add_argument(
        "--mode", choices=(SEGMENTS, PRODUCE), default=SEGMENTS,
        help="put segments into a data directory, or produce to a Kafka (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--target-dir", metavar="DIR", help="for segments: a node's data directory, or a new one")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="for produce: the Kafka")
    parser.add_argument(
        "--offset-map", type=Path, metavar="FILE", help=f"for produce: which offset became which ({PARQUET} or {JSON})"
    )
    group = parser.add_argument_group("what comes back")
    group.add_argument("--topics", type=_names, default=[], metavar="NAME[,NAME...]", help="default: all")
    group.add_argument(
        "--topic-map",
        type=name_pair,
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="a new name; once for each topic",
    )
    place = "an offset, or a time such as 2026-11-20T08:00:00Z (UTC unless it names a zone)"
    group.add_argument("--from", dest="begin", type=_place, metavar="PLACE", help=f"the first record: {place}")
    group.add_argument("--to", dest="end", type=_place, metavar="PLACE", help="where to stop, likewise; not included")
    group.add_argument(
        "--config", type=name_pair, action="append", default=[], metavar="KEY=VALUE", help="a config for the topics"
    )
    group.add_argument("--accept-gap", action="store_true", help="also where the archive lacks records")
    groups = group.add_mutually_exclusive_group()
    groups.add_argument("--groups", type=_names, metavar="NAME[,NAME...]", help="whose offsets (default: all groups)")
    groups.add_argument("--no-groups", action="store_true", help="no group offsets")
    add_spark_options(parser, is_needed=False)


def run(options: argparse.Namespace) -> int:
    """Restore. Returns the exit code. Raises PipelineError."""
    return restore(options)


def restore(options: argparse.Namespace, at: At = nothing) -> int:
    """Run like `run`, reporting each step to a callback."""
    _check(options)
    with raised_as_pipeline_errors():
        archive = Archived(Archive.open(options.archive))
        wishes = Wishes(
            topics=options.topics,
            names=dict(options.topic_map),
            begin=options.begin,
            end=options.end,
            configs=dict(options.config),
            groups=() if options.no_groups else options.groups,
            accepts_gaps=options.accept_gap,
        )

        def plan() -> Plan:
            made = make_plan(archive.manifest, wishes, archive.first_offset_at)
            for topic in made.topics:
                try:
                    validate_topic_overrides(topic.configs)
                except InvalidConfig as error:
                    raise PipelineError(f"topic {topic.name}: {error}") from error
            return made

        if options.mode == SEGMENTS:
            directory = str(Path(options.target_dir).absolute())
            journal = restore_segments(
                archive, directory, wishes=_asked(options), make_plan=plan,
                workers=lambda: workers(options, "restore"), at=at,
            )  # fmt: skip
            _say_segments(options, journal)
        else:
            broker = Broker(options.bootstrap)
            produced = restore_by_producing(
                archive, broker, options.offset_map, wishes=_asked(options), make_plan=plan,
                workers=lambda: workers(options, "restore"), at=at,
            )  # fmt: skip
            _say_produced(options, produced)
    return DONE


def _check(options: argparse.Namespace) -> None:
    check_workers(options)
    of_modes = {SEGMENTS: ["target_dir"], PRODUCE: ["bootstrap", "offset_map"]}
    needed = of_modes.pop(options.mode)
    (others,) = of_modes.values()
    for name in needed:
        if getattr(options, name) is None:
            raise PipelineError(f"--mode {options.mode} needs --{name.replace('_', '-')}")
    for name in others:
        if getattr(options, name) is not None:
            raise PipelineError(f"--mode {options.mode} has no use for --{name.replace('_', '-')}")
    if options.mode == PRODUCE and options.offset_map.suffix not in (PARQUET, JSON):
        raise PipelineError(f"--offset-map is {options.offset_map}; expected a name that ends with {PARQUET} or {JSON}")


def _asked(options: argparse.Namespace) -> str:
    """The options of this restore as words of a command line that asks for the same restore."""
    words = ["--archive", str(Path(options.archive).absolute())]
    words += ["--topics", ",".join(options.topics)] if options.topics else []
    for name in ("topic_map", "config"):
        for pair in getattr(options, name):
            words += [f"--{name.replace('_', '-')}", "=".join(pair)]
    words += ["--from", str(options.begin)] if options.begin is not None else []
    words += ["--to", str(options.end)] if options.end is not None else []
    words += ["--accept-gap"] if options.accept_gap else []
    words += ["--no-groups"] if options.no_groups else []
    words += ["--groups", ",".join(options.groups)] if options.groups is not None else []
    return shlex.join(words)


def _say_segments(options: argparse.Namespace, journal: Journal) -> None:
    plan, staged = journal.plan, journal.staged
    size = sum(one.bytes for one in staged.values())
    _say(
        f"restored {len(plan.topics)} topics, {len(staged)} partitions, {size} bytes into {options.target_dir}; "
        f"committed {len(plan.committed)} offsets of {len({one.group for one in plan.committed})} groups"
    )
    planned = {
        (topic.name, partition.number): partition.until_offset
        for topic in plan.topics
        for partition in topic.partitions
    }
    for place, one in staged.items():
        if one.end_offset < planned[place]:
            _say(
                f"{place} ends at offset {one.end_offset} and not at {planned[place]}: there a transaction begins "
                "whose end does not come back"
            )
    now_ms = time.time_ns() // 1_000_000
    for topic in plan.topics:
        config = LogConfig().with_overrides(topic.configs)
        times = [one.largest_timestamp for place, one in staged.items() if place.topic == topic.name and one.bytes]
        if config.deletes and config.retention_ms >= 0 and times and min(times) < now_ms - config.retention_ms:
            _say(
                f"{topic.name} has records older than its retention.ms, {config.retention_ms}: the next broker deletes "
                "them, unless the topic or that broker is set otherwise (--config retention.ms=-1)"
            )


def _say_produced(options: argparse.Namespace, produced: Produced) -> None:
    plan = produced.plan
    _say(
        f"produced {produced.records} records of {len(plan.topics)} topics to {options.bootstrap}; committed "
        f"{len(plan.committed)} offsets of {len({one.group for one in plan.committed})} groups; the offsets are in "
        f"{options.offset_map}"
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _names(text: str) -> list[str]:
    if "" in (names := [name.strip() for name in text.split(",")]):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected names with commas between them")
    return names


def _place(text: str) -> Place:
    try:
        return Place.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected an offset or a time in ISO 8601") from None
