"""`ottla pipeline stats`: statistics of topics."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from pipeline.broker import Broker
from pipeline.command_line import FAIL, SKIP_BATCH, add_source_options, add_spark_options
from pipeline.errors import DAMAGED, DONE, PipelineError
from pipeline.progress import Progress
from pipeline.reading.ranges import OffsetRange
from pipeline.reports.files import check_places, write_reports
from pipeline.reports.text import bytes_text, ratio_text
from pipeline.session import spark_session
from pipeline.source import PartitionSource, Source, split
from pipeline.stats.page import stats_page
from pipeline.stats.report import Lag, Stats, put_together
from pipeline.stats.scan import Counts, scan_ranges
from pipeline.work import on_workers

_RANGE_BYTES: Final = 64 << 20
_RANGES_A_TASK: Final = 64
"""The most small ranges that one task counts; together they are no larger than `_RANGE_BYTES`."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stats`."""
    add_source_options(parser)
    parser.add_argument(
        "--report", dest="reports", action="append", default=[], metavar="PATH",
        help="write a report to PATH, which ends with .html (with plots) or .json; once for each",
    )  # fmt: skip
    parser.add_argument(
        "--on-damage", choices=(FAIL, SKIP_BATCH), default=FAIL,
        help="what is done about a damaged batch: end with exit code 1, or report it, leave it out and go on to end "
        "with exit code 1 (default: %(default)s)",
    )  # fmt: skip
    add_spark_options(parser)


def run(options: argparse.Namespace) -> int:
    """Count. Returns the exit code: 0, or 1 where damage was found."""
    check_places(options.reports)
    with Source.open(options.data_dirs, options.bootstrap) as source:
        topics = source.topics(options.topics, options.topic_pattern)
        partitions = source.partitions(topics)
        if not partitions:
            raise PipelineError(f"there are no topics to count in {', '.join(options.data_dirs)}")
        lags = [] if options.bootstrap is None else list(_lags(Broker(options.bootstrap), partitions))
        stats = put_together(
            partitions,
            _counted(partitions, options),
            lags,
            cluster_id=source.cluster_id,
            data_dirs=options.data_dirs,
            bootstrap=options.bootstrap,
            finished_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
        )
    _print(stats)
    write_reports(options.reports, stats.to_json, lambda: stats_page(stats))
    return DAMAGED if stats.counts.damages else DONE


def _counted(
    partitions: Sequence[PartitionSource], options: argparse.Namespace
) -> Iterator[tuple[tuple[str, int], Counts]]:
    tasks = _tasks(partitions)
    if not tasks:
        return
    with spark_session(options, "stats") as spark:
        progress = Progress("stats", len(tasks), unit="ranges")
        try:
            results = on_workers(spark, scan_ranges, tasks, options.on_damage == SKIP_BATCH, on_done=progress.advance)
        finally:
            progress.close()
    for result in results:
        for counted, counts in result:
            yield (counted.topic, counted.partition), counts


def _tasks(partitions: Sequence[PartitionSource]) -> list[list[OffsetRange]]:
    """The ranges that each task counts: one large range, or many small partitions."""
    tasks: list[list[OffsetRange]] = []
    small: list[OffsetRange] = []
    for partition in partitions:
        ranges = split(partition.readable(read_committed=False), _RANGE_BYTES)
        if len(ranges) == 1:
            small += ranges
        else:
            tasks += [[each] for each in ranges]
    together = max(1, min(_RANGES_A_TASK, len(small) // 16))
    return tasks + [small[first : first + together] for first in range(0, len(small), together)]


def _lags(broker: Broker, partitions: Sequence[PartitionSource]) -> Iterator[Lag]:
    """The lag of each group behind the high watermarks."""
    ends = {partition.topic_partition: partition.bounds.high_watermark for partition in partitions}
    for group in broker.groups():
        behind: dict[str, list[int]] = {}
        for place, offset in broker.committed(group).items():
            if place in ends:
                behind.setdefault(place.topic, []).append(max(ends[place] - offset, 0))
        for topic, lags in behind.items():
            yield Lag(group, topic, len(lags), sum(lags), max(lags))


def _print(stats: Stats) -> None:
    """Print a line for each topic."""
    lines = [("topic", "partitions", "records", "stored", "ratio", "records/batch", "largest partition", "lag")]
    for topic in stats.topics:
        counts = topic.counts
        lines.append(
            (
                topic.name if topic.name.isprintable() else repr(topic.name),
                str(len(topic.partitions)),
                str(counts.records),
                bytes_text(counts.batch_bytes),
                ratio_text(counts.compression_ratio),
                ratio_text(counts.mean_fill),
                f"{topic.largest_share:.0%}",
                str(sum(lag.lag for lag in topic.lags)) if topic.lags else "",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *numbers in lines:
        cells = [name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True))]
        print("  ".join(cells).rstrip())
    for damage in stats.counts.damages:
        print(f"damage  {damage}")
    sys.stdout.flush()
