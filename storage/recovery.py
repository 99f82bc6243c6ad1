"""Recovery of the segments of a log that was not closed: read, checked, cut at the first bad batch, indexed anew.

Above the recovery point everything behind the first bad batch is lost. Below it nothing is: see `storage.segment_walk`.
"""

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from storage.batch.record_batch import BatchHeader
from storage.batch.walk import EVERYTHING as EVERYTHING
from storage.errors import UndecodableRecords
from storage.index.transaction_index import AbortedTransaction
from storage.leader_epochs import LeaderEpochs
from storage.producer_snapshots import ProducerSnapshots
from storage.producer_state import Producers, is_expired
from storage.segment import Segment

NEVER_EXPIRES: Final = 2**63 - 1

_BYTES_A_STEP: Final = 4 << 20


class Recovered(NamedTuple):
    """The result of recovering a segment."""

    next_offset: int
    """The position behind the segment's last good batch."""
    bytes_cut: int
    cut_reason: str
    """Why the segment was cut, as the end of a sentence; empty if it was not."""
    lost: Sequence[tuple[int, int]]
    """The offsets of batches that are damaged and were left in the segment: first, and behind the last."""


def recover_segment(
    segment: Segment,
    producers: Producers,
    leader_epochs: LeaderEpochs,
    *,
    durable_offset: int,
    end_offset: int | None = None,
) -> Generator[int, None, Recovered]:
    """Check a segment's batches and make its indexes anew; yields, every few MB, how many bytes have been read.

    ``producers`` is the state at its base offset, and is that at its end afterwards. Everything below
    ``durable_offset`` had been on disk; ``end_offset`` is where the next segment begins. What is to be cut off is still
    there afterwards, and the segment is not closed: see `finish_segment`.

    Raises DiskFull, LogDirFailed, TooManyOpenFiles.
    """
    found_bytes = segment.files.log_file().size
    segment.transaction_index.reset()
    walk = segment.begin_walk(found_bytes, end_offset=end_offset, durable_offset=durable_offset)
    reported = 0
    while walk.step():
        segment.take_entries(walk)
        for epoch, first_offset in walk.epochs:
            leader_epochs.assign(epoch, first_offset)
        if walk.produced:
            for aborted in producers.replay(walk.chunk, walk.produced):
                segment.transaction_index.append(aborted)
        if walk.position - reported >= _BYTES_A_STEP:
            yield walk.position - reported
            reported = walk.position
    segment.size = walk.position
    segment.end_walk(walk)
    yield walk.position - reported
    return Recovered(walk.next_offset, found_bytes - walk.position, walk.problem, walk.lost)


def finish_segment(segment: Segment, found: Recovered) -> None:
    """Cut a recovered segment behind its last good batch and close its indexes.

    Bytes cut off are gone from the disk when this returns, so that a later append is never followed by old batches.
    """
    segment.deactivate()
    if found.bytes_cut:
        segment.files.log_file().fsync()


def transactions_anew(
    segment: Segment, segments: Sequence[Segment], snapshots: ProducerSnapshots
) -> Generator[int, None, None]:
    """Make a segment's index of aborted transactions anew; yields how many bytes have been read."""
    producers = Producers()
    yield from load_producers(
        producers, snapshots, segments, end_offset=segment.base_offset, now_ms=0, expiration_ms=NEVER_EXPIRES
    )  # fmt: skip
    segment.transaction_index.reset()
    read_bytes = 0
    for batch in segment.batches_from(0):
        aborted = _replay(producers, batch.header, batch.data)
        if aborted is not None:
            segment.transaction_index.append(aborted)
        read_bytes += len(batch.data)
        if read_bytes >= _BYTES_A_STEP:
            yield read_bytes
            read_bytes = 0
    segment.transaction_index.write_out()
    yield read_bytes


def epochs_anew(leader_epochs: LeaderEpochs, segments: Sequence[Segment]) -> Generator[int, None, None]:
    """Find the leader epochs of segments in the headers of their batches; yields how many bytes have been read."""
    read_bytes = 0
    for segment in segments:
        for batch in segment.batches_from(0):
            if batch.header.partition_leader_epoch > leader_epochs.latest:
                leader_epochs.assign(batch.header.partition_leader_epoch, batch.header.base_offset)
            read_bytes += len(batch.data)
            if read_bytes >= _BYTES_A_STEP:
                yield read_bytes
                read_bytes = 0
    yield read_bytes


def _replay(producers: Producers, header: BatchHeader, data: memoryview) -> AbortedTransaction | None:
    try:
        return producers.apply(header, data)
    except UndecodableRecords:
        # A control batch without a marker stays in the log, and ends no transaction.
        return None


def load_producers(
    producers: Producers,
    snapshots: ProducerSnapshots,
    segments: Sequence[Segment],
    *,
    end_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> Generator[int, None, int]:
    """Rebuild ``producers`` as of ``end_offset``, from the newest whole snapshot and the batches behind it.

    The log start does not matter: a producer may still repeat batches that have been deleted since.
    Yields how many bytes have been read. Returns the offset from which on batches were read.
    """
    from_offset = segments[0].base_offset
    loaded = snapshots.load_latest(from_offset, end_offset)
    producers.replace(())
    if loaded is not None:
        from_offset, entries = loaded
        producers.replace(entry for entry in entries if not is_expired(entry, now_ms, expiration_ms))
    if from_offset >= end_offset:
        return from_offset
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
    return from_offset
