"""The state of a log's idempotent and transactional producers, and the format of its snapshots.

`<offset>.snapshot` holds the state after all batches below the offset in its name, so that start-up need not read them
again:

    i16 version (1)
    u32 crc                        CRC-32C of everything behind it
    i32 count
    count times:
        i64 producer id
        i16 producer epoch
        i32 last sequence          of the producer's last batch; -1 if only markers are known
        i64 last offset            of that batch; -1 likewise
        i32 offset delta           last offset - first offset
        i64 timestamp              of the last batch or marker, ms
        i32 coordinator epoch      of the last marker; -1
        i64 first offset           of the open transaction; -1

(KIP-98, KIP-360)
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from struct import Struct
from typing import Final, NamedTuple

from storage.batch.checksum import crc32c
from storage.batch.markers import Marker, read_marker
from storage.batch.record_batch import (
    CONTROL_BIT,
    MAX_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    increment_sequence,
    read_header,
)
from storage.errors import (
    CorruptSnapshot,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
    UndecodableRecords,
)
from storage.files import Buffer
from storage.index.transaction_index import AbortedTransaction
from storage.sentinels import NO_OFFSET, NO_SEQUENCE

BATCHES_REMEMBERED: Final = 5
"""How many batches back a retry is recognised; an idempotent producer has at most this many under way."""

BUMPS_EPOCH_SINCE: Final = 2
"""The transaction version from which on the end of a transaction begins a new epoch (KIP-890, part 2)."""

LATE_AFTER_MS: Final = 300_000
"""A transaction is late this many milliseconds after its coordinator should have aborted it (KIP-664)."""

_SNAPSHOT_VERSION: Final = 1
_HEADER: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")


class ProducedBatch(NamedTuple):
    """A batch that a retry may repeat."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """One producer in one partition. Entries are replaced, never changed: undoing an append puts the old entry back."""

    producer_id: int
    producer_epoch: int
    batches: tuple[ProducedBatch, ...]
    """The last five batches, oldest first; none if only markers are known, or after a new epoch."""
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int
    """Where the open transaction begins; -1 if none is open."""

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 if no batch of this epoch is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    is_aborted: bool


def check_sequence(entry: ProducerEntry | None, header: BatchHeader) -> ProducedBatch | None:
    """Check that a client's batch may follow its producer's last one; the batch that it repeats, or None if new.

    Raises InvalidProducerEpoch, OutOfOrderSequence, InvalidTransactionState. Of an unknown producer any first sequence
    is taken: its state may have expired, or been deleted with the records.
    """
    if entry is None:
        return None
    epoch, sequence = header.producer_epoch, header.base_sequence
    if epoch == entry.producer_epoch:
        batches = entry.batches
        # An ordinary next batch follows the last one; only a batch that does not may be a repetition.
        if batches:
            expected = (batches[-1].last_sequence + 1) & MAX_SEQUENCE
            if sequence != expected:
                last_sequence = increment_sequence(sequence, header.last_offset_delta)
                for batch in batches:
                    if batch.last_sequence == last_sequence and batch.offset_delta == header.last_offset_delta:
                        return batch
        else:
            expected = 0
        if sequence != expected and epoch >= 0:
            raise OutOfOrderSequence(
                f"producer {entry.producer_id} of epoch {epoch} sent sequence {sequence}, expected {expected}"
            )
    elif epoch < entry.producer_epoch:
        raise InvalidProducerEpoch(
            f"producer {entry.producer_id} sent epoch {epoch}, and epoch {entry.producer_epoch} has been seen"
        )
    elif sequence != 0 and entry.producer_epoch >= 0:
        raise OutOfOrderSequence(
            f"producer {entry.producer_id} begins its new epoch {epoch} with sequence {sequence}, expected 0"
        )
    if entry.transaction_first_offset >= 0 and not header.is_transactional:
        raise InvalidTransactionState(
            f"producer {entry.producer_id} sent a batch outside the transaction that it has open "
            f"since offset {entry.transaction_first_offset}"
        )
    return None


def after_batch(entry: ProducerEntry | None, header: BatchHeader, base_offset: int) -> ProducerEntry:
    """The producer's entry after its batch was appended at ``base_offset``."""
    _, _, _, _, _, _, delta, _, timestamp, producer_id, epoch, base_sequence, _ = header
    last_sequence = NO_SEQUENCE if base_sequence < 0 else (base_sequence + delta) & MAX_SEQUENCE
    batch = ProducedBatch(last_sequence, base_offset + delta, delta, timestamp)
    if entry is None:
        return ProducerEntry(
            producer_id, epoch, (batch,), timestamp, -1, base_offset if header.is_transactional else NO_OFFSET
        )
    first_offset = entry.transaction_first_offset
    if first_offset < 0 and header.is_transactional:
        first_offset = base_offset
    if epoch == entry.producer_epoch:
        batches = (*entry.batches[1 - BATCHES_REMEMBERED :], batch)
    else:
        batches = (batch,)
    return ProducerEntry(producer_id, epoch, batches, timestamp, entry.coordinator_epoch, first_offset)


def check_marker(entry: ProducerEntry | None, marker: Marker, transaction_version: int) -> None:
    """Check that a marker may end its producer's transaction, or stand where no transaction is open.

    From `transaction_version` 2 on a marker has the epoch behind that of its transaction, so a marker of the same epoch
    belongs to an earlier transaction (KIP-890). Raises InvalidProducerEpoch, TransactionCoordinatorFenced.
    """
    if entry is None:
        return
    is_open = entry.transaction_first_offset >= 0
    least = entry.producer_epoch + (is_open and transaction_version >= BUMPS_EPOCH_SINCE)
    if marker.producer_epoch < least:
        raise InvalidProducerEpoch(
            f"a marker of producer {marker.producer_id} has epoch {marker.producer_epoch}, expected {least} or later"
        )
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise TransactionCoordinatorFenced(
            f"a marker of producer {marker.producer_id} has coordinator epoch {marker.coordinator_epoch}, and epoch "
            f"{entry.coordinator_epoch} has been seen"
        )


def after_marker(entry: ProducerEntry | None, marker: Marker) -> tuple[ProducerEntry, CompletedTransaction | None]:
    """The producer's entry after a marker has ended its transaction, and the transaction, if one was open."""
    batches = entry.batches if entry is not None and entry.producer_epoch == marker.producer_epoch else ()
    completed = None
    if entry is not None and entry.transaction_first_offset >= 0:
        completed = CompletedTransaction(
            marker.producer_id, entry.transaction_first_offset, marker.offset, not marker.is_commit
        )
    updated = ProducerEntry(
        marker.producer_id, marker.producer_epoch, batches, marker.timestamp, marker.coordinator_epoch, NO_OFFSET
    )
    return updated, completed


class Producers:
    """The producers of one log, and its transactions that are not yet stable."""

    __slots__ = ("_open", "_unreplicated", "entries")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        """The entries by producer id; they include batches that are only staged."""
        self._open: list[tuple[int, int]] = []
        """First offset and producer id of each open transaction, by rising offsets."""
        self._unreplicated: list[tuple[int, int]] = []
        """First and last offsets of transactions that have ended, as a heap. The first has ended above the high
        watermark; behind it there may be transactions that are stable by now."""

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self.entries.values())

    def restore(self, producer_id: int, entry: ProducerEntry | None) -> None:
        """Restore the entry that a producer had before an append that has failed."""
        if entry is None:
            self.entries.pop(producer_id, None)
        else:
            self.entries[producer_id] = entry

    def without(self, appends: Iterable[tuple[int, ProducerEntry | None]]) -> dict[int, ProducerEntry]:
        """The entries as they were before some appends, given as (producer id, entry before), the last one first."""
        entries = self.entries.copy()
        for producer_id, before in appends:
            if before is None:
                entries.pop(producer_id, None)
            else:
                entries[producer_id] = before
        return entries

    def replace(self, entries: Iterable[ProducerEntry]) -> None:
        """Forget everything and begin with ``entries``, from a snapshot."""
        self.entries = {entry.producer_id: entry for entry in entries}
        self._unreplicated.clear()
        self._open = sorted(
            (entry.transaction_first_offset, entry.producer_id) for entry in self if entry.transaction_first_offset >= 0
        )

    def apply(self, header: BatchHeader, batch: Buffer) -> AbortedTransaction | None:
        """Replay a batch of the log, unchecked; returns the transaction that the batch, if a marker, aborted."""
        if not header.has_producer_id:
            return None
        entry = self.entries.get(header.producer_id)
        if header.is_control:
            marker = read_marker(header, batch)
            if marker is None:
                return None
            self.entries[header.producer_id], completed = after_marker(entry, marker)
            return None if completed is None else self.transaction_ended(completed)
        updated = after_batch(entry, header, header.base_offset)
        self.entries[header.producer_id] = updated
        self.transaction_may_begin(entry, updated)
        return None

    def replay(self, chunk: bytes, produced: Iterable[tuple[int, int, int]]) -> list[AbortedTransaction]:
        """Replay the batches of ``chunk`` that have a producer id, given as (producer id, attributes, where it begins).

        Of a producer's batches outside transactions only the last five in a row leave a trace, so only they are looked
        at: most of what recovery reads of an idempotent producer is passed over (bench: recovery).
        """
        aborted = []
        plain: dict[int, deque[int]] = {}
        for producer_id, attributes, at in produced:
            recent = plain.get(producer_id)
            if not attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
                if recent is None:
                    recent = plain[producer_id] = deque(maxlen=BATCHES_REMEMBERED)
                recent.append(at)
                continue
            for earlier in plain.pop(producer_id, ()):
                self.apply(read_header(chunk, earlier), b"")
            header = read_header(chunk, at)
            try:
                transaction = self.apply(header, memoryview(chunk)[at : at + header.size])
            except UndecodableRecords:
                # A control batch without a marker stays in the log, and ends no transaction.
                continue
            if transaction is not None:
                aborted.append(transaction)
        for recent in plain.values():
            for at in recent:
                self.apply(read_header(chunk, at), b"")
        return aborted

    def transaction_may_begin(self, before: ProducerEntry | None, after: ProducerEntry) -> None:
        """Note a published batch: if it was the first of a transaction, the transaction is open now."""
        first_offset = after.transaction_first_offset
        if first_offset >= 0 and (before is None or before.transaction_first_offset < 0):
            self._open.append((first_offset, after.producer_id))

    def transaction_ended(self, completed: CompletedTransaction) -> AbortedTransaction | None:
        """Note a published marker: returns the entry for the transaction index if it aborted the transaction."""
        opened = completed.first_offset, completed.producer_id
        place = bisect_left(self._open, opened)
        if self._open[place : place + 1] == [opened]:
            del self._open[place]
        heappush(self._unreplicated, (completed.first_offset, completed.last_offset))
        if not completed.is_aborted:
            return None
        last_stable_offset = self._open[0][0] if self._open else completed.last_offset + 1
        return AbortedTransaction(
            completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset
        )

    def replicated_to(self, high_watermark: int) -> None:
        """Note the high watermark: transactions whose marker lies below it are stable."""
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][1] < high_watermark:
            heappop(unreplicated)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of any transaction that is open or ended above the high watermark; None without any."""
        if not self._unreplicated:
            return self._open[0][0] if self._open else None
        first_ended = self._unreplicated[0][0]
        return min(first_ended, self._open[0][0]) if self._open else first_ended

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer of this epoch has a transaction open, staged batches included."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset >= 0 and entry.producer_epoch == epoch

    def has_late_transaction(self, now_ms: int, max_timeout_ms: int) -> bool:
        """Whether the oldest transaction is open, and its producer silent, for `LATE_AFTER_MS` longer than
        ``max_timeout_ms`` (`transaction.max.timeout.ms`): no coordinator seems to end it (KIP-664)."""
        entry = self.entries.get(self._open[0][1]) if self._open else None
        return entry is not None and 0 < entry.last_timestamp < now_ms - max_timeout_ms - LATE_AFTER_MS

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an open transaction that have been silent for long; returns how many."""
        expired = [entry.producer_id for entry in self if is_expired(entry, now_ms, expiration_ms)]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)


def is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    """Whether a producer without an open transaction has been silent for ``expiration_ms``."""
    return entry.transaction_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms


def encode_snapshot(entries: Mapping[int, ProducerEntry]) -> bytes:
    """The content of a `.snapshot` file."""
    body = bytearray(_COUNT.pack(len(entries)))
    nothing = ProducedBatch(NO_SEQUENCE, NO_OFFSET, 0, -1)
    for entry in entries.values():
        last = entry.batches[-1] if entry.batches else nothing
        body += _ENTRY.pack(
            entry.producer_id, entry.producer_epoch, last.last_sequence, last.last_offset, last.offset_delta,
            entry.last_timestamp, entry.coordinator_epoch, entry.transaction_first_offset,
        )  # fmt: skip
    return _HEADER.pack(_SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes, path: str) -> list[ProducerEntry]:
    """The producers in a `.snapshot` file. Raises CorruptSnapshot."""
    body = memoryview(content)[_HEADER.size :]
    if len(body) < _COUNT.size:
        raise CorruptSnapshot(f"{path} has {len(content)} bytes, expected at least {_HEADER.size + _COUNT.size}")
    version, crc = _HEADER.unpack_from(content)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"{path} has version {version}, expected {_SNAPSHOT_VERSION}")
    if crc32c(body) != crc:
        raise CorruptSnapshot(f"{path} has the CRC {crc:08x}, and its content {crc32c(body):08x}")
    (count,) = _COUNT.unpack_from(body)
    if count * _ENTRY.size != len(body) - _COUNT.size:
        raise CorruptSnapshot(f"{path} has {len(body) - _COUNT.size} bytes of producers and says that it has {count}")
    entries = []
    for (
        producer_id,
        epoch,
        last_sequence,
        last_offset,
        delta,
        timestamp,
        coordinator_epoch,
        first_offset,
    ) in _ENTRY.iter_unpack(body[_COUNT.size :]):
        batches = (ProducedBatch(last_sequence, last_offset, delta, timestamp),) if last_offset >= 0 else ()
        entries.append(ProducerEntry(producer_id, epoch, batches, timestamp, coordinator_epoch, first_offset))
    return entries
