"""A streaming read of `kafka_log`: the start and end offsets of each micro-batch.

Spark writes the end of every micro-batch into its checkpoint before it reads the batch, and requests the same range
again after a failure. It does not write the start of the first micro-batch, but calls `initial_offset` again. A start
that changes with time, such as "the end", would lose the records between the two calls. So a stream that begins at such
a position has a first micro-batch without records. Its end is in the checkpoint, and the second one begins there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pipeline.kafka_log.batch import in_tasks, within_bounds
from pipeline.kafka_log.data_loss import report_loss
from pipeline.kafka_log.options import OptionError, Options
from pipeline.kafka_log.places import FROM_THE_END, Offsets, Partitions, end_of, is_at_the_end, offsets_at, subscribed
from pipeline.reading.ranges import OffsetRange
from pipeline.source import Source
from storage.topic_partition import TopicPartition

JsonOffsets = dict[str, dict[str, int]]
"""Offsets in the form in which Spark and its Kafka connector store them: {"orders": {"0": 23}}."""


class Stream:
    """The state of one streaming query; it lives as long as the query runs. All methods raise PipelineError."""

    def __init__(self, options: Options) -> None:
        if options.ending is not None:
            raise OptionError(f"{options.ending.option} is for a batch read: a stream does not end")
        self._options = options
        self._source: Source | None = None
        self._initial: JsonOffsets | None = None
        self._begins_without_records = False
        self._target: Offsets | None = None
        self._has_begun = False

    def initial_offset(self) -> JsonOffsets:
        """The offsets at which a new query begins."""
        starting = self._options.starting or FROM_THE_END
        with self._opened() as source:
            partitions = self._partitions(source)
            offsets = offsets_at(source, starting, partitions, self._options, is_start=True)
            self._begins_without_records = is_at_the_end(starting, partitions, self._options)
        self._initial = as_json(offsets)
        return self._initial

    def stop_at_the_end_of_now(self) -> None:
        """Let the query end at the current ends of the partitions (Trigger.AvailableNow)."""
        self._target = self._ends()

    def latest_offset(self, start: JsonOffsets, most_offsets: int | None) -> JsonOffsets:
        """The end of the micro-batch that begins at `start`, with at most `most_offsets` offsets."""
        if self._begins_without_records and start == self._initial:
            self._begins_without_records = False
            return start
        self._has_begun = True
        starts = from_json(start)
        with self._opened() as source:
            partitions = self._partitions(source)
            ends = {one: end_of(partition, self._options) for one, partition in partitions.items()}
            self._report_what_is_missing(starts, ends)
            if self._target is not None:
                ends = {
                    one: min(end, max(self._target[one], starts.get(one, 0)))
                    for one, end in ends.items()
                    if one in self._target
                }
            for one in ends:
                if one not in starts:
                    starts[one] = partitions[one].bounds.start_offset
        return as_json({**_gone(starts, ends), **_limited(starts, ends, most_offsets)})

    def newest_offset(self) -> JsonOffsets:
        """The current ends of the partitions, for the query's progress report."""
        return as_json(self._ends())

    def ranges(self, start: JsonOffsets, end: JsonOffsets) -> list[OffsetRange]:
        """The ranges that the tasks of a micro-batch read."""
        self._has_begun = True
        starts, ends = from_json(start), from_json(end)
        wanted = []
        with self._opened() as source:
            partitions = self._partitions(source)
            for one, until in sorted(ends.items()):
                begin = starts.get(one)
                if begin is not None and begin >= until:
                    # Nothing, or less: the first micro-batch, asked for again after a death, had no records; and a log
                    # that has lost its end was reported when this end was chosen.
                    continue
                if (partition := partitions.get(one)) is None:
                    report_loss(
                        f"{one} is not there any more, and was to be read up to offset {until}",
                        fail=self._options.fail_on_data_loss,
                    )
                    continue
                if begin is None:
                    begin = min(partition.bounds.start_offset, until)
                wanted.append(within_bounds(partition, begin, until, self._options))
            return in_tasks(wanted, self._options)

    def close(self) -> None:
        """Release the data directories."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _report_what_is_missing(self, starts: Offsets, ends: Offsets) -> None:
        fail = self._options.fail_on_data_loss
        for one, start in starts.items():
            if one not in ends:
                report_loss(f"{one} has been read up to offset {start}, and is not there any more", fail=fail)
            elif ends[one] < start:
                report_loss(
                    f"{one} has been read up to offset {start}, and now ends at {ends[one]}: its end has been lost, or "
                    "the topic was made anew",
                    fail=fail,
                )

    def _ends(self) -> Offsets:
        with self._opened() as source:
            partitions = self._partitions(source)
            return {one: end_of(partition, self._options) for one, partition in partitions.items()}

    def _partitions(self, source: Source) -> Partitions:
        """The partitions that the query reads, as they are now."""
        options = self._options
        # A query that begins is to hear of a topic that it has misspelt; one that goes on, of those that have gone.
        may_be_gone = self._has_begun and not options.fail_on_data_loss
        return subscribed(source, options.subscription, may_be_gone=may_be_gone)

    @contextmanager
    def _opened(self) -> Iterator[Source]:
        """The data directories, listed anew."""
        options = self._options
        if options.bootstrap is None:
            # They are kept away from brokers while they are looked at, and no longer.
            with Source.open(options.data_dirs, None) as source:
                yield source
            return
        if self._source is None:
            self._source = Source.open(options.data_dirs, options.bootstrap)
        else:
            self._source.refresh()
        yield self._source


def as_json(offsets: Mapping[TopicPartition, int]) -> JsonOffsets:
    """Offsets in the form that Spark stores, always in the same order."""
    found: JsonOffsets = {}
    for one, offset in sorted(offsets.items()):
        found.setdefault(one.topic, {})[str(one.partition)] = offset
    return found


def from_json(offsets: JsonOffsets) -> Offsets:
    """Offsets from the form that Spark stores; the inverse of `as_json`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def _gone(starts: Offsets, ends: Offsets) -> Offsets:
    """Start offsets of partitions that are not readable now: their end is their start."""
    return {one: start for one, start in starts.items() if one not in ends}


def _limited(starts: Offsets, ends: Offsets, most_offsets: int | None) -> Offsets:
    """Limit the ends to at most so many offsets in all, shared in proportion to the offsets that each partition has. A
    partition with any gets at least one offset, so that none waits for ever."""
    sizes = {one: max(end - starts[one], 0) for one, end in ends.items()}
    total = sum(sizes.values())
    if most_offsets is None or total <= most_offsets:
        return ends
    found: Offsets = {}
    for one, size in sizes.items():
        share = max(most_offsets * size // total, 1) if size else 0
        found[one] = starts[one] + share if size else ends[one]
    return found
