"""ReplicaFetch: one partition's part in a follower's fetches, as a pure state machine (KIP-101, KIP-279, KIP-595).

    Fetch at the log's end ──┬── records ──────────────── Append: as they are, with the leader's offsets and epochs
                             ├── DivergingEpoch ───────── Truncate, and fetch again
                             ├── OFFSET_OUT_OF_RANGE ──── AskOffset: the leader's end ── behind ours: Truncate
                             │                                  └── its start ── beyond our end: BeginAnew
                             ├── ours has lost records ── Truncate, where the first is lost, and fetch again
                             ├── a later epoch ────────── AwaitMetadata: a new epoch makes a new ReplicaFetch
                             └── any other error ──────── BackOff

It decides, and changes nothing: whoever fetches carries the step out on the log.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.primitives import received
from protocol.schema import NO_UUID
from storage.batch.record_batch import read_header
from storage.batch.walk import AtFault, BatchWalk, WalkPolicy, in_memory
from storage.errors import CorruptBatch, StorageError
from storage.log import Log
from storage.sentinels import NO_EPOCH

LATEST: Final = -1
"""ListOffsets: the end of the leader's log, asked with the follower's own id."""

EARLIEST_LOCAL: Final = -4
"""ListOffsets: the start of what the leader has on its own disk."""

LARGEST_OFFSET: Final = 2**63 - 2
"""The last offset behind which a log can end."""

_CHECKED: Final = WalkPolicy(checks_crc=True, at_fault=AtFault.RAISE)


class Append(NamedTuple):
    """Append these batches, each whole and with the right CRC; then follow the leader's watermark and log start.

    If the log is empty, the first batch may begin below its start: a leader sends whole batches.
    """

    batches: Sequence[memoryview]
    high_watermark: int
    log_start_offset: int


class Truncate(NamedTuple):
    """Remove everything at and above the offset: the leader does not have it, or the disk has lost a part of it."""

    offset: int


class BeginAnew(NamedTuple):
    """Remove everything: the leader's log begins at the offset, at this log's end or beyond."""

    offset: int


class AskOffset(NamedTuple):
    """Ask the leader for an offset: `LATEST` or `EARLIEST_LOCAL`."""

    timestamp: int


class BackOff(NamedTuple):
    """Fetch again later. ``problem`` is a sentence for the log, None for what passes by itself."""

    problem: str | None = None


class AwaitMetadata(NamedTuple):
    """Fetch no more in this leader epoch: the controllers have begun another one, or will."""


Step: TypeAlias = Append | Truncate | BeginAnew | AskOffset | BackOff | AwaitMetadata


class ReplicaFetch:
    """A follower's fetches of one partition, in one leader epoch."""

    def __init__(self, log: Log, *, leader_id: int, leader_epoch: int, directory_id: bytes = NO_UUID) -> None:
        """``directory_id`` is that of the log's directory (16 bytes)."""
        self._log = log
        self._leader_id = leader_id
        self._leader_epoch = leader_epoch
        self._directory_id = directory_id

    @property
    def log_end_offset(self) -> int:
        """The end of this follower's log."""
        return self._log.log_end_offset

    @property
    def log_start_offset(self) -> int:
        """The start of this follower's log."""
        return self._log.log_start_offset

    @property
    def is_being_written(self) -> bool:
        """Whether a write of the time as a leader is under way: the log's end is known once that has ended."""
        return self._log.is_writing

    @property
    def is_flush_due(self) -> bool:
        """Whether `flush.messages` demands a flush that is not done. Until then the leader must not hear of the records
        that wait for it: an ISR of replicas that have not flushed would acknowledge them."""
        return self._log.due_flush_offset > self._log.recovery_point

    def request(self, partition: int, max_bytes: int) -> FetchRequest.Topic.Partition:
        """What is asked next: up to ``max_bytes`` of records behind the log's end, one batch at least.

        A log whose disk has lost records ends for the leader where the first is lost."""
        log = self._log
        return FetchRequest.Topic.Partition(
            partition=partition,
            current_leader_epoch=self._leader_epoch,
            fetch_offset=log.log_end_offset if log.lost_from is None else log.lost_from,
            last_fetched_epoch=log.leader_epochs.latest,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=max_bytes,
            replica_directory_id=self._directory_id,
        )

    def answered(self, answer: FetchResponse.Response.Partition) -> Step:
        """What follows from the leader's answer to the last `request`."""
        code = answer.error_code
        if self._log.lost_from is not None and code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            return Truncate(self._log.lost_from)
        if code == ErrorCode.NONE:
            if answer.diverging_epoch.epoch >= 0:
                return self._diverging(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
            return self._records(answer)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return AskOffset(LATEST)
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            return AwaitMetadata()
        if code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            return BackOff(
                f"node {self._leader_id} has moved what is wanted to tiered storage, which this broker lacks"
            )
        # NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID: the leader may not have heard yet of the
        # partition, or of this broker's registration.
        return BackOff()

    def _diverging(self, epoch: int, end_offset: int) -> Step:
        """The leader's last epoch up to this log's last is ``epoch``, and ends at ``end_offset``: so far they agree."""
        if end_offset < 0:
            return self._refused(f"the end {end_offset} of its epoch {epoch}", "an offset")
        log = self._log
        own = log.end_offset_for_epoch(epoch)
        if own.epoch == NO_EPOCH:
            offset = log.high_watermark
        elif own.epoch == epoch:
            offset = min(own.end_offset, end_offset)
        else:
            offset = own.end_offset
        # A leader that wrote nothing has left its epoch at the end of the log: cutting there removes the epoch.
        if offset > log.log_end_offset or (offset == log.log_end_offset and log.leader_epochs.latest <= epoch):
            return BackOff(
                f"node {self._leader_id} says that its epoch {epoch} ends at {end_offset}, before this log's end "
                f"{log.log_end_offset}, and nothing of it is to be removed"
            )
        return Truncate(offset)

    def offset_answered(self, asked: AskOffset, offset: int) -> Step:
        """What follows from the leader's answer to `AskOffset`."""
        if offset < 0:
            return self._refused(
                f"{offset} as the {'end' if asked.timestamp == LATEST else 'start'} of its log", "an offset"
            )
        end_offset = self._log.log_end_offset
        if asked.timestamp == LATEST:
            return Truncate(offset) if offset < end_offset else AskOffset(EARLIEST_LOCAL)
        return BeginAnew(offset) if offset > end_offset else BackOff()

    # Records ----------------------------------------------------------------------------------------------------------

    def _records(self, answer: FetchResponse.Response.Partition) -> Step:
        records = received(answer.records)
        batches: list[memoryview] = []
        log = self._log
        next_offset, epoch = log.log_end_offset, log.leader_epochs.latest
        is_empty = log.log_start_offset == log.log_end_offset
        try:
            # A last batch that is cut off is left out: it comes with the next fetch.
            for header, _position, data in BatchWalk(in_memory(records), 0, len(records), _CHECKED):
                holds_start = is_empty and not batches and 0 <= header.base_offset < next_offset <= header.last_offset
                least = header.base_offset if holds_start else next_offset
                if not batches and header.base_offset < least <= min(header.last_offset, answer.log_start_offset):
                    return BeginAnew(answer.log_start_offset)
                if not least <= header.base_offset <= header.last_offset <= LARGEST_OFFSET:
                    return self._refused(
                        f"offsets {header.base_offset} to {header.last_offset}",
                        f"offsets from {next_offset} to {LARGEST_OFFSET}",
                    )
                if not epoch <= header.partition_leader_epoch <= self._leader_epoch:
                    return self._refused(
                        f"epoch {header.partition_leader_epoch} at offset {header.base_offset}",
                        f"{epoch} to {self._leader_epoch}",
                    )
                batches.append(data)
                next_offset, epoch = header.next_offset, header.partition_leader_epoch
        except CorruptBatch as error:
            return self._refused(str(error), "whole batches with their CRC")
        if records and not batches:
            return self._refused(f"the first {len(records)} bytes of a batch", "a whole batch at least")
        return Append(batches, answer.high_watermark, answer.log_start_offset)

    def _refused(self, found: str, expected: str) -> BackOff:
        return BackOff(f"node {self._leader_id} has sent {found}, expected {expected}; nothing of it was written")


def append(log: Log, step: Append, now_ms: int) -> None:
    """Carry an `Append` out: bytes as they came, then watermark and log start, no further than the log has them.

    Raises StorageError; the log is without the batch that could not be written, and without those behind it.
    """
    log_start_offset = max(log.log_start_offset, step.log_start_offset)
    if step.batches and (base_offset := read_header(step.batches[0]).base_offset) < log.log_end_offset:
        assert log.log_start_offset == log.log_end_offset, f"{log} has come to {log.log_end_offset} since {base_offset}"
        log.truncate_fully_to(base_offset, now_ms)
    try:
        for batch in step.batches:
            log.stage_trusted(batch, keep_offsets=True)
    except StorageError:
        log.take_back_unwritten()
        raise
    log.append_all(now_ms)
    log.advance_high_watermark(step.high_watermark)
    if log.log_start_offset < log_start_offset <= log.high_watermark:
        log.start_offset_to(log_start_offset)
