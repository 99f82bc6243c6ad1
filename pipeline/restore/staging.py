"""Building logs from archived batches, in directories that no broker opens yet.

    parts_of computes the segments from the extents of the batches; neighbouring segments make a part
    write_part writes a part, on any machine, always with the same bytes
    put_together joins the parts to a log and lets storage build its indexes, on the machine of the command

A part is written in a directory of its own, which gets its name when the part is on disk: a part exists whole or not at
all, and a task that finishes after another task with the same part does no harm.
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
"""About how many bytes a task writes, at least: one segment, or several small ones."""
_WRITE_BYTES: Final = 1 << 20


class Batches(Protocol):
    """A source of batches: an archive."""

    def batches(self, topic: str, partition: int, from_offset: int, until_offset: int) -> Iterator[Buffer]:
        """The batches that have offsets from ``from_offset`` to before ``until_offset``, in order, as they were in the
        log."""

    def extents(self, topic: str, partition: int, from_offset: int, until_offset: int) -> Iterator[BatchExtent]:
        """The extents of these batches: offsets, timestamp and size."""

    def log_bytes(self, topic: str, partition: int) -> int:
        """How many bytes all batches of a partition have."""


class WantedLog(NamedTuple):
    """A log that is to be built."""

    source: str
    """The topic's name in the archive."""
    place: TopicPartition
    offsets: Offsets
    """The start offset of the log, although its first batch may begin before; and the end offset, so that no new record
    gets an offset that another record had."""
    config: LogConfig
    """The config of the topic, for the size of segments and the interval of indexes."""
    parts_directory: str
    """The path of the directory in which the parts of the log are written."""


class Part(NamedTuple):
    """Some consecutive segments of a log."""

    log: WantedLog
    offsets: Offsets
    bytes: int
    """The size of the part's batches, the last of them uncut."""

    @property
    def name(self) -> str:
        """The name of the part's directory once the part is on disk."""
        return f"{self.offsets.from_offset:020}-{self.offsets.until_offset:020}"


class StagedLog(NamedTuple):
    """A log that is complete and on disk, in a directory that brokers ignore."""

    start_offset: int
    end_offset: int
    latest_epoch: int
    """The newest leader epoch of the batches; -1 if there is no batch."""
    bytes: int
    largest_timestamp: int
    """The largest timestamp of all records, in milliseconds; -1 without records."""


def parts_of(log: WantedLog, archive: Batches, part_bytes: int) -> list[Part]:
    """Divide a log into parts of at least ``part_bytes``, about, and at least one segment."""
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
    """Write the segments of a part. Raises PipelineError for batches that cannot be in one log; DiskFull,
    LogDirFailed."""
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
    """Build a log in ``directory`` from all its parts, replacing an earlier attempt.

    The log ends before its first open transaction: no producer could ever end the transaction, and read_committed
    consumers would wait there for good. Raises PipelineError for batches that cannot be in one log; DiskFull,
    LogDirFailed.
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
    """A batch without records, as the cleaner leaves them: its offsets, up to ``until_offset``, are taken."""
    return encode_batch(
        (),
        base_offset=writer.next_offset,
        last_offset_delta=until_offset - 1 - writer.next_offset,
        partition_leader_epoch=writer.latest_epoch,
    )


class _Rolling:
    """Computes at which batches segments begin: where a broker would have rolled. The batches are added in order."""

    def __init__(self, config: LogConfig, start_offset: int) -> None:
        self._config = config
        self._base_offset: int | None = None
        self._first_timestamp = NO_TIMESTAMP
        self._bytes = 0
        self.next_offset = start_offset
        """The offset behind the last batch."""

    def add(self, batch: BatchExtent) -> int | None:
        """Add a batch. Returns the base offset of the segment that begins with it; None if no segment does. Raises
        PipelineError."""
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
    """Writes batches into segment files."""

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
        """The offset behind the last batch."""
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
        """Write and sync the last file."""
        if self._file is not None:
            self._write()
            self._file.fsync()

    def _write(self) -> None:
        if self._file is not None and self._held:
            self._position += self._file.append_vector(self._held, self._position)
            self._held, self._held_bytes = [], 0
