"""A cleaning round in a process of its own: the messages to that process and from it.

Messages are plain data, a JSON line each:

    ->  {"directory": ..., "segments": [...], ...}     the order: every field of `CleaningOrder`
    <-  {"cleaned": {...}}                             a group of segments is copied and synced: a `CleanedGroup`
    <-  {"report": {...}}                              done: a `CleaningReport`; or
    <-  {"failure": "CorruptBatch", "text": ...}       why it could not be done

Copies have names that end with `.cleaned`. The broker renames them, and nobody else touches them.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from config.log_config import LogConfig
from storage.cleaning.batch_cleaning import CleaningStats, LastBatch
from storage.errors import (
    CorruptBatch,
    CorruptIndex,
    DecompressionTooLarge,
    DiskFull,
    FilesRemoved,
    LogDirFailed,
    RecordTooLarge,
    SegmentTooLarge,
    StorageError,
    TooManyOpenFiles,
    UndecodableRecords,
)
from storage.segment_files import FileSizes

Message = dict[str, Any]

FAILURES: Final = {
    error.__name__: error
    for error in (
        CorruptBatch, CorruptIndex, DecompressionTooLarge, DiskFull, FilesRemoved, LogDirFailed, RecordTooLarge,
        SegmentTooLarge, TooManyOpenFiles, UndecodableRecords,
    )
}  # fmt: skip
_DEFAULTS: Final = LogConfig()


class SourceSegment(NamedTuple):
    """A segment of the log as it is when the round begins."""

    base_offset: int
    sizes: FileSizes
    modified_ms: int
    """When its file of batches was last written to; wall clock, ms."""


class CleanerLimits(NamedTuple):
    """How much memory, disk space and time a round may take; sizes are bytes."""

    map_bytes: int
    """Memory for the offset map, at most."""
    map_load_factor: float
    """The part of the map's slots that is used, at most."""
    io_buffer_bytes: int
    """How much is read, and written, at once."""
    max_bytes_per_second: float
    """How much is read and written in a second, at most."""
    reserve_bytes: int
    """Disk space that copies leave free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningOrder:
    """The log to clean, and how. Offsets are absolute, sizes bytes, times milliseconds."""

    directory: str
    config: LogConfig
    segments: tuple[SourceSegment, ...]
    """All segments of the log, by base offset; the last is the active one, of which only the transaction index is
    read."""
    first_dirty_offset: int
    """Records below have been cleaned."""
    end_offset: int
    """Records from here on are not cleaned: the base offset of a segment."""
    last_batches: Mapping[int, LastBatch]
    """By producer id."""
    now_ms: int
    limits: CleanerLimits

    def to_message(self) -> Message:
        """The order as a JSON object."""
        message = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        message["config"] = {
            name: sorted(value) if isinstance(value, frozenset) else value for name, value in self.config
        }
        message["last_batches"] = [[producer_id, *last] for producer_id, last in self.last_batches.items()]
        return message

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """The order from a message that `to_message` made."""
        # JSON has lists only: a field whose default is a set or a tuple is converted back.
        config = {name: type(getattr(_DEFAULTS, name))(value) for name, value in message["config"].items()}
        segments = tuple(
            SourceSegment(base_offset, FileSizes(*sizes), modified_ms)
            for base_offset, sizes, modified_ms in message["segments"]
        )
        last_batches = {producer_id: LastBatch(*last) for producer_id, *last in message["last_batches"]}
        made = {
            "config": LogConfig(**config), "segments": segments, "last_batches": last_batches,
            "limits": CleanerLimits(*message["limits"]),
        }  # fmt: skip
        return cls(**dict(message) | made)


class CleanedGroup(NamedTuple):
    """Segments that were copied into one, which has the base offset of the first."""

    base_offsets: tuple[int, ...]
    sizes: FileSizes
    """Bytes of the copy's files."""
    modified_ms: int
    """What the copy says about when it was last written to: as the last of the segments does."""

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """The group from a message that `perform` made."""
        return cls(tuple(message["base_offsets"]), FileSizes(*message["sizes"]), message["modified_ms"])


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningReport:
    """The outcome of a round."""

    cleaned_to: int
    """The offset up to which the log is clean: where the next round begins."""
    map_utilization: float
    """The used part of the offset map, 0 to 1."""
    stats: CleaningStats

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """The report from a message that `perform` made."""
        return cls(**dict(message) | {"stats": CleaningStats(**message["stats"])})


def conclude(message: Mapping[str, Any]) -> CleanedGroup | CleaningReport:
    """What a message from the process says. Raises the error that kept the log from being cleaned."""
    if "failure" in message:
        error: type[StorageError] = FAILURES[message["failure"]]
        raise error(message["text"])
    if "cleaned" in message:
        return CleanedGroup.from_message(message["cleaned"])
    return CleaningReport.from_message(message["report"])


def messages(round_: Callable[[], Iterator[CleanedGroup | CleaningReport]]) -> Iterator[Message]:
    """The messages of a round for the broker; the last says how it ended."""
    try:
        for result in round_():
            if isinstance(result, CleanedGroup):
                yield {"cleaned": result._asdict()}
            else:
                yield {"report": dataclasses.asdict(result)}
    except tuple(FAILURES.values()) as error:
        name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in FAILURES)
        yield {"failure": name, "text": str(error)}
