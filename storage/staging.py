"""The staged batches of a log, behind its end: they have offsets and are not published yet.

Each is built on the offsets and sequences of those before it. So they are written in order, and if one cannot be, it is
taken back with all that come behind it.
"""

from storage.appending import StagedAppend
from storage.batch.markers import read_marker
from storage.batch.record_batch import read_header, stamp
from storage.batch.validation import ValidatedBatch
from storage.errors import BatchLargerThanSegment
from storage.producer_state import ProducerEntry, Producers, after_batch, after_marker, check_marker, check_sequence
from storage.topic_partition import TopicPartition


class Staging:
    """The staged batches of a log. ``producers`` are the log's, and already include the staged batches."""

    __slots__ = ("_producers", "_topic_partition", "batches", "next_offset", "segment_bytes")

    def __init__(
        self, topic_partition: TopicPartition, producers: Producers, *, end_offset: int, segment_bytes: int
    ) -> None:
        self._topic_partition = topic_partition
        self._producers = producers
        self.batches: list[StagedAppend] = []
        """Batches neither published nor taken back, in order. The log takes the first ones out to publish them."""
        self.next_offset = end_offset
        """The base offset of the next batch."""
        self.segment_bytes = segment_bytes
        """`segment.bytes`: no batch is larger."""

    def stage(self, batch: ValidatedBatch, *, leader_epoch: int) -> StagedAppend:
        """Assign offsets to a client's batch, behind everything staged before it.

        Raises InvalidProducerEpoch, OutOfOrderSequence, InvalidTransactionState, BatchLargerThanSegment; nothing has
        changed then. A repetition of one of the producer's last five batches is staged as a duplicate: nothing will be
        written, the offsets are the original's.
        """
        header = batch.header
        data = batch.data
        size = len(data)
        if size > self.segment_bytes:
            raise self._too_large(size)
        first_offset = self.next_offset
        before: ProducerEntry | None = None
        after: ProducerEntry | None = None
        producer_id = header[9]
        if producer_id >= 0:
            entries = self._producers.entries
            before = entries.get(producer_id)
            original = check_sequence(before, header)
            if original is not None:
                staged = StagedAppend(
                    header, b"", 0, original.last_offset - original.offset_delta, original.last_offset, leader_epoch,
                    original.timestamp, is_duplicate=True,
                )  # fmt: skip
                self.batches.append(staged)
                return staged
            entries[producer_id] = after = after_batch(before, header, first_offset)
        last_offset = first_offset + header[6]
        stamp(data, first_offset, leader_epoch)
        staged = StagedAppend(
            header, data, size, first_offset, last_offset, leader_epoch, batch.log_append_time_ms, before, after
        )
        self.next_offset = last_offset + 1
        self.batches.append(staged)
        return staged

    def stage_trusted(
        self, data: bytearray | memoryview, *, leader_epoch: int = -1, keep_offsets: bool = False
    ) -> StagedAppend:
        """Stage a batch that the broker itself made, or with ``keep_offsets`` one that a leader has numbered already.

        ``data`` is exactly one batch, writable unless it keeps its offsets. Its producer is not checked; markers
        end transactions. Raises BatchLargerThanSegment; ValueError for an offset that the log has already.
        """
        header = read_header(data)
        size = header.size
        assert size == len(data), f"a batch of {size} bytes came in {len(data)}"
        if size > self.segment_bytes:
            raise self._too_large(size)
        first_offset = self.next_offset
        if keep_offsets:
            if header.base_offset < first_offset:
                raise ValueError(f"{self._topic_partition} ends at {first_offset}; cannot append {header.base_offset}")
            first_offset = header.base_offset
            leader_epoch = header.partition_leader_epoch
        else:
            stamp(data, first_offset, leader_epoch)
        before = after = completed = None
        if header.has_producer_id:
            before = self._producers.entries.get(header.producer_id)
            if not header.is_control:
                after = after_batch(before, header, first_offset)
            elif (marker := read_marker(read_header(data), data)) is not None:
                after, completed = after_marker(before, marker)
            if after is not None:
                self._producers.entries[header.producer_id] = after
        last_offset = first_offset + header.last_offset_delta
        staged = StagedAppend(header, data, size, first_offset, last_offset, leader_epoch, -1, before, after, completed)
        self.next_offset = last_offset + 1
        self.batches.append(staged)
        return staged

    def stage_marker(self, data: bytearray, *, transaction_version: int, leader_epoch: int) -> StagedAppend:
        """Stage a transaction marker that a coordinator has sent; see `storage.producer_state.check_marker`.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced, BatchLargerThanSegment; nothing has changed then.
        """
        marker = read_marker(read_header(data), data)
        assert marker is not None, "a marker is staged"
        check_marker(self._producers.entries.get(marker.producer_id), marker, transaction_version)
        return self.stage_trusted(data, leader_epoch=leader_epoch)

    def take_back(self, end_offset: int, *, kept: int = 0) -> list[StagedAppend]:
        """Take back the batches staged behind the first ``kept`` ones and return them in order.

        The next batch begins at ``end_offset``; the producers are as they were before.
        """
        taken, self.batches = self.batches[kept:], self.batches[:kept]
        for staged in reversed(taken):
            if staged.producer_after is not None:
                self._producers.restore(staged.producer_after.producer_id, staged.producer_before)
        self.next_offset = end_offset
        return taken

    def published_producers(self) -> dict[int, ProducerEntry]:
        """The producers' state without batches that are only staged."""
        return self._producers.without(
            (staged.producer_after.producer_id, staged.producer_before)
            for staged in reversed(self.batches)
            if staged.producer_after is not None
        )

    def _too_large(self, size: int) -> BatchLargerThanSegment:
        return BatchLargerThanSegment(
            f"{self._topic_partition}: a batch of {size} bytes does not fit into segment.bytes {self.segment_bytes}"
        )
