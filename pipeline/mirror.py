"""`ottla pipeline mirror`: topics copied to another Kafka as they grow, at least once.

Ranges are read from the segment files as everywhere in the pipeline, and produced. When the other Kafka has
acknowledged a range, the range's end is written into the checkpoint. A mirror that is killed in between sends the range
again. Ranges of different partitions may be copied at the same time, the ranges of one partition one after another.
Only the process of the command writes the checkpoint.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipeline.broker import Broker, BrokerError
from pipeline.command_line import (
    READ_COMMITTED,
    SKIP_BATCH,
    add_reading_options,
    add_source_options,
    add_spark_options,
)
from pipeline.errors import DONE, Damage, PipelineError
from pipeline.interruption import ended_by_sigterm
from pipeline.progress import Progress
from pipeline.reading.ranges import OffsetRange, Wanted
from pipeline.reading.reader import read_range
from pipeline.reports.files import check_places
from pipeline.restore.plan import name_pair
from pipeline.restore.producing import OURS, TIMESTAMP_TYPE
from pipeline.schema import COLUMNS
from pipeline.sending import Sender
from pipeline.session import check_workers, workers
from pipeline.source import PartitionSource, Source, split
from pipeline.work import Workers

_FORMAT: Final = 1
_STRETCH_BYTES: Final = 16 << 20
"""About how many bytes of a partition's log are sent again, at most, after a mirror was killed."""
_AT_ONCE: Final = 10_000
"""How many rows are made Python objects at a time."""

_EPILOG: Final = """\
At least once: a mirror that is killed sends again what the other Kafka had not acknowledged, or not yet when it was
written down, up to some 16 MB of a partition's log. Nothing is left out. Partitions, time stamps, headers, keys and
values stay as they are, and so does the order in a partition, but for what is sent again; offsets do not. Topics that
the other Kafka lacks are made there, with as many partitions and, so that the times stay, CreateTime.

Without --master one process does it all, and needs no Java. With it, Spark's workers copy, as many partitions at a time
as there are workers; they must see the data directories under the same paths.

exit code: 0 done; 1 a log is damaged; 2 it could not be done."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mirror`."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_source_options(parser)
    group = parser.add_argument_group("the other Kafka")
    group.add_argument("--to", required=True, metavar="HOST:PORT", help="where records are produced to")
    group.add_argument(
        "--topic-map", type=name_pair, action="append", default=[], metavar="OLD=NEW",
        help="what a topic is called there; once for each topic",
    )  # fmt: skip
    group.add_argument(
        "--checkpoint", type=Path, required=True, metavar="FILE",
        help="how far it has come; a new file begins with the oldest records",
    )  # fmt: skip
    group.add_argument(
        "--accept-gap", action="store_true", help="go on where records were deleted before they were copied"
    )
    when = parser.add_argument_group("when").add_mutually_exclusive_group()
    when.add_argument("--once", action="store_true", help="copy what is there and end (the default)")
    when.add_argument("--interval", type=float, metavar="SECONDS", help="copy again and again, so far apart")
    add_reading_options(parser)
    add_spark_options(parser, is_needed=False)


def run(options: argparse.Namespace) -> int:
    """Copy once, or repeatedly. Returns the exit code; raises PipelineError."""
    if options.interval is not None and options.interval <= 0:
        raise PipelineError(f"--interval is {options.interval}; expected more than 0 seconds")
    check_workers(options)
    with ended_by_sigterm(), workers(options, "mirror") as do:
        while True:
            begun = time.monotonic()
            try:
                with Source.open(options.data_dirs, options.bootstrap) as source:
                    copied = _Mirror(options, source, do).copy()
            except BrokerError as error:
                if options.interval is None:
                    raise
                # It may be back the next time; nothing is lost but time.
                sys.stderr.write(f"{error}; tried again in {options.interval} s\n")
            else:
                sys.stdout.write(f"copied {copied} records to {options.to}\n")
                sys.stdout.flush()
            if options.interval is None:
                return DONE
            time.sleep(max(begun + options.interval - time.monotonic(), 0))


class Checkpoint:
    """The file with the offsets up to which partitions are copied."""

    def __init__(self, path: Path, from_cluster: str, to_cluster: str) -> None:
        """Read the checkpoint if there is one. Raises PipelineError if the file is no checkpoint of these two clusters,
        or cannot be written."""
        # Before anything is sent: what has arrived could not be written down.
        check_places([str(path)], ())
        self._path = path
        self._clusters = {"from": from_cluster, "to": to_cluster}
        self._topics: dict[str, dict[str, Any]] = {}
        try:
            entry = json.loads(path.read_bytes())
            clusters = {"from": entry["from"], "to": entry["to"]}
            self._topics = entry["topics"]
        except FileNotFoundError:
            return
        except OSError as error:
            raise PipelineError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise PipelineError(f"{path} is not the checkpoint of a mirror: {error!r}") from error
        if clusters != self._clusters:
            raise PipelineError(
                f"{path} is of a mirror from the cluster {clusters['from']} to {clusters['to']}, and this one goes "
                f"from {from_cluster} to {to_cluster}; name another --checkpoint"
            )

    def offset(self, partition: PartitionSource) -> int | None:
        """The offset up to which the partition is copied; None if nothing of it is."""
        known = self._topics.get(partition.topic)
        if known is None:
            return None
        if known["topicId"] != partition.topic_id:
            raise PipelineError(
                f"{partition.topic} has been deleted and made anew since {self._path} was written; name another "
                "--checkpoint, or copy it under another name (--topic-map)"
            )
        offset: int | None = known["offsets"].get(str(partition.partition))
        return offset

    def arrived(self, partition: PartitionSource, offset: int) -> None:
        """Record the offset up to which the partition is copied; the file is replaced when this returns. Raises
        PipelineError."""
        known = self._topics.setdefault(partition.topic, {"topicId": partition.topic_id, "offsets": {}})
        known["offsets"][str(partition.partition)] = offset
        aside = self._path.with_name(self._path.name + ".tmp")
        try:
            aside.write_text(json.dumps({"format": _FORMAT, **self._clusters, "topics": self._topics}) + "\n")
            aside.replace(self._path)
        except OSError as error:
            raise PipelineError(f"{self._path} cannot be written: {error.strerror}") from error


class Stretch(NamedTuple):
    """A range of a partition's records, and their topic's name in the target cluster."""

    source: OffsetRange
    topic: str


class Copied(NamedTuple):
    """The result of copying a range."""

    records: int
    passed_over: list[Damage]


def copy_stretch(stretch: Stretch, wanted: Wanted, sender: Sender) -> Copied:
    """Send the records of a range, and wait until they are acknowledged. Raises PipelineError."""
    passed_over: list[Damage] = []
    records = 0
    try:
        for rows in read_range(stretch.source, wanted, passed_over.append):
            records += len(rows)
            for first in range(0, len(rows), _AT_ONCE):
                sender.send(stretch.topic, stretch.source.partition, rows.slice(first, _AT_ONCE))
        sender.flush()
    except BaseException:
        sender.give_up()
        raise
    return Copied(records, passed_over)


class _Mirror:
    """Copies all new records once."""

    def __init__(self, options: argparse.Namespace, source: Source, do: Workers) -> None:
        self._options = options
        self._source = source
        self._do = do
        self._names: Mapping[str, str] = dict(options.topic_map)
        self._target = Broker(options.to)
        to_cluster = self._target.cluster_id()
        if to_cluster == source.cluster_id and not options.topic_map:
            raise PipelineError(f"{options.to} is the cluster that is read, {to_cluster}: it would grow for ever")
        self._checkpoint = Checkpoint(options.checkpoint, source.cluster_id, to_cluster)
        self._wanted = Wanted(
            columns=COLUMNS,
            read_committed=options.isolation == READ_COMMITTED,
            skip_damaged=options.on_damage == SKIP_BATCH,
        )

    def copy(self) -> int:
        """Copy the new records. Returns how many there were."""
        options = self._options
        topics = self._source.topics(options.topics, options.topic_pattern)
        partitions = self._source.partitions(topics)
        self._create_topics(partitions)
        left = {partition: self._stretches(partition) for partition in partitions}
        total = sum(_offsets(stretch) for stretches in left.values() for stretch in stretches)
        progress = Progress("copying", total, unit=" offsets")
        sender = Sender(options.to)
        copied = 0
        try:
            while left := {partition: stretches for partition, stretches in left.items() if stretches}:
                # The next stretch of a partition is sent when the one before it has arrived.
                first = {partition: stretches.pop(0) for partition, stretches in left.items()}
                results = self._do(copy_stretch, list(first.values()), self._wanted, sender)
                for (partition, stretch), result in zip(first.items(), results, strict=True):
                    self._checkpoint.arrived(partition, stretch.source.until_offset)
                    for damage in result.passed_over:
                        sys.stderr.write(f"{damage}: passed over\n")
                    copied += result.records
                    progress.advance(_offsets(stretch))
        finally:
            progress.close()
        return copied

    def _stretches(self, partition: PartitionSource) -> list[Stretch]:
        """The ranges of a partition that are to be copied, in order."""
        end = partition.readable(read_committed=self._wanted.read_committed).until_offset
        ranges = split(partition.range(self._begin(partition), end), _STRETCH_BYTES)
        return [Stretch(one, self._name(partition.topic)) for one in ranges]

    def _begin(self, partition: PartitionSource) -> int:
        start = partition.bounds.start_offset
        arrived = self._checkpoint.offset(partition)
        if arrived is None:
            return start
        if arrived < start and not self._options.accept_gap:
            raise PipelineError(
                f"the offsets {arrived} to {start - 1} of {partition.topic_partition} have been deleted before they "
                "were copied; --accept-gap goes on behind them"
            )
        if arrived > partition.bounds.high_watermark:
            raise PipelineError(
                f"{partition.topic_partition} was copied up to offset {arrived} and ends at "
                f"{partition.bounds.high_watermark}: it has lost its end, or is another one"
            )
        return max(arrived, start)

    def _name(self, topic: str) -> str:
        return self._names.get(topic, topic)

    def _create_topics(self, partitions: Sequence[PartitionSource]) -> None:
        """Create the missing topics. Topics that exist must have enough partitions."""
        there = self._target.topics()
        counts: dict[str, int] = {}
        for partition in partitions:
            counts[partition.topic] = max(counts.get(partition.topic, 0), partition.partition + 1)
        missing = [topic for topic in counts if self._name(topic) not in there]
        configs = self._configs(missing)
        for topic, count in counts.items():
            name = self._name(topic)
            if topic in missing:
                self._target.create_topic(name, partitions=count, configs=configs[topic])
            elif len(there[name].partitions) < count:
                raise PipelineError(
                    f"{self._options.to} has {len(there[name].partitions)} partitions of {name}, and {count} are copied"
                )

    def _configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        if self._options.bootstrap is None:
            return {topic: {} for topic in topics}
        known = Broker(self._options.bootstrap).topic_configs(topics)
        return {
            topic: {
                name: value
                for name, value in known[topic].items()
                if name != TIMESTAMP_TYPE and not name.startswith(OURS)
            }
            for topic in topics
        }


def _offsets(stretch: Stretch) -> int:
    return stretch.source.until_offset - stretch.source.from_offset
