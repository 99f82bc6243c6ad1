"""The counters of the log cleaner."""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False, repr=False)
class LastRound:
    """The last round of one cleaner."""

    seconds: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    map_utilization: float = 0.0
    """The used part of the offset map, 0 to 1."""


@dataclass(slots=True, eq=False, repr=False)
class CleanerStats:
    """What the cleaners have done; totals since the start."""

    rounds: int = 0
    """Rounds that were completed."""
    failed_rounds: int = 0
    """Rounds that ended with an error of the log or of the disk."""
    deaths: int = 0
    """Cleaner processes that ended in the middle of a round."""
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_moved: int = 0
    """Bytes read, for the offset map too, and written: what the throttle counts."""
    records_read: int = 0
    records_written: int = 0
    segments_replaced: int = 0
    """Segments whose place a cleaned copy has taken."""
    max_dirty_ratio: float = 0.0
    """The largest dirty ratio of a log when a cleaner last looked, 0 to 1."""
    max_delay_ms: int = 0
    """For how long the log that was most overdue by `max.compaction.lag.ms` then had been due."""
    looked_ms: int = 0
    """When a cleaner last looked for a log to clean; wall clock, ms."""
    last_rounds: dict[int, LastRound] = field(default_factory=dict)
    """By the number of the cleaner."""
    dead_cleaners: set[int] = field(default_factory=set)
    """The numbers of cleaners whose process has died in a round, and that have completed none since."""
