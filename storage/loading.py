"""Opening one log: what stands in its directory becomes a `Log`.

1. What was half done when the process ended is finished or taken back: `.deleted`, `.cleaned`, `.swap`, `.tmp` files.
2. Segments are made from the directory listing; after a clean stop none of them is read but the end of the last.
3. A segment without a usable index is rebuilt. After an unclean stop all are from the recovery point on: checked,
   indexed anew and, at the first bad batch, cut; segments behind that go.
4. Log end, leader epochs, producers and start offset are brought in line with what is left.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

from config.log_config import LogConfig
from storage.batch_reader import read_batches
from storage.checkpoints import LEADER_EPOCHS, read_leader_epochs
from storage.errors import CorruptCheckpoint, CorruptIndex
from storage.files import DirectoryEntry, FileSystem
from storage.leader_epochs import LeaderEpochs
from storage.log import Log
from storage.open_files import OpenFiles
from storage.producer_snapshots import ProducerSnapshots
from storage.producer_state import Producers
from storage.recovery import finish_segment, load_producers, recover_segment
from storage.segment import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    Segment,
    SegmentFiles,
)
from storage.segments import Segments
from storage.topic_partition import TopicPartition

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000

_CLEANED_SUFFIX: Final = ".cleaned"
_SWAP_SUFFIX: Final = ".swap"
_TEMPORARY_SUFFIX: Final = ".tmp"


def no_chance() -> int:
    """No jitter."""
    return 0


@dataclass(slots=True, kw_only=True)
class LoadReport:
    """What opening a log came across."""

    bytes_recovered: int = 0
    """Bytes read and checked."""
    bytes_cut: int = 0
    """Bytes behind the first bad batch, whole segments included."""
    segments_rebuilt: int = 0


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
    was_clean: bool = False,
    topic_id: bytes | None = None,
    open_files: OpenFiles | None = None,
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    chance: Callable[[], int] = no_chance,
    walk_all_records: bool = False,
    report: LoadReport | None = None,
) -> Log:
    """Open the log in ``directory``, or make one, in one go. See `load_log`."""
    steps = load_log(
        files,
        directory,
        topic_partition=topic_partition,
        config=config,
        now_ms=now_ms,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
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
    was_clean: bool = False,
    topic_id: bytes | None = None,
    open_files: OpenFiles | None = None,
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    chance: Callable[[], int] = no_chance,
    walk_all_records: bool = False,
    report: LoadReport | None = None,
) -> Generator[int, None, Log]:
    """Open the log in ``directory``, or make one, step by step; each step yields the bytes it has read.

    Args:
        recovery_point, log_start_offset, high_watermark: From the checkpoints; 0 where they say nothing.
        was_clean: The directory was closed in order, so recovery is not needed.
        chance: A non-negative number for each new segment, for `segment.jitter.ms`.
        walk_all_records: `ottla.records.validation=full`.
        report: Filled with what was found.

    Raises:
        DiskFull, LogDirFailed, TooManyOpenFiles.
    """
    open_files = OpenFiles() if open_files is None else open_files
    report = LoadReport() if report is None else report
    files.make_directory(directory)
    listing = _finish_what_was_begun(files, directory)
    segments = _segments_in(files, open_files, directory, listing, config, chance)
    snapshots = ProducerSnapshots(files, directory, _offsets_of(listing, SNAPSHOT_SUFFIX))
    epochs_path = f"{directory}/{LEADER_EPOCHS}"
    try:
        leader_epochs = LeaderEpochs(files, epochs_path, read_leader_epochs(files, epochs_path))
    except CorruptCheckpoint:
        # The batches know their epochs; reading all of them brings the file back.
        leader_epochs = LeaderEpochs(files, epochs_path, [])
        was_clean, recovery_point = False, 0

    producers = Producers()
    unchecked = Segments(segments).from_offset(recovery_point) if segments and not was_clean else []
    if unchecked:
        # The batches know better than a file that may be older than they are.
        leader_epochs.cut_from(unchecked[0].base_offset)
    next_offset = None
    rebuilt: Segment | None = None
    for segment in tuple(segments):
        if segment in unchecked[1:] and next_offset != segment.base_offset and not config.is_compacted:
            # What has been lost between them has left no torn batch: the file before ends where it was last written.
            _discard_from(files, directory, segments, segment, report)
            break
        if segment not in unchecked and _has_usable_indexes(segment):
            if segment is not segments[-1]:
                continue
            next_offset = segment.find_next_offset()
            if next_offset is not None:
                continue
        if segment in unchecked[:1]:
            # What lies behind may not have been written as the later snapshots say.
            snapshots.remove_above(segment.base_offset)
        if rebuilt is None or segments[segments.index(segment) - 1] is not rebuilt:
            yield from load_producers(
                producers, snapshots, segments, log_start_offset=log_start_offset, end_offset=segment.base_offset,
                now_ms=now_ms, expiration_ms=producer_id_expiration_ms,
            )  # fmt: skip
        next_offset, cut_bytes = yield from recover_segment(segment, producers, leader_epochs)
        rebuilt = segment
        is_end = bool(cut_bytes) and segment in unchecked
        if is_end and segment is not segments[-1]:
            # On disk before this one is cut: no hole, whenever the power is cut.
            _discard_from(files, directory, segments, segments[segments.index(segment) + 1], report)
        finish_segment(segment, cut_bytes)
        snapshots.take(next_offset, producers.entries)
        report.segments_rebuilt += 1
        report.bytes_recovered += segment.size
        report.bytes_cut += cut_bytes
        if is_end:
            break

    if segments and next_offset is not None and next_offset < log_start_offset:
        for segment in reversed(segments):
            segment.discard()
        segments, next_offset = [], None
        leader_epochs.clear()
        snapshots.remove_above(-1)
        files.fsync_directory(directory)
    if not segments:
        first = Segment(
            files, open_files, directory, log_start_offset, config=config, created_ms=now_ms, jitter=chance()
        )
        first.create(preallocated_bytes=config.segment_bytes if config.preallocate else 0)
        segments = [first]
        next_offset = log_start_offset
    assert next_offset is not None
    log_end_offset = next_offset
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    segments[-1].activate()

    leader_epochs.cut_from(log_end_offset + 1)
    leader_epochs.cut_before(log_start_offset)
    snapshots.remove_strays({segment.base_offset for segment in segments})
    if was_clean and not snapshots.offsets:
        # Nobody with a producer id has ever written here, or there would be one.
        for offset in (*(segment.base_offset for segment in segments[-2:]), log_end_offset):
            if offset > log_start_offset:
                snapshots.take(offset, {})
    elif rebuilt is not segments[-1]:
        yield from load_producers(
            producers, snapshots, segments, log_start_offset=log_start_offset, end_offset=log_end_offset,
            now_ms=now_ms, expiration_ms=producer_id_expiration_ms,
        )  # fmt: skip
    return Log(
        files=files,
        open_files=open_files,
        directory=directory,
        topic_partition=topic_partition,
        topic_id=topic_id,
        config=config,
        segments=Segments(segments),
        producers=producers,
        snapshots=snapshots,
        leader_epochs=leader_epochs,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        recovery_point=log_end_offset if was_clean else min(recovery_point, log_end_offset),
        high_watermark=min(max(high_watermark, log_start_offset), log_end_offset),
        now_ms=now_ms,
        chance=chance,
        walk_all_records=walk_all_records,
        was_clean=was_clean,
    )


def _discard_from(
    files: FileSystem, directory: str, segments: list[Segment], first: Segment, report: LoadReport
) -> None:
    """Remove ``first`` and all segments behind it, from the end on; they are gone from the disk on return."""
    while segments[-1].base_offset >= first.base_offset:
        discarded = segments.pop()
        report.bytes_cut += discarded.size
        discarded.discard()
    files.fsync_directory(directory)


def _has_usable_indexes(segment: Segment) -> bool:
    """Whether the indexes are there and whole, so that the segment need not be read."""
    if not (segment.offset_index.is_whole and segment.time_index.is_whole):
        return False
    try:
        segment.transaction_index.check()
    except CorruptIndex:
        return False
    return True


def _offset_in(name: str, suffix: str) -> int | None:
    """The offset in a file's name, if it has the form of one with this suffix."""
    digits = name.removesuffix(suffix)
    return int(digits) if len(digits) == len(name) - len(suffix) == 20 and digits.isdigit() else None


def _offsets_of(listing: list[DirectoryEntry], suffix: str) -> list[int]:
    return [offset for entry in listing if (offset := _offset_in(entry.name, suffix)) is not None]


def _finish_what_was_begun(files: FileSystem, directory: str) -> list[DirectoryEntry]:
    """Finish or take back what the last process was in the middle of; the listing of what is left.

    The cleaner writes `.cleaned` files, renames them to `.swap` from the highest base offset down once all are on disk,
    removes what they replace and strips the suffix. So `.swap` files count, unless lower `.cleaned` ones are left.
    """
    listing = files.list_directory(directory)
    cleaned = _offsets_of(listing, LOG_SUFFIX + _CLEANED_SUFFIX)
    unfinished_from = min(cleaned, default=None)
    swapped: list[str] = []
    for entry in listing:
        path = f"{directory}/{entry.name}"
        if entry.name.endswith((DELETED_SUFFIX, _CLEANED_SUFFIX, _TEMPORARY_SUFFIX)):
            files.remove(path)
        elif entry.name.endswith(_SWAP_SUFFIX):
            if unfinished_from is not None and int(entry.name[:20]) >= unfinished_from:
                files.remove(path)
            else:
                swapped.append(entry.name)
    if swapped:
        _swap_in(files, directory, listing, swapped)
    return files.list_directory(directory)


def _swap_in(files: FileSystem, directory: str, listing: list[DirectoryEntry], swapped: list[str]) -> None:
    sizes = {entry.name: entry.size for entry in listing}
    spans = []
    for base_offset in _offsets_of([e for e in listing if e.name in set(swapped)], LOG_SUFFIX + _SWAP_SUFFIX):
        name = f"{base_offset:020d}{LOG_SUFFIX}{_SWAP_SUFFIX}"
        end_offset = base_offset
        for batch in read_batches(files.open_read(f"{directory}/{name}"), 0, sizes[name]):
            end_offset = batch.header.next_offset
        spans.append((base_offset, end_offset))
    if spans:
        lowest, highest = min(spans)[0], max(end for _, end in spans)
        for suffix in SEGMENT_SUFFIXES:
            for base_offset in _offsets_of(listing, suffix):
                if lowest <= base_offset < highest:
                    files.remove(f"{directory}/{base_offset:020d}{suffix}")
    for name in swapped:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(_SWAP_SUFFIX)}")


def _segments_in(
    files: FileSystem,
    open_files: OpenFiles,
    directory: str,
    listing: list[DirectoryEntry],
    config: LogConfig,
    chance: Callable[[], int],
) -> list[Segment]:
    """The segments whose files are there, by base offset. Indexes without a log are removed."""
    entries = {entry.name: entry for entry in listing}
    bases = set(_offsets_of(listing, LOG_SUFFIX))
    for suffix in SEGMENT_SUFFIXES:
        for base_offset in _offsets_of(listing, suffix):
            if base_offset not in bases:
                files.remove(f"{directory}/{base_offset:020d}{suffix}")
    segments = []
    for base_offset in sorted(bases):
        sizes = [
            entry.size if (entry := entries.get(f"{base_offset:020d}{suffix}")) is not None else -1
            for suffix in SEGMENT_SUFFIXES
        ]
        segments.append(
            Segment(
                files,
                open_files,
                directory,
                base_offset,
                config=config,
                jitter=chance(),
                created_ms=entries[f"{base_offset:020d}{LOG_SUFFIX}"].mtime_ms,
                found=SegmentFiles(*sizes),
            )
        )
    return segments
