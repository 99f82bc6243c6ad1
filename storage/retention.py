"""Which of a log's oldest segments have had their time."""

from collections.abc import Callable

from config.log_config import LogConfig
from storage.segment import Segment
from storage.segments import Segments


def segments_to_remove(
    segments: Segments,
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
    mtime_ms: Callable[[str], int],
) -> int:
    """How many segments, from the oldest on, are to be removed; all of them means that a new one must be made first.

    A segment goes if one of these holds for it and, by the same rule, for all before it:

        start    the next segment begins at or below the log start offset
        size     without it the log is still at least as large as `retention.bytes`
        time     its largest timestamp is more than `retention.ms` ago; without timestamps, the last write to its file

    None goes that reaches beyond the high watermark, and never an empty active one. The last two rules hold only for
    topics that delete.
    """
    ends = [*segments.bases[1:], log_end_offset]

    def oldest(is_due: Callable[[Segment, int], bool]) -> int:
        count = 0
        for segment, end_offset in zip(segments, ends, strict=True):
            is_empty_active = segment is segments.active and segment.size == 0
            if is_empty_active or end_offset > high_watermark or not is_due(segment, end_offset):
                break
            count += 1
        return count

    def lies_before_start(segment: Segment, end_offset: int) -> bool:
        return segment is not segments.active and end_offset <= log_start_offset

    count = oldest(lies_before_start)
    if not config.deletes:
        return count

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
                newest_ms = mtime_ms(segment.log_path)
            return now_ms - newest_ms > config.retention_ms

        count = max(count, oldest(is_too_old))
    return count
