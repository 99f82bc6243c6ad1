"""The steps of an append: a batch is staged, written and published, or taken back.

stage             offsets are assigned and stamped into the bytes; the producer's state already includes the batch
begin_write       staged batches that go into one segment become one write; a log has one write under way at most
perform           the bytes go into the file: the only step that may block, and may run in another thread
complete_write    the batches are published: indexed, below the log's end, visible to readers
fail_write        taken back, with all staged behind them: the partial write is cut off, the offsets are free
"""

from collections.abc import Sequence
from typing import Any

from config.log_config import LogConfig
from storage.batch.record_batch import BatchHeader
from storage.files import Buffer, File
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from storage.preallocation import PREALLOCATES_FROM, preallocated_bytes
from storage.producer_state import CompletedTransaction, ProducerEntry
from storage.segment import Segment
from storage.segments import is_roll_due


class StagedAppend:
    """A batch with assigned offsets, from `Log.stage` until its write is completed or has failed."""

    __slots__ = ("completed", "data", "first_offset", "header", "is_duplicate", "last_offset", "leader_epoch",
                 "log_append_time_ms", "producer_after", "producer_before", "size", "tag")  # fmt: skip

    def __init__(
        self,
        header: BatchHeader,
        data: Buffer,
        size: int,
        first_offset: int,
        last_offset: int,
        leader_epoch: int,
        log_append_time_ms: int,
        producer_before: ProducerEntry | None = None,
        producer_after: ProducerEntry | None = None,
        completed: CompletedTransaction | None = None,
        is_duplicate: bool = False,
    ) -> None:
        self.header = header
        """As the batch came: its base offset and leader epoch are those before stamping."""
        self.data = data
        """What is written: exactly the batch. Empty for a duplicate."""
        self.size = size
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.leader_epoch = leader_epoch
        self.log_append_time_ms = log_append_time_ms
        """For the answer: the time of the append on a LogAppendTime topic or of a duplicate's original, else -1."""
        self.producer_before = producer_before
        self.producer_after = producer_after
        """The producer once this batch stands; None where the batch has no producer id."""
        self.completed = completed
        """The transaction that this batch, a marker, ends."""
        self.is_duplicate = is_duplicate
        """Nothing is written: the offsets are the original's. It is answered when everything before it is."""
        self.tag: Any = None
        """The callback of the append's owner; storage does not look at it."""

    def __repr__(self) -> str:
        kind = "duplicate of" if self.is_duplicate else "staged at"
        return f"<StagedAppend {kind} {self.first_offset}..{self.last_offset}, {self.size} bytes>"


class LogWrite:
    """The staged batches that one system call writes into one segment."""

    __slots__ = ("buffers", "file", "position", "segment", "size", "staged")

    def __init__(self, segment: Segment, file: File, staged: Sequence[StagedAppend]) -> None:
        self.segment = segment
        self.file = file
        self.position = segment.size
        self.staged = staged
        """The batches, in the order of their offsets."""
        self.buffers = [one.data for one in staged if one.size]
        self.size = sum([one.size for one in staged])
        """Bytes to write; 0 if all are duplicates."""

    def perform(self) -> None:
        """Write; touches nothing but the file. Raises DiskFull, LogDirFailed; a part may be in the file then."""
        if self.size:
            position, file = self.position, self.file
            if position >= PREALLOCATES_FROM and position + self.size > file.reserved_to:
                file.reserve(position, self.size + preallocated_bytes(position))
            file.append_vector(self.buffers, position)


def needs_roll(
    segment: Segment,
    staged: StagedAppend,
    config: LogConfig,
    after_ms: int,
    written: int,
    first_timestamp: int,
    now_ms: int,
) -> bool:
    """Whether a batch must go into a new segment; see `is_roll_due`. A duplicate, never written, needs no segment."""
    return not staged.is_duplicate and is_roll_due(
        segment, config, after_ms, written=written, first_timestamp=first_timestamp, size=staged.size,
        last_offset=staged.last_offset, max_timestamp=staged.header.max_timestamp, now_ms=now_ms,
    )  # fmt: skip


def next_base_offset(log_end_offset: int, staged: StagedAppend) -> int:
    """The base offset of a new segment that begins with this batch.

    It is the log's end, also where a follower's batch leaves a gap: recovery takes a segment that ends before the next
    begins for one whose end is lost. Behind a gap that no index entry can bridge the segment begins with the batch.
    """
    return log_end_offset if staged.last_offset - log_end_offset <= MOST_RELATIVE_OFFSET else staged.first_offset


def count_for(
    segment: Segment, staged: Sequence[StagedAppend], config: LogConfig, after_ms: int, next_offset: int, now_ms: int
) -> int:
    """How many of ``staged``, which end before ``next_offset``, go into ``segment`` before another one is due."""
    first_timestamp = segment.first_timestamp if segment.size else staged[0].header.max_timestamp
    size = staged[0].size
    behind = sum([one.size for one in staged]) - size
    # All of them together are as large, as late and as far on as any of them: almost always they just fit.
    if not is_roll_due(
        segment, config, after_ms, written=segment.size + size, first_timestamp=first_timestamp, size=behind,
        last_offset=next_offset - 1, max_timestamp=max([one.header.max_timestamp for one in staged]), now_ms=now_ms,
    ):  # fmt: skip
        return len(staged)
    count = 1
    for following in staged[1:]:
        if needs_roll(segment, following, config, after_ms, segment.size + size, first_timestamp, now_ms):
            break
        size += following.size
        count += 1
    return count
