"""Loading of one partition: its log is read from its start to its end, and the records are replayed.

A record that cannot be read is passed over with a line in the broker's log; so is a batch whose records cannot be
separated. Records of unknown types and versions are left alone, and a partition has one line for all of them. Bytes are
read in another thread, since they may have to come from the disk. All else is done on the loop in steps of a few
records, between which the loop turns (`broker.runtime.time_slices`).
"""

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, TypeVar

from broker.coordinators.shard import Decode, Shard, ShardLoadingStats
from broker.replication.partition import Partition
from broker.runtime.time_slices import Step, Steps, TimeSlices, Work
from broker.runtime.worker_thread import WorkerThread
from protocol.primitives import Malformed
from protocol.records.coordinator_records import UnknownRecord
from storage.batch.checksum import crc32c
from storage.batch.markers import read_marker
from storage.batch.pairs import read_pairs
from storage.batch.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    CONTROL_BIT,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from storage.batch.records import open_records
from storage.batch.walk import BatchWalk, in_memory
from storage.errors import OffsetOutOfRange, StorageError, UndecodableRecords
from storage.sentinels import NO_PRODUCER_ID

log = logging.getLogger(__name__)

OPENED_HERE_BYTES: Final = 4 << 10
"""A compressed batch larger than this is decompressed in the thread: its content may be a thousand times as large."""

MOST_OPENED_BYTES: Final = 64 << 20
"""The most bytes that a batch may decompress to. No coordinator writes batches of a tenth of that."""

RECORDS_A_STEP: Final = 64
"""Records that are read in one step. Each record that is replayed is a step of its own, since a group of 200 members
takes half a millisecond.
"""

MOST_HELD_RECORDS: Final = 1 << 14
MOST_HELD_BYTES: Final = 4 << 20
"""Bytes of records that are held before they are replayed: a compressed batch may hold a thousand times its size."""

LINES: Final = 10
"""How many unreadable records of a partition get a line each in the broker's log."""

MOST_SHOWN_BYTES: Final = 64
"""How much of the key of a record of an unknown type is shown in the broker's log."""

RETRY_MS: Final = 1_000

Result = TypeVar("Result")
Version = tuple[int, bytes | None, Any]
"""A value of a key: the first offset of the batch, the value, and the version before this version, or None."""
Newest = dict[bytes | None, Version]
"""The last version of each key that has been read and not replayed yet, in the order of the log."""


class CommitWait:
    """Waits until the high watermark has reached the end of what was loaded. A `PartitionWatcher` until then.

    The leader that comes next may not have the records above the high watermark. So before they are committed, no
    client may see them, and no marker may be sent for them.
    """

    __slots__ = ("_end_offset", "_partition", "_then")

    def __init__(self, partition: Partition, end_offset: int, then: Callable[[], None]) -> None:
        """``then`` is called once, when all records below ``end_offset`` are committed; not behind `cancel`."""
        self._partition = partition
        self._end_offset = end_offset
        self._then = then

    def begin(self) -> None:
        """Wait from now on; ``then`` may be called before this returns."""
        self._partition.watch(self)
        self.partition_changed()

    def partition_changed(self) -> None:
        """Part of `PartitionWatcher`."""
        partition = self._partition
        if partition.is_leader and partition.log.high_watermark >= self._end_offset:
            partition.unwatch(self)
            self._then()

    def cancel(self) -> None:
        """Wait no longer."""
        self._partition.unwatch(self)


class PartitionLoading:
    """The loading of one partition."""

    def __init__(
        self,
        partition: Partition,
        shard: Shard,
        *,
        decode: Decode,
        is_compacted: bool,
        reader: WorkerThread,
        chunk_bytes: Callable[[], int],
        later: Callable[[int, Callable[[], None]], object],
        stats: ShardLoadingStats,
        done: Callable[[int], None],
    ) -> None:
        """``is_compacted``: see `ShardType`. ``chunk_bytes`` says how much may be read at a time, ``later`` calls after
        so many milliseconds; ``done`` is called with the log end offset once loading has reached it."""
        self._partition = partition
        self._shard = shard
        self._decode = decode
        self._is_compacted = is_compacted
        self._reader = reader
        self._chunk_bytes = chunk_bytes
        self._later = later
        self._stats = stats
        self._done = done
        self._passed_over = 0
        self._has_unknown = False
        """Whether a record of an unknown type or version has been left alone."""
        self._work: Work | None = None
        self.offset = partition.log.log_start_offset
        """Every record below this offset has been read, and between two chunks replayed."""

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing left to load."""
        return self.offset >= self._partition.log.log_end_offset

    def begin(self, slices: TimeSlices) -> None:
        """Start loading, in time slices of the loop."""
        self._work = slices.run(self._steps())

    def cancel(self) -> None:
        """Load no further."""
        if self._work is not None:
            self._work.cancel()

    def _steps(self) -> Steps:
        found = self._partition.log
        while not self.is_at_end:
            try:
                read = found.read(
                    self.offset,
                    max_bytes=self._chunk_bytes(),
                    upper_bound_offset=found.log_end_offset,
                    at_least_one_batch=True,
                )
                if read.region is None:
                    self.offset = found.log_end_offset  # compaction has left no batch there
                    break
                chunk = yield from self._in_thread(read.region.read)
            except OffsetOutOfRange:
                self.offset = max(self.offset, found.log_start_offset)
                continue
            except StorageError as error:
                self._partition.disk_failed(error)
                if self._partition.is_gone:
                    return
                log.error("loading %s goes on in %d ms: %s", self._partition.topic_partition, RETRY_MS, error)
                self._later(RETRY_MS, self._resume)
                yield Step.WAITS
                continue
            self._stats.bytes += len(chunk)
            began_at = self.offset
            yield from self._replay_chunk(chunk)
            if self.offset == began_at:
                # At the position that the index gives there is no valid batch; there may be a valid batch behind it.
                self._pass_over(self.offset, "no whole batch begins there")
                self.offset += 1
        self._done(self.offset)

    def _replay_chunk(self, chunk: bytes) -> Steps:
        """Replay the whole batches that ``chunk`` begins with, as if they had been compacted: of all records with the
        same key only the last readable record. Of a long log, that is a small part (bench: group-start)."""
        newest = Newest()
        producer_id = NO_PRODUCER_ID
        taken = replayed = held_bytes = 0
        for header, position, data in BatchWalk(in_memory(chunk), 0, len(chunk), chunk_bytes=len(chunk)):
            next_offset = header.next_offset
            if next_offset > self.offset:
                # Records inside and outside of transactions keep their order.
                owner = header.producer_id if header.attributes & TRANSACTIONAL_BIT else NO_PRODUCER_ID
                if owner != producer_id or header.attributes & CONTROL_BIT or held_bytes > MOST_HELD_BYTES:
                    yield from self._replay(newest, producer_id)
                    producer_id, replayed, held_bytes = owner, taken, 0
                try:
                    if crc32c(data[ATTRIBUTES_POSITION:]) != header.crc:
                        raise UndecodableRecords("its bytes do not agree with its CRC")
                    if header.attributes & CONTROL_BIT:
                        self._replay_marker(header, data)
                    elif header.record_count:
                        if header.attributes & CODEC_BITS:
                            section = yield from self._open(header, data)
                        else:
                            section = chunk[position + HEADER_SIZE : position + len(data)]
                        if not self._is_compacted:
                            taken += header.record_count
                            yield from self._replay_all(header, section)
                        held_bytes += len(section)
                        for key, value in read_pairs(section, header.record_count) if self._is_compacted else ():
                            # The key takes the place of its last record in the order.
                            newest[key] = header.base_offset, value, newest.pop(key, None)
                            taken += 1
                            if not taken % RECORDS_A_STEP:
                                yield Step.MORE
                                if taken - replayed >= MOST_HELD_RECORDS:
                                    yield from self._replay(newest, producer_id)
                                    replayed = taken
                except UndecodableRecords as error:
                    self._pass_over(header.base_offset, f"the batch there: {error}")
                self._stats.batches += 1
                self.offset = next_offset
        self._stats.records += taken
        yield from self._replay(newest, producer_id)

    def _replay_all(self, header: BatchHeader, section: bytes) -> Steps:
        """Replay every record of a batch in a log where no record supersedes all earlier ones of its key."""
        for place, (key, value) in enumerate(read_pairs(section, header.record_count)):
            offset = header.base_offset + place
            try:
                if key is None:
                    raise Malformed("it has no key")
                record = self._decode(key, value)
            except Malformed as error:
                self._pass_over(offset, f"the record there: {error}")
                continue
            self._shard.replay(record, offset=offset)
            if isinstance(record, UnknownRecord):
                self._leave_alone(offset, record)
            yield Step.MORE

    def _open(self, header: BatchHeader, batch: memoryview) -> Generator[Step, None, bytes]:
        """The records of a compressed batch."""
        if len(batch) <= OPENED_HERE_BYTES:
            return open_records(batch, header, MOST_OPENED_BYTES)
        return (yield from self._in_thread(partial(open_records, batch, header, MOST_OPENED_BYTES)))

    def _replay(self, newest: Newest, producer_id: int) -> Steps:
        """Replay the held records and release them. An unreadable record, or of an unknown type, replaces none."""
        for key, version in newest.items():
            before: Version | None = version
            while before is not None:
                offset, value, before = before
                try:
                    if key is None:
                        raise Malformed("it has no key")
                    record = self._decode(key, value)
                except Malformed as error:
                    self._pass_over(offset, f"a record of the batch there: {error}")
                    continue
                self._shard.replay(record, producer_id=producer_id)
                if not isinstance(record, UnknownRecord):
                    break
                self._leave_alone(offset, record)
            yield Step.MORE
        newest.clear()

    def _replay_marker(self, header: BatchHeader, batch: memoryview) -> None:
        marker = read_marker(header, batch)
        if marker is not None:
            self._shard.replay_marker(marker.producer_id, commits=marker.is_commit)

    def _pass_over(self, offset: int, why: str) -> None:
        self._stats.passed_over += 1
        self._passed_over += 1
        if self._passed_over <= LINES:
            log.warning(
                "skipping offset %d of %s, which cannot be read: %s",
                offset,
                self._partition.topic_partition,
                why,
            )

    def _leave_alone(self, offset: int, record: UnknownRecord) -> None:
        if not self._has_unknown:
            self._has_unknown = True
            log.warning(
                "%s has records of an unknown type or version, which are left alone; the first is in the batch at "
                "offset %d: type %d, key %r",
                self._partition.topic_partition,
                offset,
                record.type,
                record.raw_key[:MOST_SHOWN_BYTES],
            )

    def _resume(self) -> None:
        if self._work is not None:
            self._work.resume()

    def _in_thread(self, job: Callable[[], Result]) -> Generator[Step, None, Result]:
        """Run a job in the thread. Returns the job's result and raises the job's error."""
        results: list[Result] = []
        errors: list[Exception] = []

        def done(result: Result) -> None:
            results.append(result)
            self._resume()

        def failed(error: Exception) -> None:
            errors.append(error)
            self._resume()

        self._reader.submit(job, done, failed)
        yield Step.WAITS
        for error in errors:
            raise error
        return results[0]
