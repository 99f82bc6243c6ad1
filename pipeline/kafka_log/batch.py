"""Planning a batch read of `kafka_log`: its ranges of offsets, one for each task."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pipeline.kafka_log.data_loss import report_loss
from pipeline.kafka_log.options import LATEST, OptionError, Options
from pipeline.kafka_log.places import FROM_THE_START, TO_THE_END, end_of, offsets_at, subscribed
from pipeline.reading.ranges import OffsetRange
from pipeline.source import PartitionSource, Source, split


def plan(options: Options) -> list[OffsetRange]:
    """Plan the ranges of a batch read. Raises PipelineError."""
    starting = options.starting or FROM_THE_START
    if LATEST in (starting.everywhere, *starting.by_partition.values()):
        raise OptionError(f"{starting.option} cannot be latest (-1) in a batch read: nothing would be read")
    with Source.open(options.data_dirs, options.bootstrap) as source:
        partitions = subscribed(source, options.subscription)
        starts = offsets_at(source, starting, partitions, options, is_start=True)
        ends = offsets_at(source, options.ending or TO_THE_END, partitions, options, is_start=False)
        wanted = [
            within_bounds(partition, starts[one], ends[one], options) for one, partition in sorted(partitions.items())
        ]
        return in_tasks(wanted, options)


def within_bounds(partition: PartitionSource, start: int, end: int, options: Options) -> OffsetRange:
    """The readable part of the range from ``start`` to ``end``. The rest is reported as lost."""
    name = f"{partition.topic}-{partition.partition}"
    first, behind = partition.bounds.start_offset, end_of(partition, options)
    if start < min(first, end):
        report_loss(
            f"offsets {start} to {min(first, end) - 1} of {name} were to be read, and it begins at {first}: "
            "they have been deleted",
            fail=options.fail_on_data_loss,
        )
    if end > behind:
        report_loss(
            f"{name} was to be read up to offset {end}, and it can be read up to {behind}",
            fail=options.fail_on_data_loss,
        )
    return partition.range(max(start, first), min(end, behind))


def in_tasks(ranges: Sequence[OffsetRange], options: Options) -> list[OffsetRange]:
    """Cut ranges to what one task reads: about `splitBytes`, and at least `minPartitions` ranges where there are so
    many offsets. Empty ranges are left out."""
    found = [part for one in ranges if one.from_offset < one.until_offset for part in split(one, options.split_bytes)]
    if not found or len(found) >= options.least_ranges:
        return found
    total = sum(one.until_offset - one.from_offset for one in found)
    return [
        part
        for one in found
        for part in _cut(one, max(round(options.least_ranges * (one.until_offset - one.from_offset) / total), 1))
    ]


def _cut(one: OffsetRange, parts: int) -> list[OffsetRange]:
    """Cut a range into so many parts with about as many offsets each. A batch across a cut is read by both tasks."""
    size = one.until_offset - one.from_offset
    cuts = [one.from_offset + size * number // parts for number in range(parts + 1)]
    return [one._replace(from_offset=begin, until_offset=end) for begin, end in pairwise(cuts) if begin < end]
