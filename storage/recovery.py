"""What is done to the segments of a log that was not closed: read, checked, cut at the first bad batch, indexed anew.

A torn tail and a damaged batch in the middle look alike, so everything behind the first bad batch is lost. That
concerns only what had not been flushed: segments below the recovery point are not looked at.
"""

from collections.abc import Generator
from typing import Final

from storage.batch.checksum import crc32c
from storage.batch.record_batch import ATTRIBUTES_POSITION, BatchHeader
from storage.errors import UndecodableRecords
from storage.index.transaction_index import AbortedTransaction
from storage.leader_epochs import LeaderEpochs
from storage.producer_snapshots import ProducerSnapshots
from storage.producer_state import Producers, is_expired
from storage.segment import MOST_RELATIVE_OFFSET, Segment

NEVER_EXPIRES: Final = 2**63 - 1

_BYTES_A_STEP: Final = 4 << 20


def recover_segment(
    segment: Segment, producers: Producers, leader_epochs: LeaderEpochs
) -> Generator[int, None, tuple[int, int]]:
    """Check a segment's batches and rebuild its indexes; yields, every few MB, how many bytes have been read.

    ``producers`` is the state at its base offset, and is that at its end afterwards. Returns (the offset behind its
    last good batch, how many bytes behind that are to be cut off by `finish_segment`).
    """
    file = segment.file()
    found_bytes = file.size
    segment.begin_rebuild()
    next_offset = segment.base_offset
    position = reported = 0
    for header, _, data in segment.batches_from(0, end=found_bytes):
        # Taken apart at once: properties of the header would double what a small batch costs here.
        base_offset, _, leader_epoch, _, crc, _, last_offset_delta, _, max_timestamp, producer_id, _, _, _ = header
        last_offset = base_offset + last_offset_delta
        if (
            crc != crc32c(data[ATTRIBUTES_POSITION:])
            or base_offset < next_offset
            or last_offset < base_offset
            or last_offset - segment.base_offset > MOST_RELATIVE_OFFSET
        ):
            break
        if base_offset != next_offset:
            segment.forget_recent_batches()
        next_offset = last_offset + 1
        size = len(data)
        segment.appended(position, size, base_offset, last_offset, max_timestamp)
        position += size
        if leader_epoch > leader_epochs.latest:
            leader_epochs.assign(leader_epoch, base_offset)
        if producer_id >= 0 and (aborted := _replay(producers, header, data)) is not None:
            segment.transaction_index.append(aborted)
        if position - reported >= _BYTES_A_STEP:
            yield position - reported
            reported = position
    yield position - reported
    return next_offset, found_bytes - position


def finish_segment(segment: Segment, cut_bytes: int) -> None:
    """Cut a recovered segment behind its last good batch and close its indexes.

    What is cut off is gone from the disk when this returns: what is appended next must not be found with the old
    behind it.
    """
    segment.deactivate()
    if cut_bytes:
        segment.file().fsync()


def _replay(producers: Producers, header: BatchHeader, data: memoryview) -> AbortedTransaction | None:
    try:
        return producers.apply(header, data)
    except UndecodableRecords:
        # A control batch that says nothing: it stays in the log, and ends no transaction.
        return None


def load_producers(
    producers: Producers,
    snapshots: ProducerSnapshots,
    segments: list[Segment],
    *,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> Generator[int, None, None]:
    """Bring ``producers`` to what it was at ``end_offset``: the newest whole snapshot, and the batches behind it.

    Yields how many bytes have been read.
    """
    loaded = snapshots.load_latest(log_start_offset, end_offset)
    from_offset = log_start_offset
    producers.replace(())
    if loaded is not None:
        from_offset, entries = loaded
        producers.replace(entry for entry in entries if not is_expired(entry, now_ms, expiration_ms))
    if from_offset >= end_offset:
        return
    for number, segment in enumerate(segments):
        is_below = number + 1 < len(segments) and segments[number + 1].base_offset <= from_offset
        if is_below or segment.base_offset >= end_offset:
            continue
        read_bytes = 0
        for batch in segment.batches_from(segment.position_of(from_offset)):
            if batch.header.base_offset >= end_offset:
                break
            if batch.header.last_offset >= from_offset:
                _replay(producers, batch.header, batch.data)
            read_bytes += len(batch.data)
            if read_bytes >= _BYTES_A_STEP:
                yield read_bytes
                read_bytes = 0
        yield read_bytes
