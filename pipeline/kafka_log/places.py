"""Partitions that are read, and the offsets at which reading begins and ends in each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipeline.errors import PipelineError
from pipeline.kafka_log.options import EARLIEST, LATEST, TIME, OptionError, Options, Places, Subscription
from pipeline.source import PartitionSource, Source
from storage.topic_partition import TopicPartition

Partitions = Mapping[TopicPartition, PartitionSource]
Offsets = dict[TopicPartition, int]

FROM_THE_START: Final = Places(EARLIEST, {}, "startingOffsets")
FROM_THE_END: Final = Places(LATEST, {}, "startingOffsets")
TO_THE_END: Final = Places(LATEST, {}, "endingOffsets")


def subscribed(source: Source, subscription: Subscription, *, may_be_gone: bool = False) -> Partitions:
    """The partitions that ``subscription`` names. Raises PipelineError if a partition does not exist, unless
    ``may_be_gone``."""
    names = [name for name in subscription.topics if not may_be_gone or _is_there(source, name)]
    topics = source.topics(names, subscription.pattern) if names or subscription.pattern is not None else []
    found = {TopicPartition(one.topic, one.partition): one for one in source.partitions(topics)}
    if not subscription.partitions:
        return found
    for partition in subscription.partitions:
        if partition not in found and not may_be_gone:
            raise PipelineError(f"there is no partition {partition}, which assign names")
    return {partition: found[partition] for partition in subscription.partitions if partition in found}


def _is_there(source: Source, topic: str) -> bool:
    try:
        source.topics([topic])
    except PipelineError:
        return False
    return True


def end_of(partition: PartitionSource, options: Options) -> int:
    """The offset up to which a partition can be read at the isolation level of the options."""
    bounds = partition.bounds
    return bounds.last_stable_offset if options.wanted.read_committed else bounds.high_watermark


def offsets_at(source: Source, places: Places, partitions: Partitions, options: Options, *, is_start: bool) -> Offsets:
    """The offset of each partition's position. Raises OptionError.

    If a partition has no record as late as a time, reading ends at the partition's end. Reading begins there only if
    `startingOffsetsByTimestampStrategy` allows it.
    """
    if unknown := [one for one in places.by_partition if one not in partitions]:
        raise OptionError(f"{places.option} names {unknown[0]}, which is not among the partitions that are read")
    asked = {one: places.of(one) for one in partitions}
    times = source.offsets_at({one: place.number for one, place in asked.items() if place.kind == TIME})
    found: Offsets = {}
    for one, place in asked.items():
        partition = partitions[one]
        if place == EARLIEST:
            found[one] = partition.bounds.start_offset
        elif place == LATEST:
            found[one] = end_of(partition, options)
        elif place.kind == TIME:
            offset = times[one]
            if offset is None:
                if is_start and not options.latest_for_missing_times:
                    raise OptionError(
                        f"{places.option}: {one} has no record as late as {place.number} (ms since 1970); "
                        "startingOffsetsByTimestampStrategy=latest would begin at its end"
                    )
                offset = end_of(partition, options)
            found[one] = min(offset, end_of(partition, options))
        else:
            found[one] = place.number
    return found


def is_at_the_end(places: Places, partitions: Partitions, options: Options) -> bool:
    """Whether a partition's start is its current end, so that the same question gives another offset later."""
    return options.latest_for_missing_times or any(places.of(one) == LATEST for one in partitions)
