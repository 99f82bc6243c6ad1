"""What is done to the segments of a log that was not closed: read, checked, cut at the first bad batch, indexed anew.

A torn tail and a damaged batch in the middle look alike, so everything behind the first bad batch is lost. That
concerns only what had not been flushed: segments below the recovery point are not looked at.
"""

from collections.abc import Generator
from typing import Final

from storage.batch.record_batch import computed_crc
from storage.errors import StorageError
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
    last good batch, how many bytes have been cut off).
    """
    file = segment.file()
    found_bytes = file.size
    segment.begin_rebuild()
    next_offset = segment.base_offset
    position = reported = 0
    for batch in segment.batches_from(0, end=found_bytes):
        header = batch.header
        if (
            header.crc != computed_crc(batch.data, 0, len(batch.data))
            or header.base_offset < next_offset
            or not 0 <= header.last_offset - segment.base_offset <= MOST_RELATIVE_OFFSET
        ):
            break
        if header.base_offset != next_offset:
            segment.forget_recent_batches()
        next_offset = header.next_offset
        segment.appended(position, len(batch.data), header.base_offset, header.last_offset, header.max_timestamp)
        position += len(batch.data)
        if header.partition_leader_epoch > leader_epochs.latest:
            leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
        try:
            aborted = producers.apply(header, batch.data)
        except StorageError:
            # A control batch that says nothing: it stays in the log, and ends no transaction.
            aborted = None
        if aborted is not None:
            segment.transaction_index.append(aborted)
        if position - reported >= _BYTES_A_STEP:
            yield position - reported
            reported = position
    segment.deactivate()
    yield position - reported
    return next_offset, found_bytes - position


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
                producers.apply(batch.header, batch.data)
            read_bytes += len(batch.data)
            if read_bytes >= _BYTES_A_STEP:
                yield read_bytes
                read_bytes = 0
        yield read_bytes
