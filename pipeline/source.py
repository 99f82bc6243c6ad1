"""The source of topics: a node's data directories, with or without a broker that works in them.

A running broker is asked for the bounds of partitions. Without a broker, the bounds come from the directories, by the
rules of the recovery at a broker's start; no file is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from config.log_config import LogConfig
from pipeline.broker import Broker
from pipeline.errors import PipelineError
from pipeline.reading.ranges import Bounds, OffsetRange
from pipeline.reading.segment_files import list_segments, raised_as_pipeline_errors, segment_of
from pipeline.reading.untouched_files import UntouchedFiles
from pipeline.topic_names import chosen_topics
from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    format_id,
    read_meta_properties,
    read_offset_checkpoint,
    read_topic_id,
)
from storage.errors import CorruptCheckpoint, DirectoryLocked, WrongDirectory
from storage.files import File, FileSystem
from storage.loading import LoadReport, open_log
from storage.log import Log
from storage.log_dir import NOT_LOGS, lock_for_reading
from storage.topic_partition import TopicPartition, parse_dir_name

_FILES: Final = FileSystem()
_CLEANED: Final = LogConfig(cleanup_policy=frozenset({"compact"}))
_NEVER_CLEANED: Final = LogConfig()


class PartitionSource(NamedTuple):
    """A readable partition. It is pickled for Spark's workers."""

    topic: str
    partition: int
    directory: str
    topic_id: str | None
    """The topic id in 22 characters; None where the directory has none."""
    bounds: Bounds
    are_aborts_indexed: bool = True
    """See `OffsetRange`."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def range(self, from_offset: int, until_offset: int) -> OffsetRange:
        """The range from ``from_offset`` to before ``until_offset``."""
        return OffsetRange(
            self.topic, self.partition, self.directory, from_offset, until_offset, self.topic_id,
            self.are_aborts_indexed,
        )  # fmt: skip

    def readable(self, *, read_committed: bool = True) -> OffsetRange:
        """The whole readable range."""
        bounds = self.bounds
        return self.range(bounds.start_offset, bounds.last_stable_offset if read_committed else bounds.high_watermark)


class Source:
    """The topics of one node. Without a broker, it holds the directories' locks, so that no broker starts until it is
    closed.

    It may be pickled; the copy holds no lock.
    """

    def __init__(self, data_dirs: Sequence[str], broker: Broker | None, locks: Sequence[File], cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._data_dirs = tuple(data_dirs)
        self._broker = broker
        self._locks = tuple(locks)
        self._data_dir_of: dict[TopicPartition, str] = {}
        self._offline: dict[TopicPartition, Bounds] = {}
        self.refresh()

    @classmethod
    def open(cls, data_dirs: Sequence[str], bootstrap: str | None = None) -> Source:
        """Open these data directories: all of a node's `log.dirs`, or some. `bootstrap`, as host:port, is the broker
        that runs on them; if it is None, no broker may run.

        Raises PipelineError.
        """
        paths = list(dict.fromkeys(_FILES.absolute(path) for path in data_dirs))
        if not paths:
            raise PipelineError("no data directory was named")
        with raised_as_pipeline_errors():
            cluster_id = _cluster_of(paths)
            if bootstrap is None:
                return cls(paths, None, _locked(paths), cluster_id)
        broker = Broker(bootstrap)
        if (found := broker.cluster_id()) != cluster_id:
            raise PipelineError(
                f"{paths[0]} belongs to the cluster {cluster_id}, and the broker at {bootstrap} to {found}"
            )
        return cls(paths, broker, (), cluster_id)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the directories' locks."""
        self._locks = ()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_locks": ()}

    def refresh(self) -> None:
        """List the directories again: topics may have come and gone."""
        self._offline.clear()
        found: dict[TopicPartition, str] = {}
        with raised_as_pipeline_errors():
            for data_dir in self._data_dirs:
                for topic_partition in _partitions_in(data_dir):
                    other = found.setdefault(topic_partition, data_dir)
                    if other != data_dir:
                        raise PipelineError(f"{topic_partition} stands in {other} and in {data_dir}")
        self._data_dir_of = found

    # Topics and partitions

    def topics(self, names: Sequence[str] = (), pattern: str | None = None) -> list[str]:
        """The topics of these names, and those whose whole name matches the pattern; all topics without names and
        pattern.

        Internal topics have to be named. Raises PipelineError for a name that no topic has.
        """
        known = {topic_partition.topic for topic_partition in self._data_dir_of}
        return chosen_topics(known, names, pattern, self._data_dirs)

    def partitions(self, topics: Iterable[str]) -> list[PartitionSource]:
        """The partitions of these topics in the directories, with their current bounds. Raises PipelineError."""
        wanted = set(topics)
        places = sorted(place for place in self._data_dir_of if place.topic in wanted)
        bounds = self._bounds_offline(places) if self._broker is None else self._broker.bounds(places)
        with raised_as_pipeline_errors():
            return [self._partition(place, bounds[place]) for place in places]

    def _partition(self, place: TopicPartition, bounds: Bounds) -> PartitionSource:
        directory = self._directory(place)
        try:
            topic_id = read_topic_id(_FILES, f"{directory}/{PARTITION_METADATA}")
        except CorruptCheckpoint:
            topic_id = None
        return PartitionSource(
            place.topic, place.partition, directory, None if topic_id is None else format_id(topic_id), bounds,
            self._broker is not None or _was_clean(self._data_dir_of[place]),
        )  # fmt: skip

    def _directory(self, place: TopicPartition) -> str:
        return f"{self._data_dir_of[place]}/{place.dir_name}"

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """For each partition the first offset whose record has this timestamp (ms since 1970) or a later one; None
        where there is no such record. Like ListOffsets. Raises PipelineError."""
        if self._broker is not None:
            return self._broker.offsets_at(times_ms)
        found: dict[TopicPartition, int | None] = {}
        for place, time_ms in times_ms.items():
            with raised_as_pipeline_errors():
                log = self._opened(place)
                record = log.offset_for_timestamp(time_ms, log.high_watermark)
                found[place] = None if record is None else record.offset
                log.abandon()
        return found

    # Without a broker

    def _bounds_offline(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        for place in places:
            if place not in self._offline:
                with raised_as_pipeline_errors():
                    log = self._opened(place)
                    self._offline[place] = Bounds(log.log_start_offset, log.high_watermark, log.last_stable_offset)
                    log.abandon()
        return self._offline

    def _opened(self, place: TopicPartition) -> Log:
        """Open a log as the next start of the broker would recover it, with all replicas in sync; no file is
        changed."""
        data_dir = self._data_dir_of[place]
        log = open_log(
            UntouchedFiles(),
            self._directory(place),
            topic_partition=place,
            # Only what the cleaner has been at may have gaps; elsewhere they are what a crash has left.
            config=_CLEANED if place in _offsets(data_dir, CLEANER_OFFSETS) else _NEVER_CLEANED,
            now_ms=0,
            recovery_point=_offsets(data_dir, RECOVERY_POINTS).get(place, 0),
            log_start_offset=_offsets(data_dir, LOG_START_OFFSETS).get(place, 0),
            was_clean=_was_clean(data_dir),
            report=LoadReport(),
        )
        log.advance_high_watermark(log.log_end_offset)
        return log


def split(source: PartitionSource | OffsetRange, most_bytes: int) -> list[OffsetRange]:
    """Cut the readable range of a partition, or a range of it, into ranges of about `most_bytes` in its files.

    Each range begins with a batch. Where batches begin is read from the offset indexes; behind their last entries,
    headers are read one after another.
    """
    whole = source.readable() if isinstance(source, PartitionSource) else source
    if whole.from_offset >= whole.until_offset:
        return []
    cuts = [whole.from_offset]
    with raised_as_pipeline_errors():
        for offset in _batch_offsets(whole, max(most_bytes, 1)):
            if cuts[-1] < offset < whole.until_offset:
                cuts.append(offset)
    ends = [*cuts[1:], whole.until_offset]
    return [whole._replace(from_offset=first, until_offset=until) for first, until in zip(cuts, ends, strict=True)]


def _batch_offsets(whole: OffsetRange, most_bytes: int) -> Iterator[int]:
    """Base offsets of batches in a range, about `most_bytes` apart."""
    segments = list_segments(whole.directory)
    room = most_bytes
    for segment in segments[max(segment_of(segments, whole.from_offset), 0) :]:
        if segment.base_offset >= whole.until_offset:
            return
        try:
            size = segment.file().size
        except FileNotFoundError:
            continue  # the reader of the range meets the segment that has replaced this one
        begin, _ = segment.place_near(whole.from_offset)
        position = begin
        if segment.base_offset > whole.from_offset and room <= 0:
            yield segment.base_offset
            room = most_bytes
        while size - position > room:
            # The last batch that still fits, or the first one behind it.
            wanted = position + max(room, 0)
            place = segment.boundary_before(wanted)
            if place is None or place[0] <= position:
                place = segment.entry_behind(wanted) or segment.batch_behind(position, max(wanted, position + 1))
            if place is None:
                break
            position, offset = place
            if offset >= whole.until_offset:
                return
            yield offset
            room = most_bytes
        room -= size - position


def _cluster_of(paths: Sequence[str]) -> str:
    found: str | None = None
    for path in paths:
        if not _FILES.exists(path) or not _FILES.is_directory(path):
            raise PipelineError(f"{path} is no directory")
        properties = read_meta_properties(_FILES, f"{path}/{META_PROPERTIES}")
        if properties is None:
            raise PipelineError(f"{path} is no data directory of a broker: it has no {META_PROPERTIES}")
        if found is not None and properties.cluster_id != found:
            raise PipelineError(f"{paths[0]} belongs to the cluster {found}, and {path} to {properties.cluster_id}")
        found = properties.cluster_id
    assert found is not None
    return found


def _locked(paths: Sequence[str]) -> list[File]:
    try:
        locks = [lock_for_reading(_FILES, path) for path in paths]
    except DirectoryLocked as error:
        raise PipelineError(f"{error}; name it (--bootstrap, kafka.bootstrap.servers)") from None
    return [lock for lock in locks if lock is not None]


def _partitions_in(data_dir: str) -> Iterator[TopicPartition]:
    """The partitions in a data directory, without stray ones and those that are being deleted or moved."""
    try:
        entries = _FILES.list_directory(data_dir)
    except FileNotFoundError:
        raise PipelineError(f"{data_dir} is gone") from None
    for entry in entries:
        if entry.is_directory and entry.name not in NOT_LOGS:
            try:
                place, fate = parse_dir_name(entry.name)
            except WrongDirectory:
                continue
            if not fate:
                yield place


def _was_clean(data_dir: str) -> bool:
    return _FILES.exists(f"{data_dir}/{CLEAN_SHUTDOWN}")


def _offsets(data_dir: str, name: str) -> dict[TopicPartition, int]:
    try:
        return read_offset_checkpoint(_FILES, f"{data_dir}/{name}")
    except CorruptCheckpoint:
        return {}  # as at a start of the broker
