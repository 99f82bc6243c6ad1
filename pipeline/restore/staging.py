"""Building logs from archived batches, in directories that no broker opens yet.

    parts_of      finds out which segments there will be, from how far batches reach; neighbours are a part
    write_part    writes a part, on any machine, always with the same bytes
    put_together  makes the log of its parts, and lets storage make what belongs to it, where the command runs

A part is written in a directory of its own and gets its name when it is on disk: it is there whole or not at all, and
who comes later than another does no harm.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

from config.log_config import LogConfig
from pipeline.archive.archive import BatchExtent
from pipeline.archive.run import At
from pipeline.errors import PipelineError
from pipeline.restore.selection import Offsets, batches_within
from storage.batch.record_batch import Buffer, read_header
from storage.batch.records import encode_batch
from storage.file_names import LOG_SUFFIX, file_name
from storage.files import File, FileSystem
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from storage.loading import LoadReport, open_log
from storage.sentinels import NO_TIMESTAMP
from storage.topic_partition import TopicPartition

PART_BYTES: Final = 32 << 20
"""About how much a task writes at least: a segment, or some where they are small."""
_WRITE_BYTES: Final = 1 << 20


class Batches(Protocol):
    """Where batches come from: an archive."""

    def batches(self, topic: str, partition: int, from_offset: int, until_offset: int) -> Iterator[Buffer]:
        """Those that have offsets between these, in order, each as it stood in the log."""

    def extents(self, topic: str, partition: int, from_offset: int, until_offset: int) -> Iterator[BatchExtent]:
        """How far each of them reaches."""

    def log_bytes(self, topic: str, partition: int) -> int:
        """How many bytes all of a partition have."""


class WantedLog(NamedTuple):
    """A log that is to be made."""

    source: str
    """What its topic is called in the archive."""
    place: TopicPartition
    offsets: Offsets
    """Where it begins, although its first batch may begin before; and where it ends, so that the next record does not
    get an offset that another one had."""
    config: LogConfig
    """Says how large segments and how dense indexes are."""
    parts_directory: str
    """Where its parts are made."""


class Part(NamedTuple):
    """Some segments of a log that follow one another."""

    log: WantedLog
    offsets: Offsets
    bytes: int
    """Of its batches, the last of them uncut."""

    @property
    def name(self) -> str:
        """What the directory is called in which they are once all of them are on disk."""
        return f"{self.offsets.from_offset:020}-{self.offsets.until_offset:020}"


class StagedLog(NamedTuple):
    """A log that is complete and on disk."""

    start_offset: int
    end_offset: int
    latest_epoch: int
    """The newest leader epoch of its batches; -1 if there is none."""
    bytes: int
    largest_timestamp: int
    """Of all its records, in milliseconds; -1 without any."""


def parts_of(log: WantedLog, archive: Batches, part_bytes: int) -> list[Part]:
    """What a log is made of, about ``part_bytes`` and at least one segment each."""
    begin, end = log.offsets
    if begin >= end:
        return []
    cuts, sizes = [begin], [0]
    rolling = _Rolling(log.config, begin)
    for extent in archive.extents(log.source, log.place.partition, begin, end):
        reached = rolling.next_offset
        if rolling.add(extent) is not None and sizes[-1] >= part_bytes:
            cuts.append(reached)
            sizes.append(0)
        sizes[-1] += extent.size
    return [Part(log, Offsets(*cut), size) for cut, size in zip(pairwise([*cuts, end]), sizes, strict=True)]


def write_part(part: Part, archive: Batches, files: FileSystem, at: At) -> None:
    """Write the segments of a part. Raises PipelineError for batches that make no log; DiskFull, LogDirFailed."""
    log, path = part.log, f"{part.log.parts_directory}/{part.name}"
    if not files.exists(log.parts_directory):
        raise PipelineError(
            f"{log.parts_directory} is not there where the work is done: Spark's workers must see the target directory "
            "under the same path"
        )
    # Spark may run a task twice: neither writes into the other's files.
    aside = f"{path}.{uuid4().hex}"
    files.make_directory(aside)
    writer = _SegmentWriter(files, aside, log.config, part.offsets.from_offset)
    batches = archive.batches(log.source, log.place.partition, *part.offsets)
    for batch in batches_within(batches, part.offsets):
        writer.append(batch)
    if writer.next_offset < part.offsets.until_offset:
        writer.append(_placeholder(writer, part.offsets.until_offset))
    writer.finish()
    files.fsync_directory(aside)
    if files.exists(path):
        files.remove_tree(aside)
        return
    files.rename(aside, path)
    files.fsync_directory(log.parts_directory)
    at("wrote a part")


def put_together(
    files: FileSystem, directory: str, log: WantedLog, made_of: Sequence[Part], *, report: LoadReport, now_ms: int
) -> StagedLog:
    """Make a log in ``directory``, anew, of all its parts.

    It ends where its first undecided transaction begins: no producer could ever end it, and read_committed would wait
    there for good. Raises PipelineError for batches that make no log; DiskFull, LogDirFailed.
    """
    files.remove_tree(directory)
    # A task that still writes a part of the log does so in a directory that is no longer used.
    files.rename(log.parts_directory, directory)
    size = 0
    for part in made_of:
        for entry in files.list_directory(f"{directory}/{part.name}"):
            files.rename(f"{directory}/{part.name}/{entry.name}", f"{directory}/{entry.name}")
            size += entry.size
    for entry in files.list_directory(directory):
        if entry.is_directory:
            files.remove_tree(f"{directory}/{entry.name}")
    files.fsync_directory(directory)
    # Storage reads what was written as after a power cut: every CRC is checked, indexes, leader epochs and producers
    # come from the batches.
    start_offset, until_offset = log.offsets
    made = open_log(
        files, directory, topic_partition=log.place, config=log.config, now_ms=now_ms, log_start_offset=start_offset,
        high_watermark=until_offset, report=report,
    )  # fmt: skip
    if report.findings or (made.log_end_offset, made.size) != (until_offset, size):
        raise PipelineError(
            f"{directory} was written up to offset {until_offset} with {size} bytes, and reads as a log up to "
            f"{made.log_end_offset} with {made.size}{''.join(f'; {finding}' for finding in report.findings)}"
        )
    undecided = made.producers.first_unstable_offset
    if undecided is not None:
        made.truncate_to(max(undecided, start_offset), now_ms)
    staged = StagedLog(
        start_offset=made.log_start_offset,
        end_offset=made.log_end_offset,
        latest_epoch=made.leader_epochs.latest,
        bytes=made.size,
        largest_timestamp=max((segment.largest.timestamp for segment in made.segments), default=NO_TIMESTAMP),
    )
    made.close(now_ms)
    return staged


def _placeholder(writer: "_SegmentWriter", until_offset: int) -> bytearray:
    """A batch without records, as the cleaner leaves one: the offsets up to there are taken."""
    return encode_batch(
        (),
        base_offset=writer.next_offset,
        last_offset_delta=until_offset - 1 - writer.next_offset,
        partition_leader_epoch=writer.latest_epoch,
    )


class _Rolling:
    """Where segments begin: a new one where a broker would have begun one. It is given the batches in order."""

    def __init__(self, config: LogConfig, start_offset: int) -> None:
        self._config = config
        self._base_offset: int | None = None
        self._first_timestamp = NO_TIMESTAMP
        self._bytes = 0
        self.next_offset = start_offset
        """Behind the last batch."""

    def add(self, batch: BatchExtent) -> int | None:
        """What the segment is called that begins with this batch; None if none does. Raises PipelineError."""
        if self._base_offset is not None and batch.base_offset < self.next_offset:
            raise PipelineError(
                f"the batch at offset {batch.base_offset} overlaps what is archived before it up to {self.next_offset}"
            )
        begins = None
        if self._base_offset is None or self._is_full(self._base_offset, batch):
            # A segment is named after where the one before it ends: compaction leaves holes, also between two segments.
            begins = min(self.next_offset, batch.base_offset)
            if batch.last_offset - begins > MOST_RELATIVE_OFFSET:
                begins = batch.base_offset
            self._base_offset = begins
            self._first_timestamp = batch.max_timestamp
            self._bytes = 0
        self._bytes += batch.size
        self.next_offset = batch.last_offset + 1
        return begins

    def _is_full(self, base_offset: int, batch: BatchExtent) -> bool:
        return (
            self._bytes + batch.size > self._config.segment_bytes
            or batch.last_offset - base_offset > MOST_RELATIVE_OFFSET
            or batch.max_timestamp - self._first_timestamp > self._config.segment_ms
        )


class _SegmentWriter:
    """Batches into files."""

    def __init__(self, files: FileSystem, directory: str, config: LogConfig, start_offset: int) -> None:
        self._files = files
        self._directory = directory
        self._rolling = _Rolling(config, start_offset)
        self._file: File | None = None
        self._position = 0
        self._held: list[Buffer] = []
        self._held_bytes = 0
        self.latest_epoch = 0

    @property
    def next_offset(self) -> int:
        """Behind the last batch."""
        return self._rolling.next_offset

    def append(self, batch: Buffer) -> None:
        header = read_header(batch)
        base_offset = self._rolling.add(
            BatchExtent(header.base_offset, header.last_offset, header.max_timestamp, len(batch))
        )
        if base_offset is not None:
            self.finish()
            self._file = self._files.open_log(f"{self._directory}/{file_name(base_offset, LOG_SUFFIX)}", create=True)
            self._position = 0
        self._held.append(batch)
        self._held_bytes += len(batch)
        if self._held_bytes >= _WRITE_BYTES:
            self._write()
        self.latest_epoch = max(self.latest_epoch, header.partition_leader_epoch)

    def finish(self) -> None:
        """Everything is on disk."""
        if self._file is not None:
            self._write()
            self._file.fsync()

    def _write(self) -> None:
        if self._file is not None and self._held:
            self._position += self._file.append_vector(self._held, self._position)
            self._held, self._held_bytes = [], 0
