"""The counters of one log, which the metrics read."""

from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(slots=True, eq=False, repr=False)
class LogStats:
    """Counters since the log was opened."""

    batches_appended: int = 0
    records_appended: int = 0
    bytes_appended: int = 0
    duplicates: int = 0
    """Batches that were there already and were not written again."""
    duplicate_records: int = 0
    duplicate_bytes: int = 0
    writes_failed: int = 0
    rolls: int = 0
    flushes: int = 0
    segments_removed: int = 0
    records_given_up: int = 0
    """Offsets that retention has removed though they were not archived."""


class Stretch(NamedTuple):
    """The range of expired segments that is not archived."""

    first_offset: int = 0
    end_offset: int = 0
    size: int = 0
    """Bytes of the whole segments."""

    @property
    def records(self) -> int:
        """How many offsets the range has."""
        return self.end_offset - self.first_offset


NOTHING: Final = Stretch()
