"""Opening one log: a `Log` is made from the files in its directory.

1. What was half done when the process ended is finished or taken back: `.deleted`, `.cleaned`, `.swap`, `.tmp` files.
2. Segments are made from the directory listing; after a clean stop none of them is read but the end of the last.
3. A segment without a usable index is indexed anew. After an unclean stop all are from the recovery point on: checked,
   and cut at the first bad batch; segments behind that go.
4. Log end, leader epochs, producers and start offset are brought in line with what is left. The log never ends below
   its recovery point: offsets that were on disk are not given to other records, even if the disk has lost the first.
   Where records are lost, the log knows from which offset on: a follower fetches them again.

An index that is there and wrong is found out when it is used: see `storage.segment_search`.
"""

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from config.log_config import LogConfig
from storage.checkpoints import LEADER_EPOCHS, read_leader_epochs
from storage.errors import CorruptCheckpoint, CorruptIndex
from storage.file_info import DirectoryEntry
from storage.file_names import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    offset_in,
)
from storage.files import FileSystem
from storage.flushing import Flushing
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from storage.leader_epochs import LeaderEpochs
from storage.local_log import LocalLog
from storage.log import Log
from storage.open_files import OpenFiles
from storage.producer_snapshots import ProducerSnapshots
from storage.producer_state import Producers
from storage.recovery import (
    EVERYTHING,
    Recovered,
    epochs_anew,
    finish_segment,
    load_producers,
    recover_segment,
    transactions_anew,
)
from storage.segment import Segment
from storage.segment_files import FileSizes
from storage.segments import Segments
from storage.topic_partition import TopicPartition
from storage.unfinished import finish_what_was_begun, offsets_of

log = logging.getLogger(__name__)

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000

# When a log is checked, batch by batch, as it is opened.
AFTER_UNCLEAN_STOP: Final = "unclean"
ALWAYS: Final = "always"
NEVER: Final = "never"


def no_chance() -> int:
    """The default for ``chance``: no jitter of `segment.ms`."""
    return 0


@dataclass(slots=True, kw_only=True, repr=False)
class LoadReport:
    """The findings of opening a log, as numbers and text that can be handed from process to process."""

    bytes_recovered: int = 0
    """Bytes read and checked."""
    bytes_cut: int = 0
    """Bytes behind the first bad batch, whole segments included."""
    segments_rebuilt: int = 0
    recovered_from_offset: int = -1
    """The base offset of the first segment that was checked; -1 if the log was stopped in order."""
    log_end_offset: int = 0
    lost_from: int = -1
    """The first offset whose record was on disk, and is lost; -1 if no such record is."""
    findings: list[str] = field(default_factory=list)
    """One sentence for each damage: where it was found, and what was cut or rebuilt."""


def open_log(
    files: FileSystem,
    directory: str,
    *,
    topic_partition: TopicPartition,
    config: LogConfig,
    now_ms: int,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    cleaned_to: int | None = None,
    was_clean: bool = False,
    topic_id: bytes | None = None,
    open_files: OpenFiles | None = None,
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    chance: Callable[[], int] = no_chance,
    walk_all_records: bool = False,
    report: LoadReport | None = None,
) -> Log:
    """Open the log in ``directory``, or make a new log, without a pause. See `load_log`."""
    steps = load_log(
        files,
        directory,
        topic_partition=topic_partition,
        config=config,
        now_ms=now_ms,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        cleaned_to=cleaned_to,
        was_clean=was_clean,
        topic_id=topic_id,
        open_files=open_files,
        producer_id_expiration_ms=producer_id_expiration_ms,
        chance=chance,
        walk_all_records=walk_all_records,
        report=report,
    )
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            log: Log = stop.value
            return log


def load_log(
    files: FileSystem,
    directory: str,
    *,
    topic_partition: TopicPartition,
    config: LogConfig,
    now_ms: int,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    cleaned_to: int | None = None,
    was_clean: bool = False,
    recovery: str = AFTER_UNCLEAN_STOP,
    topic_id: bytes | None = None,
    open_files: OpenFiles | None = None,
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    chance: Callable[[], int] = no_chance,
    walk_all_records: bool = False,
    report: LoadReport | None = None,
) -> Generator[int, None, Log]:
    """Open the log in ``directory``, or make a new log, step by step; each step yields the bytes it has read.

    Args:
        recovery_point, log_start_offset, high_watermark: From the checkpoints; 0 where they say nothing.
        cleaned_to: From the cleaner's checkpoint; None where it says nothing.
        was_clean: The directory was closed in order, so recovery is not needed.
        recovery: When segments are checked: after an unclean stop, always, or never.
        chance: A non-negative number for each new segment, for `segment.jitter.ms`.
        walk_all_records: `ottla.records.validation=full`.
        report: Filled with the findings; without a report they are logged at once.

    Raises:
        DiskFull, LogDirFailed, TooManyOpenFiles.
    """
    is_reported = report is not None
    report = LoadReport() if report is None else report
    loading = _Loading(
        files, directory, config=config, now_ms=now_ms, recovery_point=recovery_point, was_clean=was_clean,
        recovery=recovery, log_start_offset=log_start_offset, cleaned_to=cleaned_to,
        open_files=OpenFiles() if open_files is None else open_files,
        producer_id_expiration_ms=producer_id_expiration_ms, chance=chance, report=report,
    )  # fmt: skip
    yield from loading.steps()
    log_start_offset, log_end_offset = loading.log_start_offset, loading.log_end_offset
    report.log_end_offset = log_end_offset
    for segment in loading.segments:
        segment.files.on_repair = log.warning
    if not is_reported:
        for finding in report.findings:
            log.warning("%s", finding)
    flushing = Flushing(
        files, directory, recovery_point=log_end_offset if was_clean else min(recovery_point, log_end_offset),
        now_ms=now_ms, names_are_flushed=was_clean,
    )  # fmt: skip
    local = LocalLog(
        files, loading.open_files, directory, segments=Segments(loading.segments), snapshots=loading.snapshots,
        flushing=flushing, chance=chance,
    )  # fmt: skip
    return Log(
        local,
        topic_partition=topic_partition,
        topic_id=topic_id,
        config=config,
        producers=loading.producers,
        leader_epochs=loading.leader_epochs,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        high_watermark=min(max(high_watermark, log_start_offset), log_end_offset),
        cleaned_to=cleaned_to,
        lost_from=None if report.lost_from < 0 else report.lost_from,
        walk_all_records=walk_all_records,
        was_clean=was_clean,
    )


def offset_to_check_from(recovery: str, recovery_point: int, *, was_clean: bool) -> int | None:
    """The offset from which on a log's segments are checked when it is opened; None if no segment is."""
    if recovery == ALWAYS:
        return 0
    return None if recovery == NEVER or was_clean else recovery_point


def bytes_from(files: FileSystem, directory: str, offset: int) -> int:
    """Bytes of a log in ``directory``, counted from the segment that holds ``offset``."""
    sizes = {
        base: entry.size
        for entry in files.list_directory(directory)
        if (base := offset_in(entry.name, LOG_SUFFIX)) is not None
    }
    first = max((base for base in sizes if base <= offset), default=0)
    return sum(size for base, size in sizes.items() if base >= first)


class _Loading:
    """One log on its way from files to a `Log`."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        *,
        config: LogConfig,
        now_ms: int,
        recovery_point: int,
        log_start_offset: int,
        cleaned_to: int | None,
        was_clean: bool,
        recovery: str,
        open_files: OpenFiles,
        producer_id_expiration_ms: int,
        chance: Callable[[], int],
        report: LoadReport,
    ) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._recovery_point = recovery_point
        # After a clean stop all of it was on disk, whatever the checkpoint says.
        self._durable_offset = EVERYTHING if was_clean else recovery_point
        self._was_clean = was_clean
        self._cleaned_to = -1 if cleaned_to is None else cleaned_to
        self._check_from = offset_to_check_from(recovery, recovery_point, was_clean=was_clean)
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._chance = chance
        self._report = report
        self._found = report.findings.append
        self._producers_are_at = -1
        """The offset that `producers` is the state at; -1 before it is known."""
        self._has_lost_epochs = False
        self.open_files = open_files
        self.log_start_offset = log_start_offset
        self.log_end_offset = 0
        self.segments: list[Segment] = []
        self.producers = Producers()
        files.make_directory(directory)

    def steps(self) -> Generator[int, None, None]:
        """Load the log; each step yields how many bytes it has read."""
        files, directory = self._files, self._directory
        listing = finish_what_was_begun(files, directory, self._found)
        self.segments = _segments_in(
            files, self.open_files, directory, listing, self._config, self._chance, self._found
        )
        self.snapshots = ProducerSnapshots(files, directory, offsets_of(listing, SNAPSHOT_SUFFIX))
        unchecked = len(self.segments)
        if self._check_from is not None and self.segments:
            unchecked = Segments(self.segments).number_at(self._check_from)
        yield from self._read_epochs(listing, self.segments[:unchecked])
        for segment in self.segments[:unchecked]:
            yield from self._mend_indexes(segment)
        end_offset = yield from self._recover(unchecked)
        self._end_at(end_offset)
        yield from self._know_producers()
        if self._has_lost_epochs:
            self.leader_epochs.save()
        self._report.segments_rebuilt += sum(segment.is_indexed_anew for segment in self.segments)

    def _read_epochs(self, listing: list[DirectoryEntry], unread: list[Segment]) -> Generator[int, None, None]:
        path = f"{self._directory}/{LEADER_EPOCHS}"
        problem = ""
        epochs: list[tuple[int, int]] = []
        try:
            epochs = read_leader_epochs(self._files, path)
            if any(epoch >= next_epoch or at >= next_at for (epoch, at), (next_epoch, next_at) in pairwise(epochs)):
                problem, epochs = f"{path} has epochs or offsets that do not rise", []
        except CorruptCheckpoint as error:
            problem = str(error)
        if not problem and not epochs and any(segment.size for segment in unread):
            is_there = any(entry.name == LEADER_EPOCHS for entry in listing)
            problem = f"{path} {'has no entry' if is_there else 'is missing'}"
        if epochs and self.segments and not self._was_clean:
            start = max(self.log_start_offset, self.segments[0].base_offset)
            if epochs[0][1] > start:
                # The last process was about to let the log begin later, and was killed before that was written down.
                problem, epochs = f"{path} begins at offset {epochs[0][1]}, and the log at {start}", []
        self.leader_epochs = LeaderEpochs(self._files, path, epochs)
        if problem:
            # The batches know their epochs.
            self.leader_epochs.must_be_saved()
            self._has_lost_epochs = True
            yield from epochs_anew(self.leader_epochs, unread)
            self._found(f"{problem}: the leader epochs have been taken from the batches")

    def _mend_indexes(self, segment: Segment) -> Generator[int, None, None]:
        """Rebuild indexes that are missing or not whole; their entries are checked when they are used."""
        transactions = segment.transaction_index
        problems = [
            f"{index.path} {index.problem}" for index in (segment.offset_index, segment.time_index) if index.problem
        ]
        # Where another index is missing, that of transactions may be missing and not just empty.
        are_transactions_in_doubt = bool(problems) and not transactions.size
        if problems:
            yield from segment.index_anew()
        try:
            transactions.check()
        except CorruptIndex as error:
            problems.append(str(error))
            are_transactions_in_doubt = True
            self._report.segments_rebuilt += not segment.is_indexed_anew
        if are_transactions_in_doubt:
            yield from transactions_anew(segment, self.segments, self.snapshots)
        if problems:
            self._report.bytes_recovered += segment.size
            self._found(f"{' and '.join(problems)}: made anew from the {segment.size} bytes of {segment.log_path}")

    def _recover(self, unchecked: int) -> Generator[int, None, int | None]:
        """Check the segments from number ``unchecked`` on, or the end of the last; the offset they end at, if any."""
        if not self.segments:
            return None
        if unchecked == len(self.segments):
            last = self.segments[-1]
            next_offset = last.find_next_offset()
            if next_offset is not None:
                return next_offset
            unchecked -= 1
        else:
            self._report.recovered_from_offset = self.segments[unchecked].base_offset
        if not self._was_clean:
            # What lies behind may not have been written as the later snapshots and the epochs' file say.
            self.snapshots.remove_above(self.segments[unchecked].base_offset)
            self.leader_epochs.cut_from(self.segments[unchecked].base_offset)
        yield from self._load_producers(self.segments[unchecked].base_offset)
        number = unchecked
        while True:
            segment = self.segments[number]
            following = self.segments[number + 1] if number + 1 < len(self.segments) else None
            found = yield from recover_segment(
                segment, self.producers, self.leader_epochs, durable_offset=self._durable_offset,
                end_offset=None if following is None else following.base_offset,
            )  # fmt: skip
            self._report.bytes_recovered += segment.size
            self._producers_are_at = found.next_offset
            for first_offset, end_offset in found.lost:
                self._note_lost(first_offset, end_offset)
            if found.cut_reason:
                self._cut(number, found, following)
            elif following is not None:
                self._mind_the_gap(number, found.next_offset, following)
            finish_segment(segment, found)
            self.snapshots.take(found.next_offset, self.producers.entries)
            number += 1
            if number >= len(self.segments):
                if self._was_clean:
                    # The snapshot of the last stop includes batches that can no longer be read.
                    self._producers_are_at = -1
                return found.next_offset

    def _mind_the_gap(self, number: int, next_offset: int, following: Segment) -> None:
        """Report a segment whose end a power cut has lost while the segment behind it is still there.

        A file may end at a whole batch and still lack the next ones. Above the recovery point what comes behind goes
        too, as behind a batch that is torn: what is left is what was appended first. (Apache Kafka keeps it.)

        The cleaner, too, leaves segments that end before the next begins; and so does a follower whose leader has a gap
        of more offsets than a segment may span.
        """
        may_have_gaps = (
            self._config.is_compacted
            or following.base_offset <= self._cleaned_to
            or following.base_offset - self.segments[number].base_offset > MOST_RELATIVE_OFFSET
        )
        if max(next_offset, self.log_start_offset) < following.base_offset and not may_have_gaps:
            sentence = (
                f"{self.segments[number].log_path} ends at offset {next_offset}, and the next segment begins at "
                f"{following.base_offset}: what is between is lost"
            )
            if next_offset >= self._durable_offset:
                sentence += self._drop_behind(number)
            else:
                self._note_lost(next_offset, following.base_offset)
            self._found(sentence)

    def _note_lost(self, first_offset: int, end_offset: int) -> None:
        """Records of these offsets, ``end_offset`` not among them, were on disk, and are lost; called as they rise."""
        first_offset = max(first_offset, self.log_start_offset)
        if first_offset < end_offset and self._report.lost_from < 0:
            self._report.lost_from = first_offset

    def _drop_behind(self, number: int) -> str:
        """Remove the segments behind number ``number``; returns what was removed, as the end of a sentence.

        From the last one on, and gone from the disk on return, before the segment that stays is cut: so there is no
        hole, whenever the power is cut.
        """
        dropped, self.segments = self.segments[number + 1 :], self.segments[: number + 1]
        if not dropped:
            return ""
        bytes_dropped = sum(later.size for later in dropped)
        for later in reversed(dropped):
            later.files.discard()
        self._files.fsync_directory(self._directory)
        self._report.bytes_cut += bytes_dropped
        return f", and the {len(dropped)} segments behind it with {bytes_dropped} bytes"

    def _cut(self, number: int, found: Recovered, following: Segment | None) -> None:
        """Report what was cut off a segment. Above the recovery point, the segments behind it are removed too."""
        segment = self.segments[number]
        sentence = (
            f"{segment.log_path}, position {segment.size}, offset {found.next_offset}: {found.cut_reason}; "
            f"{found.bytes_cut} bytes were cut off"
        )
        self._report.bytes_cut += found.bytes_cut
        if found.next_offset >= self._durable_offset:
            sentence += self._drop_behind(number)
        elif following is not None:
            self._note_lost(found.next_offset, following.base_offset)
        self._found(sentence)

    def _end_at(self, end_offset: int | None) -> None:
        """Decide where the log begins and ends, and make an active segment if there is no segment."""
        if end_offset is not None and end_offset < self.log_start_offset:
            self._found(
                f"{self._directory} ends at offset {end_offset}, and its records were deleted up to "
                f"{self.log_start_offset}: it begins anew there"
            )
            for segment in reversed(self.segments):
                segment.files.discard()
            self.segments, end_offset = [], None
            self.leader_epochs.clear()
            self.snapshots.remove_above(-1)
            self._files.fsync_directory(self._directory)
        known_end = self.log_start_offset if end_offset is None else end_offset
        self.log_end_offset = max(known_end, self._recovery_point)
        if known_end < self.log_end_offset:
            self._found(
                f"{self._directory} ends at offset {known_end}, and was on disk up to {self._recovery_point}: "
                f"what is between is lost, and the log goes on at {self._recovery_point}"
            )
            self._note_lost(known_end, self._recovery_point)
            if self.segments and self.segments[-1].size == 0:
                self.segments.pop().files.discard()
            elif self.segments:
                self.segments[-1].deactivate()
        if not self.segments or known_end < self.log_end_offset:
            active = Segment(
                self._files, self.open_files, self._directory, self.log_end_offset, config=self._config,
                created_ms=self._now_ms, jitter=self._chance(),
            )  # fmt: skip
            active.create(preallocated_bytes=self._config.segment_bytes if self._config.preallocate else 0)
            self.segments.append(active)
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self.segments[-1].activate()
        if self._producers_are_at == known_end:
            self._producers_are_at = self.log_end_offset
        self.snapshots.remove_above(self.log_end_offset)
        self.leader_epochs.cut_from(self.log_end_offset + 1)
        self.leader_epochs.cut_before(self.log_start_offset)

    def _know_producers(self) -> Generator[int, None, None]:
        self.snapshots.remove_strays({segment.base_offset for segment in self.segments})
        if self._producers_are_at != self.log_end_offset:
            yield from self._load_producers(self.log_end_offset)
            if self._was_clean:
                # A clean stop leaves one for where it stopped; it was there, or it is needed again.
                self.snapshots.take(self.log_end_offset, self.producers.entries)

    def _load_producers(self, end_offset: int) -> Generator[int, None, None]:
        from_offset = yield from load_producers(
            self.producers, self.snapshots, self.segments, end_offset=end_offset, now_ms=self._now_ms,
            expiration_ms=self._producer_id_expiration_ms,
        )  # fmt: skip
        self._producers_are_at = end_offset
        if from_offset < end_offset:
            problem = "; ".join(self.snapshots.damaged) or f"{self.snapshots.path(end_offset)} is missing"
            self._found(f"{problem}: the producers have been taken from the batches from offset {from_offset} on")
        self.snapshots.damaged.clear()


def _segments_in(
    files: FileSystem,
    open_files: OpenFiles,
    directory: str,
    listing: list[DirectoryEntry],
    config: LogConfig,
    chance: Callable[[], int],
    found: Callable[[str], None],
) -> list[Segment]:
    """The segments whose files are there, by base offset. Indexes without a log are removed."""
    entries = {entry.name: entry for entry in listing}
    bases = set(offsets_of(listing, LOG_SUFFIX))
    orphans = [
        f"{base_offset:020d}{suffix}"
        for suffix in SEGMENT_SUFFIXES
        for base_offset in offsets_of(listing, suffix)
        if base_offset not in bases
    ]
    for name in orphans:
        files.remove(f"{directory}/{name}")
    if orphans:
        found(f"{directory} had indexes without their segment: {', '.join(orphans)} were removed")
    segments = []
    for base_offset in sorted(bases):
        sizes = [
            entry.size if (entry := entries.get(f"{base_offset:020d}{suffix}")) is not None else -1
            for suffix in SEGMENT_SUFFIXES
        ]
        segment = Segment(
            files, open_files, directory, base_offset, config=config, jitter=chance(),
            created_ms=entries[f"{base_offset:020d}{LOG_SUFFIX}"].mtime_ms, found=FileSizes(*sizes),
        )  # fmt: skip
        segment.files.on_repair = found
        segments.append(segment)
    return segments
