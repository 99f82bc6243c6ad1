"""What becomes of one batch: it stays as it is, is written anew with fewer records, becomes empty, or goes.

An empty batch is 61 bytes of header. It stays where the header still says something: the last sequence number of a
producer that is active, or the offset at which this round ends.

Records without a value (tombstones) and markers whose transaction is gone stay for `delete.retention.ms` more, so that
a reader who is under way hears of them. The round that meets them first writes the time when they may go, the delete
horizon, into the batch in place of its base timestamp; the timestamps of its records are then relative to that.
(KIP-534)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from storage.batch.record_batch import (
    CODEC_BITS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    read_header,
)
from storage.batch.records import MOST_BYTES_READ, assemble_batch, encode_record, open_records, walk
from storage.batch.varints import wrap_64
from storage.cleaning.offset_map import OffsetMap
from storage.cleaning.record_selection import Selection, select_records
from storage.cleaning.transactions import CleanedTransactions
from storage.errors import UndecodableRecords
from storage.sentinels import NO_TIMESTAMP

_LATEST_MS: Final = 2**63 - 1


class LastBatch(NamedTuple):
    """The last batch of a producer that is active."""

    last_offset: int
    """The last offset of its last batch of records; -1 if only markers of it are known."""
    producer_epoch: int


@dataclass(slots=True)
class CleaningStats:
    """The counters of a cleaning round."""

    batches_read: int = 0
    records_read: int = 0
    bytes_read: int = 0
    map_bytes_read: int = 0
    """Bytes of the dirty batches, which were read for the offset map before."""
    records_written: int = 0
    bytes_written: int = 0
    records_without_key: int = 0
    """Records that were removed because they have no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCleaning:
    """The rules of a round, with which each of its batches is cleaned."""

    offsets: OffsetMap
    transactions: CleanedTransactions
    last_batches: Mapping[int, LastBatch]
    """The last batch of each active producer, by producer id."""
    end_offset: int
    """Up to where the log may be cleaned: the batch that ends there keeps at least its header."""
    now_ms: int
    delete_retention_ms: int
    stats: CleaningStats

    def clean(self, header: BatchHeader, data: memoryview) -> Buffer | None:
        """The batch that takes the place of this one, ``data`` itself if nothing goes; None if all of it goes.

        Raises UndecodableRecords, DecompressionTooLarge.
        """
        stats = self.stats
        stats.batches_read += 1
        stats.records_read += header.record_count
        stats.bytes_read += header.size
        cleaned = self._cleaned(header, data)
        if cleaned is not None:
            stats.records_written += header.record_count if cleaned is data else read_header(cleaned).record_count
            stats.bytes_written += len(cleaned)
        return cleaned

    def _cleaned(self, header: BatchHeader, data: memoryview) -> Buffer | None:
        horizon_ms = header.base_timestamp if header.has_delete_horizon else None
        is_past_horizon = horizon_ms is not None and horizon_ms <= self.now_ms
        if header.is_control:
            is_superfluous = self.transactions.is_marker_superfluous(header, data)
            if is_superfluous and is_past_horizon:
                return self._emptied(header)
            if not header.record_count:
                return self._emptied(header)
            return self._with_horizon(header, data) if is_superfluous and horizon_ms is None else data
        if self.transactions.is_aborted(header):
            return self._emptied(header)
        if not header.record_count:
            return self._emptied(header)
        section = open_records(data, header, MOST_BYTES_READ)
        selection = select_records(
            section, header.record_count, header.base_offset, header.base_timestamp, self.offsets, is_past_horizon
        )
        self.stats.records_without_key += selection.without_key
        if not selection.record_count:
            return self._emptied(header)
        if selection.has_tombstones and horizon_ms is None:
            return self._rebased(header, selection)
        if selection.record_count == header.record_count:
            return data
        return _assembled(header, selection, header.base_timestamp, header.attributes)

    def _emptied(self, header: BatchHeader) -> Buffer | None:
        """The header alone, if it still says something."""
        if not self._says_something(header):
            return None
        attributes = header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
        emptied = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
        return assemble_batch(emptied, b"")

    def _says_something(self, header: BatchHeader) -> bool:
        if header.next_offset == self.end_offset:
            return True
        last = self.last_batches.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _with_horizon(self, header: BatchHeader, data: memoryview) -> Buffer:
        """A marker whose transaction is gone."""
        section = open_records(data, header, MOST_BYTES_READ)
        return self._rebased(header, Selection(section, header.record_count, header.max_timestamp, False, 0))

    def _rebased(self, header: BatchHeader, selection: Selection) -> Buffer:
        """The selected records with a delete horizon, and their timestamps relative to it."""
        horizon_ms = min(self.now_ms + self.delete_retention_ms, _LATEST_MS)
        section = selection.section
        given_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
        records = []
        for timestamp_delta, offset_delta, _, fields, end in walk(section, selection.record_count, len(section)):
            timestamp_ms = header.base_timestamp + timestamp_delta if given_ms is None else given_ms
            records.append(encode_record(wrap_64(timestamp_ms - horizon_ms), offset_delta, section[fields:end]))
        rebased = selection._replace(section=b"".join(records))
        return _assembled(header, rebased, horizon_ms, header.attributes | DELETE_HORIZON_BIT)


def _assembled(header: BatchHeader, selection: Selection, base_timestamp: int, attributes: int) -> Buffer:
    """A batch with the offsets, the producer and the codec of ``header``, and the records that are selected."""
    max_timestamp = header.max_timestamp if attributes & LOG_APPEND_TIME_BIT else selection.max_timestamp
    replaced = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp,
        record_count=selection.record_count,
    )  # fmt: skip
    if attributes & CODEC_BITS and not selection.section:
        raise UndecodableRecords(
            f"the batch at offset {header.base_offset} has {selection.record_count} records of no bytes"
        )
    return assemble_batch(replaced, selection.section)
