"""Whether one partition's log is whole: batches, what is derived from them, and what other files claim of them.

After a clean stop everything has to be exact. After a kill only what lies below the recovery point does: segments
from there on are read, cut and indexed anew by the next start, so what is wrong with them is a note at most.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from broker.tools.batches import Unreadable, batches_to_the_end, crc_fault, record_faults
from broker.tools.findings import Findings
from broker.tools.index_check import OffsetIndexCheck, TimeIndexCheck, TransactionIndexCheck
from broker.tools.log_files import UNFINISHED_SUFFIXES, LogFiles
from broker.tools.producer_check import ProducerCheck
from storage.batch_reader import StoredBatch
from storage.checkpoints import LEADER_EPOCHS, read_leader_epochs
from storage.errors import CorruptCheckpoint, UndecodableRecords
from storage.files import FileSystem
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from storage.leader_epochs import LeaderEpochs
from storage.producer_state import read_marker
from storage.segment import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)

ALL_OF_IT: Final = 1 << 63
"""A recovery point above every offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What the files beside a log say of it."""

    was_clean: bool
    """Whether the directory has its clean-shutdown marker."""
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int | None = None
    producer_id_expiration_ms: int
    """How long a producer may be silent before it is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExtent:
    """From where to where a log goes, as far as it is whole."""

    start_offset: int
    end_offset: int
    latest_epoch: int


def _nobody(batch: StoredBatch) -> None:
    pass


def check_log(
    files: FileSystem,
    directory: str,
    claims: Claims,
    findings: Findings,
    on_batch: Callable[[StoredBatch], None] = _nobody,
) -> LogExtent:
    """Check the log in ``directory``; ``on_batch`` is given every whole batch, up to the first damaged one.

    Raises StorageError, FileNotFoundError where a file cannot be read at all.
    """
    log = LogFiles.found_in(files, directory)
    if not log.segment_bases:
        findings.either(directory, "no segment", "at least one", is_damage=claims.was_clean)
        return LogExtent(start_offset=0, end_offset=0, latest_epoch=-1)
    return _LogCheck(files, log, claims, findings, on_batch).run()


class _LogCheck:
    def __init__(
        self,
        files: FileSystem,
        log: LogFiles,
        claims: Claims,
        findings: Findings,
        on_batch: Callable[[StoredBatch], None],
    ) -> None:
        self.files = files
        self.log = log
        self.claims = claims
        self.findings = findings
        self._on_batch = on_batch
        self._bases = log.segment_bases
        self._trusted = self._count_trusted()
        self.next_offset = self._bases[0]
        self.latest_epoch = -1
        self.has_all_batches = True
        """Whether none was cleaned away or is damaged so far: then replaying them gives what the broker had."""
        self._is_broken = False
        self._epochs = self._read_epochs()
        self.producers = ProducerCheck(
            files, log, findings, base_offset=self._bases[0], snapshots=self._snapshots_that_count(),
            expiration_ms=claims.producer_id_expiration_ms,
        )  # fmt: skip

    def run(self) -> LogExtent:
        self._check_names()
        for number, base_offset in enumerate(self._bases):
            end = self._bases[number + 1] if number + 1 < len(self._bases) else None
            if not self._segment(base_offset, end, is_trusted=number < self._trusted):
                self._later_segments(self._bases[number + 1 :])
                break
        self.producers.come_to(self.next_offset, has_all_batches=self.has_all_batches)
        start_offset = max(self.claims.log_start_offset, self._bases[0])
        self._check_end(start_offset)
        return LogExtent(start_offset=start_offset, end_offset=self.next_offset, latest_epoch=self.latest_epoch)

    # What is there ----------------------------------------------------------------------------------------------------

    def _count_trusted(self) -> int:
        """How many segments the next start will take as they are, without looking at their batches."""
        if self.claims.was_clean:
            return len(self._bases)
        return sum(base_offset <= self.claims.recovery_point for base_offset in self._bases[1:])

    def _snapshots_that_count(self) -> list[int]:
        """After a kill the next start makes those anew that lie above the first segment that it reads."""
        first, snapshots = self._bases[0], self.log.snapshots
        if self.claims.was_clean:
            return [offset for offset in snapshots if offset >= first]
        return [offset for offset in snapshots if first <= offset <= self._bases[self._trusted]]

    def _check_names(self) -> None:
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
            self.findings.either(path, str(error), "a checkpoint", is_damage=self._must_hold(self.next_offset))
            return None
        for before, after in pairwise(epochs):
            if not (before[0] < after[0] and before[1] < after[1]):
                self.findings.damage(
                    path, f"epoch {after[0]} from offset {after[1]}", f"more than {before[0]} from {before[1]}"
                )
                return None
        return LeaderEpochs(self.files, path, epochs)

    def _must_hold(self, offset: int) -> bool:
        """Whether what stands at ``offset`` had to survive."""
        return self.claims.was_clean or offset < self.claims.recovery_point

    # Segments ---------------------------------------------------------------------------------------------------------

    def _segment(self, base_offset: int, end_offset: int | None, *, is_trusted: bool) -> bool:
        """Check a segment. False if the next start cuts the log in it."""
        self.findings.segments += 1
        path = self.log.path(base_offset, LOG_SUFFIX)
        file = self.files.open_read(path)
        check = _SegmentCheck(self, path, base_offset, end_offset)
        if is_trusted:
            check.open_indexes()
        for batch in batches_to_the_end(file, file.size):
            if isinstance(batch, Unreadable):
                is_damage = self._must_hold(self.next_offset) or is_trusted
                found = f"{batch.found} ({batch.size} bytes before the end)"
                self.findings.either(path, found, batch.expected, batch.position, is_damage=is_damage)
                if not is_damage:
                    return False
                self._is_broken, self.has_all_batches = True, False
            elif not self._batch(check, batch, is_trusted=is_trusted):
                return False
        check.finish()
        return True

    def _batch(self, check: "_SegmentCheck", batch: StoredBatch, *, is_trusted: bool) -> bool:
        """Check a batch. False if the next start cuts the log here."""
        self.findings.batches += 1
        self.findings.read(len(batch.data))
        header = batch.header
        is_whole = True
        for found, expected in check.faults(batch):
            is_damage = is_trusted or self._must_hold(self.next_offset)
            self.findings.either(check.path, found, expected, batch.position, is_damage=is_damage)
            is_whole = False
            if not is_damage:
                return False
        if not is_whole:
            self._is_broken = True
        is_complete = header.base_offset <= self.next_offset and header.record_count > header.last_offset_delta
        self.has_all_batches = self.has_all_batches and is_whole and is_complete
        self.producers.come_to(header.base_offset, has_all_batches=self.has_all_batches)
        self.next_offset = max(self.next_offset, header.next_offset)
        self.latest_epoch = max(self.latest_epoch, header.partition_leader_epoch)
        check.batch(batch, is_whole=is_whole)
        if not self._is_broken:
            self._on_batch(batch)
        return True

    def _later_segments(self, bases: list[int]) -> None:
        for base_offset in bases:
            path = self.log.path(base_offset, LOG_SUFFIX)
            size = self.log.sizes[file_name(base_offset, LOG_SUFFIX)]
            self.findings.note(path, f"a segment of {size} bytes behind the end of the log", "none")

    def epoch_fault(self, batch: StoredBatch) -> tuple[str, str] | None:
        """Whether the partition's leader epochs have another one for a batch."""
        header = batch.header
        epoch = header.partition_leader_epoch
        offset = max(header.base_offset, self.claims.log_start_offset)
        if self._epochs is None or epoch < 0 or header.last_offset < offset or not self._must_hold(offset):
            return None
        known = self._epochs.epoch_at(offset)
        if known == epoch:
            return None
        return f"leader epoch {epoch} at offset {offset}", f"{known}, as {LEADER_EPOCHS} has it"

    # The end ----------------------------------------------------------------------------------------------------------

    def _check_end(self, start_offset: int) -> None:
        """What the files beside the log say of its end."""
        claims, findings = self.claims, self.findings
        directory, end_offset = self.log.directory, self.next_offset
        if claims.recovery_point > end_offset and claims.recovery_point != ALL_OF_IT:
            findings.damage(
                directory, f"recovery point {claims.recovery_point}", f"at most the log's end, {end_offset}"
            )
        if claims.log_start_offset > end_offset:
            findings.damage(
                directory, f"log start offset {claims.log_start_offset}", f"at most the log's end, {end_offset}"
            )
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
        self._position = 0
        self._offset_index: OffsetIndexCheck | None = None
        self._time_index: TimeIndexCheck | None = None
        self._transaction_index: TransactionIndexCheck | None = None
        self._has_wrong_epoch = False

    def open_indexes(self) -> None:
        """From the first batch on, compare the indexes too."""
        log, base = self._log, self._base_offset
        files, findings = log.files, log.findings
        path = log.log.path(base, OFFSET_INDEX_SUFFIX)
        try:
            self._offset_index = OffsetIndexCheck(files, path, base, findings)
            path = log.log.path(base, TIME_INDEX_SUFFIX)
            self._time_index = TimeIndexCheck(files, path, base, findings)
        except FileNotFoundError:
            findings.damage(path, "no file", "an index for each segment")
        self._transaction_index = TransactionIndexCheck(files, log.log.path(base, TRANSACTION_INDEX_SUFFIX), findings)

    def faults(self, batch: StoredBatch) -> Iterator[tuple[str, str]]:
        """What is wrong with a batch, here and by itself."""
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
        yield from record_faults(batch)

    def batch(self, batch: StoredBatch, *, is_whole: bool) -> None:
        """Compare a batch with the indexes and the leader epochs, and replay it."""
        log, header = self._log, batch.header
        self._position = batch.position + len(batch.data)
        if self._offset_index is not None:
            self._offset_index.batch(header, batch.position)
        if self._time_index is not None:
            self._time_index.batch(header)
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
        """The segment has no more batches."""
        if self._offset_index is not None:
            self._offset_index.finish(self._position)
        if self._time_index is not None:
            self._time_index.finish(self._log.next_offset)
        if self._transaction_index is not None:
            self._transaction_index.finish()
