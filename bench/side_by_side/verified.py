"""Verification of every sample: the topic's files are walked batch by batch and all CRCs are computed."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load import LoadFailed
from bench.raw_cases import Bench
from storage.batch.record_batch import HEADER_SIZE, computed_crc, read_header


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedBench(Bench):
    """A bench whose topics' logs are verified when a case is finished with them, before they are removed."""

    data_directory: Path
    libraries: Path | None = None
    """The directory of Kafka's jars, for Kafka's own clients."""

    @contextmanager
    def topic(self, partitions: int, configs: Mapping[str, str] | None = None) -> Iterator[str]:
        # Both name the base: `super()` does not know the class that slots have made of this one.
        with Bench.topic(self, partitions, configs) as name:
            yield name
            stored = Bench.end_offsets(self, name, partitions)
            found = sum(records_in(self.data_directory / f"{name}-{number}") for number in range(partitions))
            if found != stored:
                raise LoadFailed(f"{name} ends after {stored} records, its files hold {found}")


def records_in(directory: Path) -> int:
    """The number of records in a partition's segments. Raises `LoadFailed` for a batch that is not whole."""
    return sum(_records_in_segment(path) for path in sorted(directory.glob("*.log")))


def _records_in_segment(path: Path) -> int:
    size = path.stat().st_size
    if not size:
        return 0
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        return check_batches(view, str(path))


def check_batches(view: memoryview, where: str) -> int:
    """The number of records in ``view``, which must consist of whole batches. Raises `LoadFailed`."""
    position = records = 0
    while position < len(view):
        if position + HEADER_SIZE > len(view):
            raise LoadFailed(f"{where}: {len(view) - position} bytes at {position} are no batch")
        header = read_header(view, position)
        if position + header.size > len(view):
            raise LoadFailed(f"{where}: the batch at {position} has {header.size} bytes, {len(view) - position} follow")
        if computed_crc(view, position, header.size) != header.crc:
            raise LoadFailed(f"{where}: the CRC of the batch at {position} is not that of its bytes")
        records += header.record_count
        position += header.size
    return records
