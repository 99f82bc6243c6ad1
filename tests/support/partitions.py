"""Partition directories that a test writes batch by batch, and their rows as the log's own reader reads them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.reading.ranges import OffsetRange
from storage.batch.record_batch import TimestampType, read_header, stamp
from storage.batch.records import Record, encode_batch, iterate_records
from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    PARTITION_METADATA,
    MetaProperties,
    write_meta_properties,
    write_topic_id,
)
from storage.files import FileSystem
from storage.index.offset_index import ENTRY as INDEX_ENTRY
from storage.index.transaction_index import ENTRY as TRANSACTION_ENTRY
from tests.support.batches import records

TOPIC = "orders"
CLUSTER = "Lq2xlGBqTcCbPwVhzU0q5A"


@dataclass
class SegmentOnDisk:
    """A segment that is written batch by batch, with index entries where the index interval asks for them."""

    directory: Path
    base_offset: int
    size: int = 0
    positions: list[int] = field(default_factory=list)
    """The positions of the batches."""

    def path(self, suffix: str) -> Path:
        return self.directory / f"{self.base_offset:020d}{suffix}"

    def append(self, batch: bytes) -> None:
        with self.path(".log").open("ab") as file:
            file.write(batch)
        if self.size:
            relative_offset = read_header(batch).last_offset - self.base_offset
            with self.path(".index").open("ab") as file:
                file.write(INDEX_ENTRY.pack(relative_offset, self.size))
        self.positions.append(self.size)
        self.size += len(batch)

    def keep_entries(self, entries: int) -> None:
        """Remove the index entries behind the first ``entries``."""
        path = self.path(".index")
        os.truncate(path, min(entries * INDEX_ENTRY.size, path.stat().st_size))

    def change(self, position: int, data: bytes) -> None:
        """Overwrite bytes of the segment file."""
        with self.path(".log").open("r+b") as file:
            file.seek(position)
            file.write(data)


@dataclass
class PartitionOnDisk:
    """A partition directory to which segments and batches are added."""

    directory: Path
    next_offset: int = 0
    segments: list[SegmentOnDisk] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.roll()

    def roll(self) -> SegmentOnDisk:
        """Begin a new segment."""
        self.segments.append(SegmentOnDisk(self.directory, self.next_offset))
        self.segments[-1].path(".log").touch()
        self.segments[-1].path(".index").touch()
        return self.segments[-1]

    def append(self, content: int | Sequence[Record] | bytes | bytearray = 1, **how: Any) -> int:
        """Append so many records, these records, or a whole batch. Returns the base offset."""
        if isinstance(content, bytes | bytearray):
            batch = bytearray(content)
        else:
            batch = encode_batch(records(content) if isinstance(content, int) else content, **how)
        first_offset = self.next_offset
        stamp(batch, first_offset, 0)
        self.segments[-1].append(bytes(batch))
        self.next_offset = read_header(batch).next_offset
        return first_offset

    def skip_to(self, offset: int) -> None:
        """Leave a gap, as compaction does."""
        self.next_offset = offset

    def index_abort(self, producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int) -> None:
        """Add an entry to the transaction index of the last segment."""
        with self.segments[-1].path(".txnindex").open("ab") as file:
            file.write(TRANSACTION_ENTRY.pack(0, producer_id, first_offset, last_offset, last_stable_offset))

    def range(self, from_offset: int = 0, until_offset: int | None = None, **how: Any) -> OffsetRange:
        until = self.next_offset if until_offset is None else until_offset
        return OffsetRange(TOPIC, 0, str(self.directory), from_offset, until, **how)


def leave_in_order(data: Path, *, cluster_id: str = CLUSTER) -> Path:
    """Make a directory with partitions a data directory as after a clean stop."""
    data.mkdir(exist_ok=True)
    files = FileSystem()
    write_meta_properties(files, str(data / META_PROPERTIES), MetaProperties(cluster_id, 1, None), "")
    for number, directory in enumerate(sorted(data.glob("*-*/")), start=1):
        write_topic_id(files, str(directory / PARTITION_METADATA), number.to_bytes(16, "big"))
    (data / CLEAN_SHUTDOWN).touch()
    return data


def plain_rows(batches: Iterable[bytes]) -> list[dict[str, Any]]:
    """The rows of these batches as the log's own reader reads them, with times in microseconds."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": TOPIC,
            "partition": 0,
            "offset": record.offset,
            "timestamp": record.timestamp * 1000,
            "timestampType": int(read_header(batch).timestamp_type is TimestampType.LOG_APPEND_TIME),
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for batch in batches
        for record in iterate_records(batch)
    ]
