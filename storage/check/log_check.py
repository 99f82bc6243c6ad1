"""The check of one partition's log: its batches, the files derived from them, and other files' claims about them.

After a clean stop everything has to be exact. After a kill only what lies below the recovery point does: segments
from there on are read, cut and indexed anew by the next start, so what is wrong with them is a note at most. Where a
broker works, batches below the high watermark have to be whole as well, and what lies behind it is not looked at.

A log can be checked in parts that know nothing of each other: a part begins with a segment that has a producer
snapshot, which says what the batches before it add up to.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from storage.batch.checksum import crc32c
from storage.batch.markers import read_marker
from storage.batch.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    header_struct,
)
from storage.batch.walk import StoredBatch
from storage.check.batches import MOST_CODEC, Unreadable, batches_to_the_end, crc_fault, header_fault, record_faults
from storage.check.findings import Findings
from storage.check.index_check import NOWHERE, OffsetIndexCheck, TimeIndexCheck, TransactionIndexCheck
from storage.check.key_check import KeyCheck
from storage.check.log_files import UNFINISHED_SUFFIXES, LogFiles
from storage.check.producer_check import OpenTransaction, ProducerCheck
from storage.checkpoints import LEADER_EPOCHS, read_leader_epochs
from storage.errors import CorruptCheckpoint, UndecodableRecords
from storage.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from storage.files import FileSystem
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from storage.leader_epochs import LeaderEpochs

ALL_OF_IT: Final = 1 << 63
"""A recovery point above every offset."""

_LEAST_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
# Below this, copying costs less than a view.
_COPIED_BYTES: Final = 4096
_unpack: Final = header_struct(
    "base_offset", "batch_length", "partition_leader_epoch", "magic", "crc", "attributes", "last_offset_delta",
    "max_timestamp", "producer_id", "record_count",
).unpack_from  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims of checkpoints and other files about a log."""

    was_clean: bool
    """Whether the directory has its clean-shutdown marker."""
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int | None = None
    cleaned_to: int | None = None
    """The offset up to which the cleaner has come; None if it has never cleaned the log."""
    producer_id_expiration_ms: int
    """How long a producer may be silent before its state expires."""
    is_preallocated: bool = False
    """Whether the last segment's indexes may have their preallocated length after a clean stop too: Apache Kafka 4.4
    leaves those of the metadata log so."""
    live_end: int | None = None
    """The high watermark that a running broker has just returned; None if no broker works in the directory."""


class Part(NamedTuple):
    """Consecutive segments of a log: those whose base offsets lie between two offsets."""

    from_offset: int
    """The lowest base offset of the part; 0 for the first part."""
    until_offset: int | None
    """The base offset behind the part; None for the last part."""


WHOLE: Final = Part(0, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExtent:
    """Start and end offset of a log, as far as it is whole."""

    start_offset: int
    end_offset: int
    latest_epoch: int
    open_transactions: tuple[OpenTransaction, ...] = ()
    """Transactions that no marker has ended, by their first offsets."""
    missing: int = 0
    """How many offsets from the first segment's base offset to the end have no record, and no marker: the cleaner
    leaves such, and so do damage and lost files."""


def split(log: LogFiles, claims: Claims, most_bytes: int) -> list[Part]:
    """Split a log into parts of little more than ``most_bytes`` each, where its segments and snapshots allow it."""
    starts, size = [0], 0
    snapshots, trusted = set(log.snapshots), _count_trusted(log, claims)
    for number, base_offset in enumerate(log.segment_bases):
        if size >= most_bytes and number <= trusted and base_offset in snapshots:
            starts.append(base_offset)
            size = 0
        size += log.sizes[file_name(base_offset, LOG_SUFFIX)]
    return [Part(*bounds) for bounds in zip(starts, [*starts[1:], None], strict=True)]


def _count_trusted(log: LogFiles, claims: Claims) -> int:
    """How many segments the next start will take as they are, without looking at their batches."""
    bases = log.segment_bases
    if claims.was_clean:
        return len(bases)
    return sum(base_offset <= claims.recovery_point for base_offset in bases[1:])


def ignore_batch(batch: StoredBatch) -> None:
    """What is done with the batches of a log of which nothing but its faults is wanted."""


def check_log(
    files: FileSystem,
    directory: str,
    claims: Claims,
    findings: Findings,
    on_batch: Callable[[StoredBatch], None] = ignore_batch,
    *,
    part: Part = WHOLE,
    with_records: bool = True,
    with_keys: bool = True,
) -> LogExtent:
    """Check the log in ``directory``; ``on_batch`` is given every whole batch, up to the first damaged one.

    Reading the records takes ten times as long as all else: ``with_records`` says whether they are. Where they are, and
    no broker works there, the keys of a whole log that was cleaned are compared ``with_keys``, which takes up to
    `storage.check.key_check.MOST_MAP_BYTES` of memory.
    Raises StorageError, FileNotFoundError where a file cannot be read at all.
    """
    log = LogFiles.found_in(files, directory)
    if not log.segment_bases:
        findings.either(directory, "no segment", "at least one", is_damage=claims.was_clean)
        return LogExtent(start_offset=0, end_offset=0, latest_epoch=-1)
    check = _LogCheck(files, log, claims, findings, on_batch, part, with_records=with_records)
    if with_keys and with_records and part == WHOLE and claims.cleaned_to is not None and claims.live_end is None:
        check.keys = KeyCheck(
            files, log, findings, from_offset=claims.log_start_offset, cleaned_to=claims.cleaned_to
        )  # fmt: skip
    return check.run()


class _LogCheck:
    def __init__(
        self,
        files: FileSystem,
        log: LogFiles,
        claims: Claims,
        findings: Findings,
        on_batch: Callable[[StoredBatch], None],
        part: Part,
        *,
        with_records: bool,
    ) -> None:
        self.files = files
        self.log = log
        self.claims = claims
        self.findings = findings
        self.with_records = with_records
        self._on_batch = on_batch
        self._part = part
        self._bases = log.segment_bases
        self._trusted = _count_trusted(log, claims)
        self._end = claims.live_end if claims.live_end is not None else NOWHERE
        until_offset = part.until_offset if part.until_offset is not None else NOWHERE
        self._mine = [number for number, base in enumerate(self._bases) if part.from_offset <= base < until_offset]
        first = self._bases[self._mine[0]] if self._mine else self._bases[0]
        self._first_offset = self.next_offset = first
        self.records = 0
        """The records, with those of markers, that the batches' headers count."""
        self.latest_epoch = -1
        is_continued = part.from_offset > 0
        self._is_broken = False
        self._epochs = self._read_epochs()
        self.producers = ProducerCheck(
            files, log, findings, base_offset=first,
            snapshots=[offset for offset in self._snapshots_that_count() if first <= offset <= until_offset],
            expiration_ms=claims.producer_id_expiration_ms, is_continued=is_continued,
        )  # fmt: skip
        self.keys: KeyCheck | None = None
        """Compares the keys of a log that was cleaned."""
        self.has_all_batches = not is_continued or self.producers.knows_everything
        """Whether none was cleaned away or is damaged so far: then replaying them gives what the broker had."""

    def run(self) -> LogExtent:
        if self._part.from_offset == 0:
            self._check_names()
        for number in self._mine:
            if not self._segment(number, is_trusted=number < self._trusted):
                if self.claims.live_end is None:
                    self._later_segments(self._bases[number + 1 :])
                break
        if self.keys is not None:
            self.keys.finish()
        start_offset = max(self.claims.log_start_offset, self._bases[0])
        if self._part.until_offset is not None:
            # What the segment's end lacks was cleaned away.
            self.producers.come_to(self._part.until_offset, has_all_batches=self.has_all_batches)
        else:
            self.producers.come_to(self.next_offset, has_all_batches=self.has_all_batches)
            self._check_end(start_offset)
        until_offset = self._part.until_offset
        until_offset = self.next_offset if until_offset is None else min(until_offset, self._end)
        return LogExtent(
            start_offset=start_offset,
            end_offset=self.next_offset,
            latest_epoch=self.latest_epoch,
            open_transactions=self.producers.open_transactions,
            missing=max(until_offset - self._first_offset - self.records, 0),
        )

    # What is there ----------------------------------------------------------------------------------------------------

    def _snapshots_that_count(self) -> list[int]:
        """The snapshots to check: after a kill the next start rewrites those above the first segment that it reads."""
        first, snapshots = self._bases[0], self.log.snapshots
        if self.claims.was_clean:
            return [offset for offset in snapshots if offset >= first]
        return [offset for offset in snapshots if first <= offset <= self._bases[self._trusted]]

    def _check_names(self) -> None:
        if self.claims.live_end is not None:
            return  # a broker that works there rolls, deletes and cleans
        for name in self.log.orphans:
            self.findings.either(
                f"{self.log.directory}/{name}", "an index without a segment", f"{name[:20]}{LOG_SUFFIX} beside it",
                is_damage=self.claims.was_clean,
            )  # fmt: skip
        for name in sorted(self.log.sizes):
            if name.endswith(UNFINISHED_SUFFIXES):
                self.findings.note(f"{self.log.directory}/{name}", "a cleaning that was not finished", "none")

    def _read_epochs(self) -> LeaderEpochs | None:
        path = f"{self.log.directory}/{LEADER_EPOCHS}"
        try:
            epochs = read_leader_epochs(self.files, path)
        except CorruptCheckpoint as error:
            # The next start reads all batches then, and writes the file anew.
            if self._part.from_offset == 0:
                self.findings.either(path, str(error), "a checkpoint", is_damage=self._is_durable(self.next_offset))
            return None
        for before, after in pairwise(epochs):
            if not (before[0] < after[0] and before[1] < after[1]):
                if self._part.from_offset == 0:
                    self.findings.damage(
                        path, f"epoch {after[0]} from offset {after[1]}", f"more than {before[0]} from {before[1]}"
                    )
                return None
        return LeaderEpochs(self.files, path, epochs)

    def _is_durable(self, offset: int) -> bool:
        """Whether the batch at ``offset`` had to survive."""
        return self.claims.was_clean or offset < self.claims.recovery_point

    def _must_hold(self, offset: int) -> bool:
        """Whether there has to be a batch at ``offset``, if a segment begins below it."""
        return self._is_durable(offset) or (self.claims.live_end is not None and offset < self.claims.live_end)

    # Segments ---------------------------------------------------------------------------------------------------------

    def _segment(self, number: int, *, is_trusted: bool) -> bool:
        """Check a segment. False if its bytes from some batch on are not the log's.

        Then the next start cuts them, or they lie behind the batches that a broker has just written."""
        base_offset = self._bases[number]
        end_offset = self._bases[number + 1] if number + 1 < len(self._bases) else None
        self.findings.segments += 1
        path = self.log.path(base_offset, LOG_SUFFIX)
        file = self.files.open_read(path)
        check = _SegmentCheck(self, path, base_offset, end_offset)
        if is_trusted:
            check.open_indexes()
        for batch in batches_to_the_end(file, file.size, check.pass_over):
            if isinstance(batch, Unreadable):
                if self.next_offset >= self._end:
                    return False
                is_damage = self._must_hold(self.next_offset) or is_trusted
                found = f"{batch.found} ({batch.size} bytes before the end)"
                self.findings.either(path, found, batch.expected, batch.position, self.next_offset, is_damage=is_damage)
                if not is_damage:
                    return False
                self._is_broken, self.has_all_batches = True, False
            elif not self._batch(check, batch, is_trusted=is_trusted):
                return False
        check.finish()
        return True

    def _batch(self, check: "_SegmentCheck", batch: StoredBatch, *, is_trusted: bool) -> bool:
        """Check a batch. False if the log does not go on here, as `_segment` has it."""
        if batch.header.base_offset >= self._end:
            return False
        self.findings.batches += 1
        self.findings.read(len(batch.data))
        header = batch.header
        is_whole = True
        for found, expected in check.faults(batch):
            is_damage = is_trusted or self._must_hold(self.next_offset)
            self.findings.either(check.path, found, expected, batch.position, self.next_offset, is_damage=is_damage)
            is_whole = False
            if not is_damage:
                return False
        if is_whole:
            self.records += header.record_count
        else:
            self._is_broken = True
        is_complete = header.base_offset <= self.next_offset and header.record_count > header.last_offset_delta
        self.has_all_batches = self.has_all_batches and is_whole and is_complete
        self.producers.come_to(header.base_offset, has_all_batches=self.has_all_batches)
        self.next_offset = max(self.next_offset, header.next_offset)
        self.latest_epoch = max(self.latest_epoch, header.partition_leader_epoch)
        check.batch(batch, is_whole=is_whole)
        if self.keys is not None and is_whole:
            self.keys.batch(check.path, batch)
        if not self._is_broken:
            self._on_batch(batch)
        return True

    def _later_segments(self, bases: list[int]) -> None:
        for base_offset in bases:
            path = self.log.path(base_offset, LOG_SUFFIX)
            size = self.log.sizes[file_name(base_offset, LOG_SUFFIX)]
            self.findings.note(path, f"a segment of {size} bytes behind the end of the log", "none")

    def plain_until(self, *, looks_at_epochs: bool) -> int:
        """The offset below which a batch with the epoch of the batch before it need not be compared with anything."""
        if self.with_records or self._on_batch is not ignore_batch:
            return -1
        until_offset = min(self._end, self.producers.next_snapshot)
        offset = self.next_offset
        if looks_at_epochs and self._epochs is not None and self._is_durable(offset):
            if offset < self.claims.log_start_offset or self._epochs.epoch_at(offset) != self.latest_epoch:
                return -1
            starts = (start for _, start in self._epochs.entries if start > offset)
            until_offset = min(until_offset, next(starts, NOWHERE))
        return until_offset

    def epoch_fault(self, batch: StoredBatch) -> tuple[str, str] | None:
        """The fault of a batch whose leader epoch differs from that in the partition's leader epochs."""
        header = batch.header
        epoch = header.partition_leader_epoch
        offset = max(header.base_offset, self.claims.log_start_offset)
        if self._epochs is None or epoch < 0 or header.last_offset < offset or not self._is_durable(offset):
            return None
        known = self._epochs.epoch_at(offset)
        if known == epoch:
            return None
        return f"leader epoch {epoch} at offset {offset}", f"{known}, as {LEADER_EPOCHS} has it"

    # The end ----------------------------------------------------------------------------------------------------------

    def _check_end(self, start_offset: int) -> None:
        """Check what checkpoints and leader epochs say of the log's end."""
        claims, findings = self.claims, self.findings
        directory, end_offset = self.log.directory, self.next_offset
        if claims.live_end is not None:
            if end_offset < claims.live_end:
                findings.damage(directory, f"a log that ends at {end_offset}", f"one that ends at {claims.live_end} at "
                                "least, the high watermark")  # fmt: skip
            return
        if claims.recovery_point > end_offset and claims.recovery_point != ALL_OF_IT:
            findings.damage(
                directory, f"recovery point {claims.recovery_point}", f"at most the log's end, {end_offset}"
            )
        if claims.log_start_offset > end_offset:
            findings.damage(
                directory, f"log start offset {claims.log_start_offset}", f"at most the log's end, {end_offset}"
            )
        if claims.cleaned_to is not None and claims.cleaned_to > end_offset:
            # The next start cleans the log from its beginning then.
            findings.either(
                directory, f"a log that was cleaned up to {claims.cleaned_to}", f"at most its end, {end_offset}",
                is_damage=claims.was_clean,
            )  # fmt: skip
        high_watermark = claims.high_watermark
        if claims.was_clean:
            if high_watermark is not None and not start_offset <= high_watermark <= end_offset:
                findings.damage(directory, f"high watermark {high_watermark}", f"{start_offset} to {end_offset}")
            if claims.recovery_point not in (end_offset, ALL_OF_IT):
                findings.damage(directory, f"recovery point {claims.recovery_point}", f"{end_offset}, the log's end")
            if start_offset < end_offset not in self.log.snapshots and not self._is_broken:
                findings.damage(
                    self.log.path(end_offset, SNAPSHOT_SUFFIX), "no producer snapshot", "one at the log's end"
                )
            for offset in self.producers.left:
                findings.damage(
                    self.log.path(offset, SNAPSHOT_SUFFIX), f"offset {offset}", f"at most the log's end, {end_offset}"
                )
        if self._epochs is not None and self._epochs.entries and claims.was_clean:
            epoch, epoch_start = self._epochs.entries[-1]
            if epoch_start > end_offset:
                path = f"{directory}/{LEADER_EPOCHS}"
                findings.damage(path, f"epoch {epoch} from offset {epoch_start}", f"at most {end_offset}")


class _SegmentCheck:
    """One segment's batches, in order, and its indexes, where these have to be right."""

    def __init__(self, log: _LogCheck, path: str, base_offset: int, end_offset: int | None) -> None:
        self.path = path
        self._log = log
        self._base_offset = base_offset
        self._end_offset = end_offset
        """The base offset of the next segment."""
        self._most_offset = base_offset + MOST_RELATIVE_OFFSET
        if end_offset is not None:
            self._most_offset = min(self._most_offset, end_offset - 1)
        self._position = 0
        self._offset_index: OffsetIndexCheck | None = None
        self._time_index: TimeIndexCheck | None = None
        self._transaction_index: TransactionIndexCheck | None = None
        self._has_wrong_epoch = False

    def open_indexes(self) -> None:
        """Begin to compare the indexes too; called before the first batch."""
        log, base = self._log, self._base_offset
        files, findings = log.files, log.findings
        is_preallocated = log.claims.is_preallocated and self._end_offset is None
        path = log.log.path(base, OFFSET_INDEX_SUFFIX)
        try:
            self._offset_index = OffsetIndexCheck(files, path, base, findings, may_be_preallocated=is_preallocated)
            path = log.log.path(base, TIME_INDEX_SUFFIX)
            self._time_index = TimeIndexCheck(files, path, base, findings, may_be_preallocated=is_preallocated)
        except FileNotFoundError:
            findings.damage(path, "no file", "an index for each segment")
        self._transaction_index = TransactionIndexCheck(files, log.log.path(base, TRANSACTION_INDEX_SUFFIX), findings)

    def faults(self, batch: StoredBatch) -> Iterator[tuple[str, str]]:
        """The faults of a batch, by itself and at its place in the segment."""
        header = batch.header
        if (fault := crc_fault(batch)) is not None:
            yield fault
            return
        if header.base_offset < self._log.next_offset:
            yield f"base offset {header.base_offset}", f"{self._log.next_offset} or more"
        if self._end_offset is not None and header.last_offset >= self._end_offset:
            yield f"last offset {header.last_offset}", f"one below {self._end_offset}, the next segment's first"
        if header.last_offset - self._base_offset > MOST_RELATIVE_OFFSET:
            yield f"last offset {header.last_offset}", f"at most {MOST_RELATIVE_OFFSET} above {self._base_offset}"
        if header.partition_leader_epoch < self._log.latest_epoch:
            yield f"leader epoch {header.partition_leader_epoch}", f"{self._log.latest_epoch} or more"
        if self._log.with_records:
            yield from record_faults(batch)
        elif (fault := header_fault(header)) is not None:
            yield fault

    def pass_over(self, chunk: bytes, at: int, position: int) -> int:
        """Check the batches from ``at`` on that need no more than header and CRC; returns where another one begins.

        Nearly all are of this kind, so the loop makes no object that it need not (bench: audit).
        A test holds it against `BatchWalk`.
        """
        log = self._log
        until_offset = log.plain_until(looks_at_epochs=not self._has_wrong_epoch)
        next_offset = log.next_offset
        if next_offset >= until_offset:
            return at
        offset_index, time_index = self._offset_index, self._time_index
        indexed_position = NOWHERE if offset_index is None else offset_index.next_position
        timed_offset = NOWHERE if time_index is None else time_index.next_offset
        largest = -1 if time_index is None else time_index.largest
        has_all, latest_epoch, most_offset = log.has_all_batches, log.latest_epoch, self._most_offset
        produced: list[tuple[int, int, int]] = []
        view = memoryview(chunk)
        begun, count, counted, start, left = at, 0, 0, position - at, len(chunk)
        last_header = left - HEADER_SIZE
        while at <= last_header:
            (
                base_offset, length, epoch, magic, crc, attributes, delta, max_timestamp, producer_id, records
            ) = _unpack(chunk, at)  # fmt: skip
            end = at + length + LOG_OVERHEAD
            if magic != MAGIC or length < _LEAST_LENGTH or end > left:
                break
            last_offset = base_offset + delta
            checked = at + ATTRIBUTES_POSITION
            if (
                not next_offset <= base_offset <= last_offset <= most_offset
                or base_offset >= until_offset
                or epoch != latest_epoch
                or attributes & (CONTROL_BIT | DELETE_HORIZON_BIT)
                or attributes & CODEC_BITS > MOST_CODEC
                or not 0 <= records <= delta + 1
                or (has_all and (base_offset > next_offset or records <= delta))
                or crc32c(chunk[checked:end] if length < _COPIED_BYTES else view[checked:end]) != crc
            ):
                break
            if start + at >= indexed_position and offset_index is not None:
                offset_index.batch(last_offset, start + at)
                indexed_position = offset_index.next_position
            if last_offset >= timed_offset and time_index is not None:
                time_index.largest = largest
                time_index.batch(last_offset, max_timestamp)
                timed_offset = time_index.next_offset
            if max_timestamp > largest:
                largest = max_timestamp
            if producer_id >= 0:
                produced.append((producer_id, attributes, at))
            next_offset = last_offset + 1
            at = end
            count += 1
            counted += records
        if count:
            log.findings.batches += count
            log.findings.read(at - begun)
            log.records += counted
            log.next_offset = next_offset
            self._position = start + at
            if time_index is not None:
                time_index.largest = largest
            log.producers.replay_all(chunk, produced)
        return at

    def batch(self, batch: StoredBatch, *, is_whole: bool) -> None:
        """Compare a batch with the indexes and the leader epochs, and replay it."""
        log, header = self._log, batch.header
        self._position = batch.position + len(batch.data)
        if self._offset_index is not None:
            self._offset_index.batch(header.last_offset, batch.position)
        if self._time_index is not None:
            self._time_index.batch(header.last_offset, header.max_timestamp)
        if not is_whole:
            return
        if not self._has_wrong_epoch and (fault := log.epoch_fault(batch)) is not None:
            self._has_wrong_epoch = True
            log.findings.damage(self.path, *fault, batch.position)
        if not header.has_producer_id:
            return
        try:
            aborted = log.producers.replay(batch)
            marker = read_marker(header, batch.data)
        except UndecodableRecords as error:
            log.findings.damage(self.path, str(error), "a marker", batch.position)
            return
        if marker is not None and self._transaction_index is not None:
            has_all = log.has_all_batches and log.producers.knows_everything
            self._transaction_index.marker(marker, aborted, sees_beginnings=has_all)

    def finish(self) -> None:
        """Check the ends of the indexes; the segment has no more batches."""
        if self._offset_index is not None:
            self._offset_index.finish(self._position)
        if self._time_index is not None:
            self._time_index.finish(self._log.next_offset)
        if self._transaction_index is not None:
            self._transaction_index.finish()
