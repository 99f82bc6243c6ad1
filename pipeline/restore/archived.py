"""An archive as a restore reads it: batches as they stood in the log, records as a consumer would have got them."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.archive.archive import Archive, BatchExtent
from pipeline.archive.manifest import Manifest
from pipeline.archive.run import READ_COMMITTED
from pipeline.batches import DamagedArchive
from storage.batch.markers import read_marker
from storage.batch.record_batch import BatchHeader, Buffer

_MICROSECONDS: Final = 1000


class Archived:
    """The archive that is restored, at one version. All methods raise DamagedArchive for files that have changed."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    @property
    def manifest(self) -> Manifest:
        """The manifest of the archive."""
        return self._archive.manifest

    def log_bytes(self, topic: str, partition: int) -> int:
        """How many bytes the batches of a partition take in a log."""
        total = 0
        for file in self.manifest.batches:
            if (file.topic, file.partition) == (topic, partition):
                path = self._archive.path(file)
                try:
                    total += pc.sum(pq.ParquetFile(path).read(["size"]).column("size")).as_py() or 0
                except (OSError, pa.ArrowException) as error:
                    raise DamagedArchive(f"{path} cannot be read: {error}") from error
        return total

    def batches(self, topic: str, partition: int, from_offset: int, until_offset: int) -> Iterator[Buffer]:
        """The batches that have offsets from ``from_offset`` to before ``until_offset``, in order."""
        for batch in self._archive.batches(topic, partition, from_offset, until_offset):
            yield batch.data

    def extents(self, topic: str, partition: int, from_offset: int, until_offset: int) -> Iterator[BatchExtent]:
        """The extents of these batches: offsets, timestamp and size."""
        return self._archive.extents(topic, partition, from_offset, until_offset)

    def rows(self, topic: str, partition: int, from_offset: int, until_offset: int) -> Iterator[pa.RecordBatch]:
        """The records with offsets from ``from_offset`` to before ``until_offset``, in order, without records of
        aborted transactions."""
        if self.manifest.isolation == READ_COMMITTED:
            yield from self._archive.rows(topic, partition, from_offset, until_offset)
            return
        aborted = self._aborted(topic, partition)
        for rows in self._archive.rows(topic, partition, from_offset, until_offset):
            yield rows.filter(pa.array(~aborted.have(rows.column("offset").to_numpy())))

    def first_offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The offset of the first record with this timestamp or a later one; None if all records are older."""
        for rows in self._archive.rows(topic, partition):
            times = rows.column("timestamp").cast(pa.int64()).to_numpy() // _MICROSECONDS
            late = np.flatnonzero(times >= timestamp_ms)
            if len(late):
                return int(rows.column("offset")[int(late[0])].as_py())
        return None

    def _aborted(self, topic: str, partition: int) -> "_AbortedBatches":
        aborted = _AbortedBatches()
        for batch in self._archive.batches(topic, partition):
            header = batch.row.header
            if header.is_transactional:
                aborted.batch(header, batch.data)
        return aborted


class _AbortedBatches:
    """Finds the batches of transactions that were not committed. It is given all transactional batches in order."""

    def __init__(self) -> None:
        self._open: dict[int, list[BatchHeader]] = {}
        self._found: list[BatchHeader] = []

    def batch(self, header: BatchHeader, data: bytes) -> None:
        if not header.is_control:
            self._open.setdefault(header.producer_id, []).append(header)
            return
        marker = read_marker(header, data)
        if marker is not None:
            ended = self._open.pop(header.producer_id, [])
            self._found += () if marker.is_commit else ended

    def have(self, offsets: Any) -> Any:
        """For each offset, whether it is in a batch of a transaction that was not committed."""
        # An undecided transaction is not committed.
        headers = sorted([*self._found, *(header for undecided in self._open.values() for header in undecided)])
        if not headers:
            return np.zeros(len(offsets), dtype=bool)
        begins = np.array([header.base_offset for header in headers])
        ends = np.array([header.next_offset for header in headers])
        place = np.searchsorted(begins, offsets, side="right") - 1
        return (place >= 0) & (offsets < ends[place])
