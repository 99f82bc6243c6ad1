"""A map from archived offsets to produced offsets, as ranges in which both offsets rise by one.

topic, partition where the records were produced to
sourceTopic the topic's name in the archive
sourceOffset, offset of the first record of the range, in the archive and in the topic
records number of records
"""

import bisect
import json
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("sourceTopic", pa.string()),
        pa.field("sourceOffset", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("records", pa.int64()),
    ]
)
PARQUET: Final = ".parquet"
JSON: Final = ".json"


class Stretch(NamedTuple):
    """Consecutive records, in the archive and in the new topic."""

    source_offset: int
    offset: int
    records: int


class PartitionMap:
    """The map of one partition."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self.next_offset = 0

    def add(self, offsets: pa.Array) -> None:
        """Add the archived offsets of the records that were produced next."""
        numbers: Any = offsets.to_numpy()
        breaks = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        for first, end in pairwise(breaks):
            if first == end:
                continue
            source, count = int(numbers[first]), end - first
            last = self.stretches[-1] if self.stretches else None
            if last is not None and last.source_offset + last.records == source:
                self.stretches[-1] = last._replace(records=last.records + count)
            else:
                self.stretches.append(Stretch(source, self.next_offset, count))
            self.next_offset += count

    def translate(self, source_offset: int) -> int:
        """The produced offset that corresponds to a committed offset of the archive."""
        place = bisect.bisect_right(self.stretches, source_offset, key=lambda stretch: stretch.source_offset) - 1
        if place < 0:
            return 0
        stretch = self.stretches[place]
        return stretch.offset + min(source_offset - stretch.source_offset, stretch.records)


def write_offset_map(path: Path, maps: dict[tuple[str, str, int], PartitionMap]) -> None:
    """Write the maps, by (topic in the archive, topic, partition), as Parquet or JSON, by the path's suffix.

    Raises OSError.
    """
    rows = [
        {
            "topic": topic, "partition": partition, "sourceTopic": source, "sourceOffset": stretch.source_offset,
            "offset": stretch.offset, "records": stretch.records,
        }
        for (source, topic, partition), known in sorted(maps.items())
        for stretch in known.stretches
    ]  # fmt: skip
    aside = path.with_name(path.name + ".tmp")
    if path.suffix == PARQUET:
        pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), aside)
    else:
        aside.write_text(json.dumps(rows, indent=1) + "\n")
    aside.replace(path)
