"""Retention: which of a log's oldest segments have expired, and which of these wait until they are archived."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from storage.errors import DiskFull, TooManyOpenFiles
from storage.log import Log
from storage.log_stats import NOTHING, Stretch
from storage.removal import PendingRemoval
from storage.segment import Segment


class Due(NamedTuple):
    """How many of a log's segments are removed and how many are held, counted from the oldest on."""

    removed: int
    """Segments to remove; if these are all segments, a new one must be made first."""
    given_up: int = 0
    """How many of the last removed segments are not archived, because of `ottla.archive.max.bytes`."""
    held: int = 0
    """How many segments behind the removed ones have expired, and wait until they are archived."""

    @property
    def without_last(self) -> "Due":
        """The same, but the last segment to remove stays."""
        return Due(self.removed - 1, max(self.given_up - 1, 0), self.held)


def apply_retention(log: Log, now_ms: int, held_from: int | None = None) -> list[PendingRemoval]:
    """Take expired segments out of a log and rename their files; returns the removals, to be performed later.

    Records at or behind ``held_from`` wait to be archived; `Log.held` and `Log.given_up` count them.
    Raises DiskFull, TooManyOpenFiles, LogDirFailed.
    """
    due = _due_segments(log, now_ms, held_from)
    if due.removed == len(log.segments):
        if log.staged:
            # The active segment is about to be written to: it is not so old after all.
            due = due.without_last
        else:
            try:
                log.roll(now_ms)
            except (DiskFull, TooManyOpenFiles):
                # On a full disk the active segment stays; removals may free enough space for the next pass.
                due = due.without_last
                if due.removed == 0:
                    raise
    log.held, log.given_up = _waiting(log, due, held_from)
    log.stats.records_given_up += log.given_up.records
    return log.remove_first_segments(due.removed) if due.removed else []


def _due_segments(log: Log, now_ms: int, held_from: int | None) -> Due:
    """Decide which segments are removed and which are held.

    A segment goes if one of these holds for it and, by the same rule, for all before it:

        start    the next segment begins at or below the log start offset
        size     without it the log is still at least as large as `retention.bytes`
        time     its largest timestamp is more than `retention.ms` ago; without timestamps, the last write to its file

    None goes that reaches beyond the high watermark, and never an empty active one. The last two rules hold only for
    topics that delete. By these two none goes that reaches beyond ``held_from`` (None: all may go) either, as long as
    what waits there is no more than `ottla.archive.max.bytes`; what is more goes, from the oldest on.
    """
    segments, config = log.segments, log.config
    ends = [*segments.bases[1:], log.log_end_offset]

    def oldest(is_due: Callable[[Segment, int], bool]) -> int:
        count = 0
        for segment, end_offset in zip(segments, ends, strict=True):
            is_empty_active = segment is segments.active and segment.size == 0
            if is_empty_active or end_offset > log.high_watermark or not is_due(segment, end_offset):
                break
            count += 1
        return count

    def lies_before_start(segment: Segment, end_offset: int) -> bool:
        return segment is not segments.active and end_offset <= log.log_start_offset

    before_start = oldest(lies_before_start)
    if not config.deletes:
        return Due(before_start)
    count = before_start

    if config.retention_bytes >= 0:
        excess = segments.size - config.retention_bytes

        def is_in_excess(segment: Segment, _: int) -> bool:
            nonlocal excess
            excess -= segment.size
            return excess >= 0

        count = max(count, oldest(is_in_excess))

    if config.retention_ms >= 0:

        def is_too_old(segment: Segment, _: int) -> bool:
            newest_ms = segment.largest.timestamp
            if newest_ms < 0:
                newest_ms = segment.files.written_ms()
            return now_ms - newest_ms > config.retention_ms

        count = max(count, oldest(is_too_old))

    if held_from is None:
        return Due(count)
    archived = max(before_start, oldest(lambda _, end_offset: end_offset <= held_from))
    sizes = [segment.size for segment in list(segments)[archived:count]]
    given_up = _excess(sizes, config.ottla_archive_max_bytes)
    return Due(min(archived, count) + given_up, given_up, len(sizes) - given_up)


def _waiting(log: Log, due: Due, held_from: int | None) -> tuple[Stretch, Stretch]:
    """The ranges that are held, and that are given up."""

    def stretch(first: int, end: int) -> Stretch:
        if held_from is None or first == end:
            return NOTHING
        some = list(log.segments)[first:end]
        return Stretch(
            first_offset=max(some[0].base_offset, held_from),
            end_offset=log.segments.end_of(some[-1], log.log_end_offset),
            size=sum(segment.size for segment in some),
        )

    return stretch(due.removed, due.removed + due.held), stretch(due.removed - due.given_up, due.removed)


def _excess(sizes: Sequence[int], max_bytes: int) -> int:
    """How many, from the first on, must go so that the others are at most ``max_bytes`` together; -1 is no limit."""
    if max_bytes < 0:
        return 0
    count, left = 0, sum(sizes)
    while left > max_bytes:
        left -= sizes[count]
        count += 1
    return count
