"""One partition's log made out of its batches, in a directory that nobody looks at yet."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from config.log_config import LogConfig
from pipeline.errors import PipelineError
from storage.batch.record_batch import NO_TIMESTAMP, BatchHeader, Buffer, read_header
from storage.batch.records import encode_batch
from storage.files import File, FileSystem
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from storage.loading import open_log
from storage.segment import LOG_SUFFIX, file_name
from storage.topic_partition import TopicPartition

_WRITE_BYTES: Final = 1 << 20


class StagedLog(NamedTuple):
    """A log that is complete and on disk."""

    start_offset: int
    end_offset: int
    latest_epoch: int
    """The newest leader epoch of its batches; -1 if there is none."""
    bytes: int
    largest_timestamp: int
    """Of all its records, in milliseconds; -1 without any."""


def stage_log(
    files: FileSystem,
    directory: str,
    batches: Iterable[Buffer],
    *,
    topic_partition: TopicPartition,
    config: LogConfig,
    start_offset: int,
    until_offset: int,
    now_ms: int,
    advance: Callable[[int], None],
) -> StagedLog:
    """Write ``batches`` as segments into ``directory``, begun anew, and let storage make all that belongs to them.

    A log ends where its first undecided transaction begins: nobody could ever end that, and read_committed would wait
    there for good.

    Args:
        start_offset: Where the log begins; the first batch may begin before.
        until_offset: Where it ends, so that the next record does not get an offset that another one had.
        config: Says how large segments and how dense indexes are.
        advance: Told how many bytes have been written.

    Raises PipelineError for batches that make no log; DiskFull, LogDirFailed.
    """
    files.remove_tree(directory)
    files.make_directory(directory)
    writer = _SegmentWriter(files, directory, config, start_offset, advance)
    for batch in batches:
        writer.append(batch)
    if writer.next_offset < until_offset:
        writer.append(_placeholder(writer, until_offset))
    writer.finish()
    # Storage reads what was written as after a power cut: every CRC is checked, indexes, leader epochs and producers
    # come from the batches.
    log = open_log(
        files, directory, topic_partition=topic_partition, config=config, now_ms=now_ms, log_start_offset=start_offset,
        high_watermark=writer.next_offset,
    )  # fmt: skip
    if (log.log_end_offset, log.size) != (writer.next_offset, writer.bytes):
        raise PipelineError(
            f"{directory} was written up to offset {writer.next_offset} with {writer.bytes} bytes, and reads as a log "
            f"up to {log.log_end_offset} with {log.size}"
        )
    undecided = log.producers.first_unstable_offset
    if undecided is not None:
        log.truncate_to(max(undecided, start_offset), now_ms)
    staged = StagedLog(
        start_offset=log.log_start_offset,
        end_offset=log.log_end_offset,
        latest_epoch=log.leader_epochs.latest,
        bytes=log.size,
        largest_timestamp=max((segment.largest.timestamp for segment in log.segments), default=NO_TIMESTAMP),
    )
    log.close(now_ms)
    return staged


def _placeholder(writer: "_SegmentWriter", until_offset: int) -> bytearray:
    """A batch without records, as the cleaner leaves one: the offsets up to there are taken."""
    return encode_batch(
        (),
        base_offset=writer.next_offset,
        last_offset_delta=until_offset - 1 - writer.next_offset,
        partition_leader_epoch=writer.latest_epoch,
    )


class _SegmentWriter:
    """Batches into files: a new one where a broker would have begun one."""

    def __init__(
        self, files: FileSystem, directory: str, config: LogConfig, start_offset: int, advance: Callable[[int], None]
    ) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._advance = advance
        self._file: File | None = None
        self._base_offset = 0
        self._first_timestamp = NO_TIMESTAMP
        self._position = 0
        self._held: list[Buffer] = []
        self._held_bytes = 0
        self.next_offset = start_offset
        self.latest_epoch = 0
        self.bytes = 0

    def append(self, batch: Buffer) -> None:
        header = read_header(batch)
        if self._file is not None and header.base_offset < self.next_offset:
            raise PipelineError(
                f"the batch at offset {header.base_offset} overlaps what is archived before it up to {self.next_offset}"
            )
        if self._file is None or self._is_full(header):
            self._begin(header)
        self._held.append(batch)
        self._held_bytes += len(batch)
        if self._held_bytes >= _WRITE_BYTES:
            self._write()
        self.next_offset = header.next_offset
        self.latest_epoch = max(self.latest_epoch, header.partition_leader_epoch)
        self.bytes += len(batch)

    def finish(self) -> None:
        """Everything is on disk."""
        if self._file is not None:
            self._write()
            self._file.fsync()

    def _is_full(self, header: BatchHeader) -> bool:
        size = self._position + self._held_bytes
        return (
            size + header.size > self._config.segment_bytes
            or header.last_offset - self._base_offset > MOST_RELATIVE_OFFSET
            or header.max_timestamp - self._first_timestamp > self._config.segment_ms
        )

    def _begin(self, header: BatchHeader) -> None:
        is_first = self._file is None
        self.finish()
        # A segment is named after where the one before it ends: compaction leaves holes, also between two segments.
        base = min(self.next_offset, header.base_offset) if is_first else self.next_offset
        if header.last_offset - base > MOST_RELATIVE_OFFSET:
            base = header.base_offset
        self._base_offset = base
        self._first_timestamp = header.max_timestamp
        self._position = 0
        self._file = self._files.open_log(f"{self._directory}/{file_name(base, LOG_SUFFIX)}", create=True)

    def _write(self) -> None:
        if self._file is not None and self._held:
            self._position += self._file.append_vector(self._held, self._position)
            self._advance(self._held_bytes)
            self._held, self._held_bytes = [], 0
