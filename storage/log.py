"""One partition's log: batches are appended at its end, read anywhere, and removed at its beginning.

    log start offset      the oldest record that clients may read; inside the first segment after DeleteRecords
    recovery point        everything below is on disk
    last stable offset    no transaction below it is undecided; what read_committed sees
    high watermark        everything below is on all in-sync replicas; what consumers see
    log end offset        the next record's

An append takes the steps of `storage.appending`. A log belongs to one thread; only `perform` of a write, a flush and a
removal, which touch no attribute of the log, may run in other threads.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from config.log_config import LogConfig
from storage.aborted_transactions import aborted_in, confirmed_index
from storage.appending import LogWrite, StagedAppend, count_for, needs_roll, next_base_offset
from storage.batch.record_batch import BatchHeader
from storage.batch.validation import AppendRules
from storage.errors import DiskFull, FileTooLarge, LogDirFailed, OffsetOutOfRange, StorageError
from storage.flushing import FlushTarget
from storage.index.transaction_index import AbortedTransaction
from storage.leader_epochs import EpochEndOffset, LeaderEpochs
from storage.local_log import LocalLog
from storage.log_stats import NOTHING, LogStats, Stretch
from storage.producer_state import Producers
from storage.reading import NOTHING_READ, LogRead, bytes_before, read_region, stored_batches
from storage.recovery import NEVER_EXPIRES, load_producers
from storage.removal import PendingRemoval
from storage.segment import Segment
from storage.segment_files import FileSizes
from storage.segment_swap import SegmentSwap
from storage.segments import AT_ONCE, roll_after_ms
from storage.staging import Staging
from storage.timestamp_search import RecordPlace, first_record_at, record_of_largest_timestamp
from storage.topic_partition import TopicPartition


class Log:
    """A partition's log. Made by `storage.loading`; offsets are absolute, sizes bytes, times milliseconds."""

    __slots__ = (
        "_closed_end_offset", "_config", "_flushing", "_local", "_may_have_aborted", "_roll_after_ms", "_snapshots",
        "_staging", "_walk_all_records", "_write", "cleaned_to", "directory", "given_up", "held", "high_watermark",
        "is_being_cleaned", "leader_epochs", "log_end_offset", "log_start_offset", "lost_from", "producers", "rules",
        "segments", "stage", "stage_marker", "stage_trusted", "stats", "topic_id", "topic_partition",
    )  # fmt: skip

    def __init__(
        self,
        local: LocalLog,
        *,
        topic_partition: TopicPartition,
        topic_id: bytes | None,
        config: LogConfig,
        producers: Producers,
        leader_epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        cleaned_to: int | None,
        lost_from: int | None,
        walk_all_records: bool,
        was_clean: bool,
    ) -> None:
        self._local = local
        self.directory = local.directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        """The topic id, 16 bytes; None for the metadata log."""
        self.segments = local.segments
        self.producers = producers
        self.leader_epochs = leader_epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        self.stats = LogStats()
        self.held: Stretch = NOTHING
        """Records that the last retention pass kept because they are not archived."""
        self.given_up: Stretch = NOTHING
        """Records that retention has removed though they were not archived."""
        self.cleaned_to = cleaned_to
        """The offset up to which the cleaner has come; None if it has never cleaned this log."""
        self.lost_from = lost_from
        """The first offset whose record the disk had lost when the log was opened; None if it has lost none. A follower
        fetches again from there on."""
        self.is_being_cleaned = False
        """Whether the cleaner is at work on the log's segments: retention leaves them alone."""
        self._snapshots = local.snapshots
        self._flushing = local.flushing
        self._walk_all_records = walk_all_records
        self._closed_end_offset = log_end_offset if was_clean else -1
        """Where the log ended when it was last closed in order; -1: its active segment is not as closing leaves it."""
        self._staging = Staging(
            topic_partition, producers, end_offset=log_end_offset, segment_bytes=config.segment_bytes
        )
        # Bound methods, without a call in between, because every produced batch is staged with them.
        self.stage = self._staging.stage
        """Assign offsets to a client's batch: see `Staging.stage`."""
        self.stage_trusted = self._staging.stage_trusted
        """Assign offsets to a batch that needs no checks: see `Staging.stage_trusted`."""
        self.stage_marker = self._staging.stage_marker
        """Assign an offset to a transaction marker: see `Staging.stage_marker`."""
        self._write: LogWrite | None = None
        self._may_have_aborted = any(segment.transaction_index for segment in local.segments)
        """Whether a transaction was aborted in this log; its segment may be removed since then."""
        producers.replicated_to(high_watermark)
        self.config = config

    def __repr__(self) -> str:
        return f"<Log {self.topic_partition} {self.log_start_offset}..{self.log_end_offset} in {self.directory}>"

    @property
    def config(self) -> LogConfig:
        """The log's settings. New ones apply from the next append on; segments keep the index size they began with."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._staging.segment_bytes = config.segment_bytes
        self._roll_after_ms = roll_after_ms(config, self.segments.active.jitter)
        self.rules = AppendRules.of(config, walk_all=self._walk_all_records)

    @property
    def size(self) -> int:
        """Bytes of batches, those before the log start offset in the first segment included."""
        return self.segments.size

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed sees."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    # Appending --------------------------------------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """The base offset of the next staged batch: behind everything staged before it."""
        return self._staging.next_offset

    @property
    def staged(self) -> Sequence[StagedAppend]:
        """Batches that are staged and neither published nor taken back, in order; a write under way included."""
        return self._staging.batches

    def begin_write(self, now_ms: int) -> LogWrite | None:
        """The next write: the staged batches that go into one segment. None without any, or while a write is under way.

        Begins a new segment first if one is due. If that fails (DiskFull, TooManyOpenFiles, LogDirFailed), hand the
        error to `fail_write` with no write.
        """
        staged = self._staging.batches
        if not staged or self._write is not None:
            return None
        segment = self.segments.active
        first = staged[0]
        after_ms = self._roll_after_ms
        if needs_roll(segment, first, self._config, after_ms, segment.size, segment.first_timestamp, now_ms):
            segment = self._roll(next_base_offset(self.log_end_offset, first), now_ms)
            after_ms = self._roll_after_ms
        count = 1
        if len(staged) > 1:
            count = count_for(segment, staged, self._config, after_ms, self._staging.next_offset, now_ms)
        taken = staged[:count]
        write = LogWrite(segment, segment.files.log_file(), taken)
        self._write = write
        return write

    def complete_write(self, write: LogWrite) -> None:
        """Publish the written batches: they are in the log from now on.

        Raises LogDirFailed if an index cannot be written; everything is published all the same.
        """
        assert write is self._write, "a log has one write under way"
        self._write = None
        segment = write.segment
        position = write.position
        stats = self.stats
        end_offset = self.log_end_offset
        latest_epoch = self.leader_epochs.latest
        appended = segment.appended
        records = duplicates = 0
        failure: LogDirFailed | None = None
        for staged in write.staged:
            header = staged.header
            if staged.is_duplicate:
                duplicates += 1
                stats.duplicate_records += header.record_count
                stats.duplicate_bytes += header.size
                continue
            first_offset = staged.first_offset
            if first_offset != end_offset:
                segment.forget_recent_batches()
            end_offset = staged.last_offset + 1
            size = staged.size
            try:
                appended(position, size, first_offset, end_offset - 1, header[8])
                if staged.leader_epoch > latest_epoch:
                    self.leader_epochs.assign(staged.leader_epoch, first_offset)
                    latest_epoch = staged.leader_epoch
                if staged.producer_after is not None:
                    self._publish_producer(segment, staged)
            except LogDirFailed as error:
                failure = error
            position += size
            records += header[12]
        self.log_end_offset = end_offset
        stats.duplicates += duplicates
        stats.batches_appended += len(write.staged) - duplicates
        stats.records_appended += records
        stats.bytes_appended += write.size
        del self._staging.batches[: len(write.staged)]
        if failure is not None:
            raise failure

    def _publish_producer(self, segment: Segment, staged: StagedAppend) -> None:
        assert staged.producer_after is not None
        if staged.completed is not None:
            aborted = self.producers.transaction_ended(staged.completed)
            if aborted is not None:
                segment.transaction_index.append(aborted)
                self._may_have_aborted = True
        elif staged.producer_after.transaction_first_offset >= 0:
            self.producers.transaction_may_begin(staged.producer_before, staged.producer_after)

    def fail_write(self, write: LogWrite | None, error: StorageError) -> list[StagedAppend]:
        """Take back a write that failed with ``error`` (None: it could not even begin) and all that is staged.

        Everything behind it is built on its offsets and sequences, so it fails too: all of it is returned, in order.
        """
        assert write is self._write, "a log has one write under way"
        self._write = None
        failed = self._staging.take_back(self.log_end_offset)
        self._closed_end_offset = -1  # closing syncs the cut
        self.stats.writes_failed += 1
        if isinstance(error, FileTooLarge):
            self._roll_after_ms = AT_ONCE
        if write is not None and not isinstance(error, LogDirFailed):
            # Bytes that cannot be cut now do no harm: the next write overwrites them, or closing the segment cuts them.
            with suppress(StorageError):
                write.file.truncate(write.position)
        return failed

    @property
    def is_writing(self) -> bool:
        """Whether a write is under way."""
        return self._write is not None

    def take_back_unwritten(self) -> list[StagedAppend]:
        """Take back the batches that are staged and not being written, and return them in order."""
        written = [] if self._write is None else self._write.staged
        end_offset = max((staged.last_offset + 1 for staged in written if not staged.is_duplicate), default=-1)
        return self._staging.take_back(max(end_offset, self.log_end_offset), kept=len(written))

    def append_all(self, now_ms: int) -> None:
        """Write and publish everything that is staged, here and now. On an error all of it is taken back."""
        while self._staging.batches:
            write = None
            try:
                write = self.begin_write(now_ms)
                assert write is not None, "append_all cannot wait for another write"
                write.perform()
            except StorageError as error:
                self.fail_write(write, error)
                raise
            self.complete_write(write)

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write the topic id where the log's directory did not name it. Raises DiskFull, LogDirFailed."""
        self._local.write_topic_id(topic_id)
        self.topic_id = topic_id

    def assign_epoch_start(self, epoch: int) -> None:
        """Note that a new leader's ``epoch`` begins at the log's end, unless the epoch is known already."""
        self.leader_epochs.assign(epoch, self.log_end_offset)

    # Rolling ----------------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> Segment:
        """Begin a new segment at the log's end. An empty active segment stays instead.

        Raises DiskFull, TooManyOpenFiles, LogDirFailed; the log is as it was then.
        """
        active = self.segments.active
        if active.base_offset == self.log_end_offset:
            return active
        assert self._write is None, "a log does not roll below a write"
        return self._roll(self.log_end_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        old = self.segments.active
        if base_offset == old.base_offset:
            return old
        new = self._local.roll(base_offset, self._staging.published_producers(), self._config, now_ms)
        self._roll_after_ms = roll_after_ms(self._config, new.jitter)
        self.stats.rolls += 1
        return new

    # Reading ----------------------------------------------------------------------------------------------------------

    def advance_high_watermark(self, offset: int) -> bool:
        """Advance the high watermark to ``offset``, which all replicas have reached. False if it does not rise."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.replicated_to(offset)
        return True

    def read(
        self,
        fetch_offset: int,
        *,
        max_bytes: int,
        upper_bound_offset: int,
        at_least_one_batch: bool,
        in_memory_only: bool = False,
    ) -> LogRead:
        """Read a range that begins with the batch that holds ``fetch_offset`` and ends before ``upper_bound_offset``.

        It stays in one segment and within ``max_bytes``; its last batch may be cut short there. The first is whole:
        where it is too large it comes all the same with ``at_least_one_batch``, and without that there is nothing.
        Reads headers only, of an index interval at most. Raises OffsetOutOfRange; with ``in_memory_only`` NotInMemory,
        where that or what is to be sent would have to wait for the disk (`storage.read_ahead`).
        """
        if not self.log_start_offset <= fetch_offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} has offsets {self.log_start_offset} to {self.log_end_offset}, "
                f"and {fetch_offset} was asked for"
            )
        if fetch_offset >= upper_bound_offset or (max_bytes <= 0 and not at_least_one_batch):
            return NOTHING_READ
        return read_region(
            self.segments, self.log_end_offset, fetch_offset, max_bytes, upper_bound_offset, at_least_one_batch,
            in_memory_only,
        )  # fmt: skip

    def readable_bytes(self, fetch_offset: int, upper_bound_offset: int, most: int) -> int:
        """Roughly what a read up to ``most`` bytes would give, for a fetch that waits for enough; never too little.

        0 for an offset that is not in the log.
        """
        if not self.log_start_offset <= fetch_offset < upper_bound_offset:
            return 0
        return bytes_before(self.segments, self.log_end_offset, fetch_offset, upper_bound_offset, most)

    def batches(
        self, from_offset: int = 0, *, end_offset: int | None = None
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches that end at or behind ``from_offset`` and begin before ``end_offset``, or the log's end."""
        end = self.log_end_offset if end_offset is None else end_offset
        return stored_batches(self.segments, max(from_offset, self.log_start_offset), end)

    def aborted_transactions(self, fetch_offset: int, read: LogRead) -> list[AbortedTransaction]:
        """The aborted transactions with records in the range that a read at ``fetch_offset`` gave, or a few more."""
        # Most logs have none: readers of committed records pay nothing for that (bench: isolation).
        if not self._may_have_aborted or read.region is None:
            return []
        return aborted_in(self.segments, self._snapshots, fetch_offset, read.region, self.log_end_offset)

    def offset_for_timestamp(self, timestamp_ms: int, upper_bound_offset: int) -> RecordPlace | None:
        """The first record below ``upper_bound_offset`` with this timestamp or a larger one; None if there is none.

        Raises RecordTooLarge where a record larger than ``max.decompressed.message.bytes`` stands before it.
        """
        most_record_bytes = self._config.max_decompressed_message_bytes
        found = first_record_at(self.segments, timestamp_ms, self.log_start_offset, most_record_bytes)
        return found if found is not None and found.offset < upper_bound_offset else None

    def offset_of_max_timestamp(self) -> RecordPlace | None:
        """The first record with the largest timestamp in the log; None if the log is empty."""
        return record_of_largest_timestamp(self.segments, self._config.max_decompressed_message_bytes)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Where a leader epoch ends; (-1, -1) if its end is not known."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset)

    # Flushing ---------------------------------------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on disk."""
        return self._flushing.recovery_point

    @property
    def unflushed_records(self) -> int:
        """How many offsets no flush has covered, nor will when it is done."""
        return self.log_end_offset - self._flushing.under_way_to

    @property
    def due_flush_offset(self) -> int:
        """Up to where `flush.messages` asks for a flush that is not done: to the end of the log, or as far as the flush
        goes that is under way; 0 where it asks for none.

        A repetition of a batch whose flush is under way has to wait for it as its original has.
        """
        flush_messages = self._config.flush_messages
        if self.unflushed_records >= flush_messages:
            return self.log_end_offset
        under_way_to = self._flushing.under_way_to
        return under_way_to if under_way_to - self._flushing.recovery_point >= flush_messages else 0

    @property
    def start_to_checkpoint(self) -> int | None:
        """The log start offset to write to the checkpoint; None where the first segment's name says it.

        While the files that retention has renamed might come back after a power cut, the first segment does not.
        """
        if self.log_start_offset > self.segments[0].base_offset or (
            self.log_start_offset and not self._flushing.names_are_on_disk
        ):
            return self.log_start_offset
        return None

    def is_start_saved(self, checkpointed: int) -> bool:
        """Whether the log would begin after a power cut where it begins now, if the checkpoint has ``checkpointed``."""
        wanted = self.start_to_checkpoint
        return checkpointed <= self.log_start_offset if wanted is None else checkpointed == wanted

    def needs_flush(self, now_ms: int) -> bool:
        """Whether a flush is due: a segment has been rolled, or `flush.messages` or `flush.ms` says so."""
        return self._flushing.is_due(self.segments, self.log_end_offset, self._config, now_ms)

    def begin_flush(self, now_ms: int, *, everything: bool = False) -> FlushTarget | None:
        """Begin a flush; None if there is nothing to sync. The active segment takes part only if it must.

        Perform it, in any thread, then `complete_flush`. Several may be under way.
        """
        offset = self.segments.active.base_offset
        if everything or self._flushing.covers_active_segment(self.log_end_offset, self._config, now_ms):
            offset = self.log_end_offset
        return self._flushing.begin(self.segments, self.leader_epochs, self._snapshots, offset, now_ms)

    def complete_flush(self, target: FlushTarget) -> None:
        """Note that ``target`` has been performed: everything below its offset is on disk."""
        self._flushing.complete(target)
        self.stats.flushes += 1

    def flush(self, now_ms: int) -> None:
        """Flush everything, here and now. Raises LogDirFailed."""
        target = self.begin_flush(now_ms, everything=True)
        if target is not None:
            target.perform()
            self.complete_flush(target)

    # Removing ---------------------------------------------------------------------------------------------------------

    def start_offset_to(self, offset: int) -> bool:
        """Advance the log start to ``offset`` (DeleteRecords). False if the log begins there or later already.

        Raises OffsetOutOfRange beyond the high watermark. Whole segments below go with the next retention pass.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"{self.topic_partition} can be deleted up to its high watermark {self.high_watermark}, not to {offset}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.cut_before(offset)
        return True

    def remove_first_segments(self, count: int) -> list[PendingRemoval]:
        """Take the oldest segments out of the log and rename their files; returns the removals, to be performed later.

        The active segment must stay. Raises LogDirFailed.
        """
        first_kept = self.segments[count].base_offset
        # Whether or not the files can be removed, their records are out of the log.
        if first_kept > self.log_start_offset:
            self.log_start_offset = first_kept
            self.leader_epochs.cut_before(first_kept)
        removals = []
        for segment in self.segments.remove_first(count):
            removals.append(self._local.rename_as_removed(segment, self._config.file_delete_delay_ms))
            self.stats.segments_removed += 1
        return removals

    # Cleaning ---------------------------------------------------------------------------------------------------------

    def prepare_transactions(self) -> None:
        """Let the files of the transaction indexes be right and whole, for the cleaner, which reads them.

        Raises DiskFull, TooManyOpenFiles, LogDirFailed.
        """
        for segment in self.segments:
            if segment.transaction_index:
                confirmed_index(segment, self.segments, self._snapshots)
            segment.transaction_index.write_out()

    def begin_swap(self, base_offsets: Sequence[int], sizes: FileSizes, modified_ms: int) -> SegmentSwap | None:
        """Begin to replace segments with a cleaned copy, whose files have ``sizes`` (see `storage.segment_swap`).

        None if the log does not have these segments any more.
        """
        return self._local.begin_swap(base_offsets, sizes, modified_ms, self._config)

    def swap_in(self, swap: SegmentSwap) -> list[PendingRemoval] | None:
        """Put a prepared copy in the place of its segments; returns the removals of these, to be performed later.

        None if the log does not have these segments any more. Raises LogDirFailed.
        """
        return self._local.swap_in(swap, self._config.file_delete_delay_ms)

    def end_swap(self, swap: SegmentSwap) -> None:
        """Give the copy its own name, unless the log was cut in front of it since `swap_in`. Raises LogDirFailed."""
        if any(segment is swap.copy for segment in self.segments):
            swap.end()
            self._flushing.directory_changed()

    def expect_truncation_to(self, offset: int) -> None:
        """Prepare to cut the log to ``offset``: nothing of the segment that holds it counts as on disk any more."""
        self._flushing.truncated_to(min(self.segments.at(offset).base_offset, offset))

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Remove everything at and above ``offset``, and the rest of the batch that holds it.

        For a follower whose leader's history differs. Removed bytes are gone from the disk when this returns, so that a
        later append is never followed by old batches. `LogManager.truncate_to` lowers the checkpoints too. An epoch
        that begins at the end goes in any case: this log's broker has led in it, and has written nothing.
        Raises LogDirFailed.
        """
        assert not self.staged, f"{self} is truncated below {len(self.staged)} appends"
        if offset >= self.log_end_offset:
            self.leader_epochs.cut_from(self.log_end_offset)
            return
        if offset < self.log_start_offset:
            self.truncate_fully_to(offset, now_ms)
            return
        self._end_at(max(self._local.cut_to(offset), self.log_start_offset))
        self.leader_epochs.cut_from(self.log_end_offset)
        self._snapshots.remove_above(self.log_end_offset)
        steps = load_producers(
            self.producers, self._snapshots, list(self.segments), end_offset=self.log_end_offset, now_ms=now_ms,
            expiration_ms=NEVER_EXPIRES,
        )  # fmt: skip
        for _ in steps:
            pass
        self.producers.replicated_to(self.high_watermark)

    def truncate_fully_to(self, offset: int, now_ms: int) -> None:
        """Remove everything; the log begins and ends at ``offset``, on disk too. Raises DiskFull, LogDirFailed."""
        assert not self.staged, f"{self} is truncated below {len(self.staged)} appends"
        self._local.discard_all()
        self.leader_epochs.clear()
        self._local.begin_anew_at(offset, self._config, now_ms)
        self.log_start_offset = offset
        self._end_at(offset)
        self.producers.replace(())

    def _end_at(self, end_offset: int) -> None:
        self._closed_end_offset = -1
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, end_offset)
        if self.lost_from is not None and end_offset <= self.lost_from:
            self.lost_from = None
        self.log_end_offset = self._staging.next_offset = end_offset
        self.high_watermark = min(max(self.high_watermark, self.log_start_offset), end_offset)
        self._roll_after_ms = roll_after_ms(self._config, self.segments.active.jitter)
        self._flushing.truncated_to(end_offset)

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent for ``expiration_ms``; how many. Does nothing during a write."""
        return 0 if self._staging.batches else self.producers.remove_expired(now_ms, expiration_ms)

    # Moving to another data directory (`storage.future_logs`) ---------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether the log is held, while its files change their place."""
        return self._write is not None and not self._write.staged

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is under way."""
        return self._flushing.is_under_way

    def hold(self) -> None:
        """Let what is appended wait, as behind a write that is under way, until `release`."""
        assert self._write is None, f"{self} is held during a write"
        assert not self.staged, f"{self} is held below {len(self.staged)} appends"
        self._write = LogWrite(self.segments.active, self.segments.active.files.log_file(), ())

    def release(self) -> None:
        """End `hold`; what has waited is to be written now."""
        assert self.is_held, f"{self} is not held"
        self._write = None

    def complete_copy(self, copy: "Log") -> None:
        """Let ``copy``, which has the batches of this log, have all else that no batch tells: epochs without records,
        and producers whose batches were removed. A flush of ``copy`` saves that.

        Raises DiskFull, LogDirFailed.
        """
        assert copy.log_end_offset == self.log_end_offset, f"{copy} is no copy of {self}"
        if copy.leader_epochs.entries != self.leader_epochs.entries:
            copy.leader_epochs.replace(self.leader_epochs.entries)
        copy._snapshots.remove(self.log_end_offset)
        copy._snapshots.take(self.log_end_offset, self.producers.entries)

    def go_on_in(self, copy: "Log", directory: str) -> None:
        """Go on in the files of ``copy``, whose directory has just been renamed to ``directory``."""
        assert copy.log_end_offset == self.log_end_offset, f"{copy} does not end where {self} does"
        copy.moved_to(directory)
        self._local.close()
        self._local = local = copy._local
        self.directory = directory
        self.segments = local.segments
        self._snapshots = local.snapshots
        self._flushing = local.flushing
        self.leader_epochs = copy.leader_epochs
        self.leader_epochs.cut_before(self.log_start_offset)
        self._may_have_aborted = self._may_have_aborted or copy._may_have_aborted
        self._closed_end_offset = -1
        self.config = self._config

    def moved_to(self, directory: str) -> None:
        """Note that the log's directory was renamed, and that the new name is on disk."""
        self._local.moved_to(directory)
        self.leader_epochs.moved_to(directory)
        self.directory = directory

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Let the log end at ``offset``, where compaction has left no batch up to it. Raises what `roll` raises."""
        self._roll(offset, now_ms)
        self.log_end_offset = self._staging.next_offset = offset

    # The end ----------------------------------------------------------------------------------------------------------

    def close(self, now_ms: int) -> None:
        """Close the log in order: everything on disk, indexes trimmed, a producer snapshot at the log's end.

        Raises DiskFull, LogDirFailed; the next start must recover the log then.
        """
        self.settle()
        self.flush(now_ms)
        if not self.leader_epochs.is_saved:
            raise DiskFull(f"{self.directory} has no space for its leader epochs")
        self.abandon()

    def settle(self) -> None:
        """Trim the indexes and take a producer snapshot at the log's end, without syncing: no append is due soon."""
        assert not self.staged, f"{self} is settled below {len(self.staged)} appends"
        active = self.segments.active
        if (
            active.is_preallocated
            or self.log_end_offset != self._closed_end_offset
            or self._flushing.has_names_to_flush
        ):
            active.deactivate()
            self._snapshots.take(self.log_end_offset, self.producers.entries)
            self._flushing.directory_changed()

    def abandon(self) -> None:
        """Close all files without a write: the directory has failed, or is being removed."""
        self._local.close()
