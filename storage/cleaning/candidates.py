"""How dirty a log is, whether it may be cleaned, and up to where.

    clean         segments below the offset that the last round has reached
    cleanable     the segments behind, before the first that must not be cleaned: the active segment, the segment with
                  the last stable offset, that with the recovery point, and with `min.compaction.lag.ms` the first with
                  a record younger than that

Behind the recovery point a power cut may take records away. Until it cannot, the records that they supersede stay.
(Apache Kafka does not wait.)

A log is cleaned when the cleanable part of both exceeds `min.cleanable.dirty.ratio`, or the oldest cleanable record is
older than `max.compaction.lag.ms`. (KIP-58, KIP-354)
"""

from typing import Final, NamedTuple

from storage.cleaning.batch_cleaning import LastBatch
from storage.cleaning.order import CleanerLimits, CleaningOrder, SourceSegment
from storage.log import Log
from storage.segment import Segment

_NO_LIMIT_MS: Final = 2**63 - 1


class Cleanable(NamedTuple):
    """A compacted log as the cleaner sees it."""

    log: Log
    first_dirty_offset: int
    end_offset: int
    """Where the first segment begins that must not be cleaned."""
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """For how long the oldest cleanable record has been due by `max.compaction.lag.ms`; 0 if it is not."""

    @property
    def dirty_ratio(self) -> float:
        """The cleanable part of all bytes that are or could be clean, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the log should be cleaned now."""
        if not self.cleanable_bytes:
            return False
        return self.delay_ms > 0 or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def cleanable(log: Log, now_ms: int) -> Cleanable:
    """How dirty ``log`` is at ``now_ms`` (wall clock). A clean end that is not in the log counts as its start."""
    first_dirty = first_dirty_offset(log)
    segments = log.segments
    end_offset = min(
        segments.at(offset).base_offset
        for offset in (segments.active.base_offset, log.last_stable_offset, log.recovery_point)
    )
    lag_ms = log.config.min_compaction_lag_ms
    clean_bytes = cleanable_bytes = 0
    dirty: list[Segment] = []
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if segments.end_of(segment, log.log_end_offset) <= first_dirty:
            clean_bytes += segment.size
        elif lag_ms > 0 and segment.largest.timestamp > now_ms - lag_ms:
            end_offset = segment.base_offset
        else:
            cleanable_bytes += segment.size
            dirty.append(segment)
    return Cleanable(log, first_dirty, end_offset, clean_bytes, cleanable_bytes, _delay_ms(log, dirty, now_ms))


def first_dirty_offset(log: Log) -> int:
    """Where the next round begins: where the last one ended, if that is in the log."""
    cleaned_to = log.cleaned_to
    if cleaned_to is None or not log.log_start_offset <= cleaned_to <= log.log_end_offset:
        return log.log_start_offset
    return cleaned_to


def order_for(candidate: Cleanable, limits: CleanerLimits, now_ms: int) -> CleaningOrder:
    """The order to clean a log. Raises DiskFull, TooManyOpenFiles, LogDirFailed."""
    log = candidate.log
    log.prepare_transactions()
    return CleaningOrder(
        directory=log.directory,
        config=log.config,
        segments=tuple(
            SourceSegment(segment.base_offset, segment.sizes, segment.files.modified_ms) for segment in log.segments
        ),
        first_dirty_offset=candidate.first_dirty_offset,
        end_offset=candidate.end_offset,
        last_batches={
            entry.producer_id: LastBatch(entry.batches[-1].last_offset if entry.batches else -1, entry.producer_epoch)
            for entry in log.producers
        },
        now_ms=now_ms,
        limits=limits,
    )


def _delay_ms(log: Log, dirty: list[Segment], now_ms: int) -> int:
    most_ms = log.config.max_compaction_lag_ms
    if most_ms == _NO_LIMIT_MS:
        return 0
    oldest_ms = min((first for segment in dirty if (first := segment.first_timestamp) > 0), default=None)
    return 0 if oldest_ms is None else max(now_ms - most_ms - oldest_ms, 0)
