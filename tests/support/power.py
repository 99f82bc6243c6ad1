"""Storage driven as the broker drives it, through power cuts and restarts, beside a model of what must survive.

Flushed batches are there again, byte for byte. Of the batches appended after them, a prefix is there and nothing else.
Everything else that the log knows (start, epochs, producers, transactions, indexes) agrees with the batches that are
there. After a clean stop all batches are there, and none has to be read again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from config.log_config import LogConfig
from storage.batch.record_batch import read_header
from storage.batch.records import Record, iterate_records
from storage.checkpoints import MetaProperties
from storage.deleted_partitions import ForgetDeleted
from storage.errors import DiskFull, LogDirFailed, StorageError, TooManyOpenFiles
from storage.flushing import FlushTarget
from storage.index.transaction_index import AbortedTransaction
from storage.log import Log
from storage.log_dir import CheckpointWrite, LogDir
from storage.log_manager import LogManager
from storage.producer_state import ProducerEntry, Producers
from storage.removal import PendingRemoval
from storage.topic_partition import TopicPartition
from tests.support.files import FaultyFileSystem, PowerLost
from tests.support.logs import T, batch_of, marker

CONFIG = LogConfig(
    segment_bytes=700, index_interval_bytes=150, segment_index_bytes=480, retention_bytes=1500, retention_ms=-1
)


@dataclass
class Expected:
    """The expected content of one partition."""

    topic_id: bytes
    batches: list[bytes] = field(default_factory=list)
    """All batches that were appended, from offset 0 or from the last full truncation, whether they have been removed
    since or not."""
    flushed_to: int = 0
    """The highest recovery point that the log has had: no batch below it may be lost."""
    start: int = 0
    """The log start offset."""
    durable_start: int = 0
    """The log start offset of a checkpoint that was on disk."""
    refused: list[bytes] = field(default_factory=list)
    """Batches whose append has failed: their producers got no answer, and until a flush the batches may come back."""
    begins: set[int] = field(default_factory=lambda: {0})
    """The offsets at which an empty log may begin."""

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else self.start

    def from_start(self, start: int) -> list[bytes]:
        return [batch for batch in self.batches if read_header(batch).last_offset >= start]

    def cut(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if read_header(batch).last_offset < offset]
        self.flushed_to = min(self.flushed_to, self.end)


@dataclass
class Remembered:
    """The state of a log when it was closed in order."""

    start: int
    end: int
    high_watermark: int
    epochs: list[tuple[int, int]]
    producers: dict[int, ProducerEntry]


class PoweredStorage:
    """A data directory with storage that can lose its power."""

    def __init__(self, path: Path, *, reorders: bool = False) -> None:
        self.root = path
        self.reorders = reorders
        self.files = FaultyFileSystem()
        self.topics: dict[str, Expected] = {}
        self.epoch = 0
        self.remembered: dict[str, Remembered] | None = None
        self.seed_of_loss = 0
        self.has_half_made = False
        """A log was made in part because the disk was full: the next start will report it."""
        self._cuts = 0
        self._ids = iter(range(1, 1_000_000))
        self._manager: LogManager | None = None
        self.directory: LogDir
        self.flushes: list[tuple[Log, FlushTarget]] = []
        self.checkpoints: list[tuple[CheckpointWrite, dict[str, int]]] = []
        self.removals: list[PendingRemoval] = []
        self.to_forget: list[ForgetDeleted] = []
        self.start()

    @property
    def manager(self) -> LogManager:
        assert self._manager is not None, "it is not running"
        return self._manager

    @property
    def is_running(self) -> bool:
        return self._manager is not None

    def log(self, topic: str) -> Log | None:
        return self.manager.get(TopicPartition(topic, 0))

    def _number(self) -> int:
        return next(self._ids)

    def _unique_id(self) -> str:
        return f"{self._number():032x}"

    # Lives ------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start, and start again if the power is lost meanwhile."""
        while True:
            try:
                return self._start()
            except PowerLost:
                self._die(self.seed_of_loss)

    def _start(self) -> None:
        self.flushes, self.checkpoints, self.removals, self.to_forget = [], [], [], []
        self.files.make_room()
        self.files.disk.faults.clear()
        self.directory = LogDir.lock(self.files, str(self.root / "data"))
        if self.directory.read_properties() is None:
            properties = MetaProperties(cluster_id="c" * 22, node_id=1, directory_id=b"d" * 16)
            self.directory.write_properties(properties, "today")
        self._manager = manager = LogManager(self.files, [self.directory], most_open_files=6)
        for found in manager.find(
            config_of=lambda topic: CONFIG, is_ours=self._is_ours, assigned=lambda _: None, new_id=self._unique_id
        ):
            for _ in manager.open(found, T):
                pass
        manager.loaded()
        assert manager.failures == []
        is_clean = self.directory.was_clean
        if is_clean:
            assert self.remembered is not None, "the marker of a clean stop that was never begun"
            if not self.has_half_made:
                assert all(repaired.report.segments_rebuilt == 0 for repaired in manager.repaired)
                assert manager.findings == []
        for topic, expected in self.topics.items():
            log = self.log(topic)
            if log is not None:
                self._check_found(log, expected, self.remembered.get(topic) if is_clean and self.remembered else None)
        for topic, expected in self.topics.items():
            self._host(topic, expected, is_clean)
        if not is_clean:
            self.epoch += 1
            for topic in self.topics:
                if (log := self.log(topic)) is not None:
                    log.assign_epoch_start(self.epoch)
        self.removals += [removal for removal, _ in manager.take_pending_removals()]
        self.remembered = None
        self.has_half_made = False
        self.check()

    def _is_ours(self, topic_partition: TopicPartition, topic_id: bytes | None) -> bool:
        expected = self.topics.get(topic_partition.topic)
        return expected is not None and topic_id in (None, expected.topic_id)

    def _host(self, topic: str, expected: Expected, is_clean: bool = False) -> None:
        known = self.log(topic)
        self.to_forget += self.manager.forget_deleted()
        while self.to_forget:
            self.finish_writes()
            self.to_forget[0].perform()
            self.manager.have_forgotten(self.to_forget.pop(0))
        log = self.manager.create(TopicPartition(topic, 0), expected.topic_id, CONFIG, T)
        if known is None:
            assert expected.flushed_to == 0, f"{topic} is gone"
            assert (log.log_start_offset, log.log_end_offset) == (0, 0)
            expected.batches, expected.start, expected.durable_start, expected.begins = [], 0, 0, {0}
            expected.refused = []
        log.advance_high_watermark(log.log_end_offset)

    def stop(self) -> None:
        """Stop in order: all work is finished before."""
        self.finish_flushes()
        self._tries(self._stop)

    def _stop(self) -> None:
        self.remembered = {
            topic: Remembered(
                log.log_start_offset,
                log.log_end_offset,
                log.high_watermark,
                log.leader_epochs.entries,
                dict(log.producers.entries),
            )
            for topic in self.topics
            if (log := self.log(topic)) is not None
        }
        for closing in self.manager.begin_close(T):
            closing.perform()
            self.manager.complete_close(closing)
        self.manager.write_checkpoints()
        if self.manager.failures:
            raise LogDirFailed("it could not be closed in order") from self.manager.failures[0][1]
        for topic, then in self.remembered.items():
            self.topics[topic].flushed_to = then.end
            self.topics[topic].durable_start = then.start
        try:
            self.manager.leave(7)
        except DiskFull as error:
            raise LogDirFailed("it could not be left in order") from error
        self._manager = None

    def stop_and_start(self) -> None:
        """Stop in order, and start."""
        self.stop()
        if self._manager is None:
            self.start()

    def stop_cut_power_and_start(self, seed: int) -> None:
        """Stop in order; then cut the power, and start."""
        self.stop()
        if self._manager is None:
            self._cut(seed)
            self.start()
            assert self.directory.was_clean

    def kill_and_start(self) -> None:
        """Kill the process and start: all written bytes stay."""
        ends = {topic: log.log_end_offset for topic in self.topics if (log := self.log(topic)) is not None}
        cuts = self._cuts
        self._let_go()
        self.start()
        for topic, end in ends.items():
            log = self.log(topic)
            assert self._cuts > cuts or (log is not None and log.log_end_offset >= end), f"{topic} has lost its end"

    def cut_power_and_start(self, seed: int) -> None:
        """Cut the power and start."""
        self._die(seed)
        self.start()

    def lose_power_after(self, changes: int, seed: int) -> None:
        """Let the power be lost after so many more changes."""
        self.seed_of_loss = seed
        self.files.lose_power_after(changes)

    def _die(self, seed: int) -> None:
        self._let_go()
        self._cut(seed)

    def _cut(self, seed: int) -> None:
        self._cuts += 1
        self.files.cut_power_by_chance(str(self.root), seed, reorders=self.reorders)

    def _let_go(self) -> None:
        if self._manager is not None:
            for log in self._manager.all():
                log.abandon()
            self._manager = None
        lock, self.directory._lock = self.directory._lock, None
        if lock is not None:
            lock.release()

    def _tries(self, operation: Callable[[], None]) -> bool:
        """Run an operation. Returns whether it has completed: a full disk refuses it; after a broken disk, storage is
        opened anew."""
        try:
            operation()
        except (DiskFull, TooManyOpenFiles):
            if self._manager is not None and self.directory.has_failed:
                self.cut_power_and_start(self.seed_of_loss)
            return False
        except (PowerLost, LogDirFailed):
            self.cut_power_and_start(self.seed_of_loss)
            return False
        return True

    # What is done in them ---------------------------------------------------------------------------------------------

    def create(self, topic: str) -> None:
        """Create a topic: first in the metadata, then its log."""
        if topic not in self.topics:
            self.topics[topic] = expected = Expected(topic_id=self._number().to_bytes(16, "big"))
            if not self._tries(lambda: self._host(topic, expected)):
                self.has_half_made = True

    def delete(self, topic: str) -> None:
        """Delete a topic: first from the metadata, then its log."""
        if self.topics.pop(topic, None) is None:
            return

        def delete() -> None:
            removal = self.manager.delete(TopicPartition(topic, 0), self._unique_id())
            if removal is not None:
                self.removals.append(removal)

        self._tries(delete)

    def append(
        self,
        topic: str,
        *,
        size: int = 20,
        count: int = 1,
        timestamp: int = T,
        producer_id: int = -1,
        is_transactional: bool = False,
    ) -> None:
        """Append a producer's batch, with the next sequence number if it has a producer id."""
        if (log := self.log(topic)) is None:
            return
        entry = log.producers.entries.get(producer_id)
        batch = batch_of(
            *((b"%06d" % self._number()).ljust(size, b".") for _ in range(count)),
            timestamp=timestamp,
            producer_id=producer_id,
            sequence=entry.last_sequence + 1 if entry is not None else 0,
            is_transactional=is_transactional,
        )
        log.stage(batch, leader_epoch=self.epoch)
        self._write(topic, log)

    def end_transaction(self, topic: str, producer_id: int, *, commit: bool) -> None:
        """Append the marker of a producer's open transaction, if there is one."""
        log = self.log(topic)
        if log is None or (entry := log.producers.entries.get(producer_id)) is None:
            return
        if entry.transaction_first_offset >= 0:
            log.stage_trusted(marker(producer_id, commit=commit), leader_epoch=self.epoch)
            self._write(topic, log)

    def _write(self, topic: str, log: Log) -> None:
        expected = self.topics[topic]
        (data,) = [bytes(staged.data) for staged in log.staged]
        expected.batches.append(data)

        def write() -> None:
            try:
                log.append_all(T)
            except StorageError:
                if log.log_end_offset < expected.end:
                    expected.batches.pop()
                    expected.refused.append(data)
                raise

        if self._tries(write):
            log.advance_high_watermark(log.log_end_offset)

    def roll(self, topic: str) -> None:
        """Begin a new segment."""
        if (log := self.log(topic)) is not None:
            self._tries(lambda: log.roll(T) and None)

    def begin_flush(self, topic: str, *, everything: bool) -> None:
        """Begin a flush; it is performed later."""
        if (log := self.log(topic)) is None:
            return

        def begin() -> None:
            target = log.begin_flush(T, everything=everything)
            if target is not None:
                self.flushes.append((log, target))

        self._tries(begin)

    def flush_what_is_due(self, topic: str) -> None:
        """Begin the flush that the background task would begin now."""
        log = self.log(topic)
        if log is not None and log.needs_flush(T):
            self.begin_flush(topic, everything=False)
            self.finish_flushes()

    def flush(self, topic: str) -> None:
        """Flush everything."""
        self.begin_flush(topic, everything=True)
        self.finish_flushes()

    def finish_flushes(self) -> None:
        """Perform and complete the flushes that have begun, in their order."""

        def finish() -> None:
            while self.flushes:
                log, target = self.flushes[0]
                target.perform()
                del self.flushes[0]
                log.complete_flush(target)
                self._notice_recovery_points()

        self._tries(finish)

    def _notice_recovery_points(self) -> None:
        for topic, expected in self.topics.items():
            log = self.log(topic)
            if log is not None and log.recovery_point > expected.flushed_to:
                expected.flushed_to = log.recovery_point
                expected.refused.clear()

    def prepare_checkpoints(self) -> None:
        """Gather the checkpoints' content; they are written later."""
        starts = {topic: log.log_start_offset for topic in self.topics if (log := self.log(topic)) is not None}
        for write in self.manager.recovery_point_checkpoints() + self.manager.high_watermark_checkpoints():
            self.checkpoints.append((write, {}))
        for write in self.manager.log_start_checkpoints():
            self.checkpoints.append((write, starts))

    def write_checkpoints(self) -> None:
        """Write the checkpoints, first those that were gathered before."""
        self.prepare_checkpoints()
        self.finish_checkpoints()

    def finish_checkpoints(self) -> None:
        """Write the checkpoints that were gathered."""
        self._tries(self.finish_writes)

    def finish_writes(self) -> None:
        """Do the worker thread's jobs, in their order."""
        while self.checkpoints:
            write, starts = self.checkpoints.pop(0)
            write.perform()
            for topic, start in starts.items():
                if topic in self.topics:
                    self.topics[topic].durable_start = max(self.topics[topic].durable_start, start)

    def delete_records(self, topic: str, fraction: float) -> None:
        """Raise the log start offset; its checkpoint is on disk before this returns."""
        log = self.log(topic)
        if log is None:
            return
        expected = self.topics[topic]
        offset = log.log_start_offset + int((log.high_watermark - log.log_start_offset) * fraction)
        expected.start = max(expected.start, offset)
        if self._tries(lambda: log.start_offset_to(offset) and None):
            self.write_checkpoints()

    def apply_retention(self) -> None:
        """Apply retention; the files are removed later."""

        def sweep() -> None:
            try:
                for _, removals in self.manager.apply_retention(T):
                    if isinstance(removals, StorageError):
                        raise removals
                    self.removals += removals
            finally:
                for topic, expected in self.topics.items():
                    if (log := self.log(topic)) is not None:
                        expected.start = max(expected.start, log.log_start_offset)

        self._tries(sweep)

    def remove_files(self) -> None:
        """Remove the files that are no longer used."""

        def remove() -> None:
            while self.removals:
                self.removals.pop(0).perform()

        self._tries(remove)

    def truncate(self, topic: str, fraction: float) -> None:
        """Truncate the log as a follower does."""
        log = self.log(topic)
        if log is None:
            return
        expected = self.topics[topic]
        offset = log.log_start_offset + int((log.log_end_offset - log.log_start_offset) * fraction)
        whole = [h.next_offset for h in map(read_header, expected.batches) if h.last_offset < offset]
        expected.flushed_to = min(expected.flushed_to, max(whole, default=0))

        def truncate() -> None:
            self._write_before_truncation(log, offset)
            self._write_after_truncation(self.manager.truncate_to(log.topic_partition, offset, T))

        if self._tries(truncate):
            expected.cut(offset)
            expected.refused.clear()
            assert log.log_end_offset == max(expected.end, log.log_start_offset)
            log.advance_high_watermark(log.log_end_offset)

    def truncate_fully(self, topic: str, offset: int) -> None:
        """Truncate the log fully: it begins anew at an offset."""
        log = self.log(topic)
        if log is None:
            return
        expected = self.topics[topic]
        expected.flushed_to = expected.durable_start = 0
        expected.begins.add(offset)

        def truncate() -> None:
            self._write_before_truncation(log, offset)
            self._write_after_truncation(self.manager.truncate_fully_to(log.topic_partition, offset, T))

        if self._tries(truncate):
            expected.batches, expected.start, expected.begins = [], offset, {offset}
            expected.durable_start = offset
            expected.refused.clear()
            log.advance_high_watermark(offset)

    def _write_before_truncation(self, log: Log, offset: int) -> None:
        write = self.manager.begin_truncation(log.topic_partition, offset)
        if write is not None:
            self.checkpoints.append((write, {}))
        self.finish_writes()

    def _write_after_truncation(self, writes: list[CheckpointWrite]) -> None:
        self.checkpoints += [(write, {}) for write in writes]
        try:
            self.finish_writes()
        except DiskFull as error:
            raise LogDirFailed("a follower that cannot say where its log begins must not go on") from error

    # What must hold ---------------------------------------------------------------------------------------------------

    def _check_found(self, log: Log, expected: Expected, then: Remembered | None) -> None:
        """Check what a start has found."""
        found = [bytes(data) for _, data in log.batches()]
        wanted = expected.from_start(log.log_start_offset)
        where = f"{log}, flushed to {expected.flushed_to}"
        assert expected.durable_start <= log.log_start_offset or (
            not found and log.log_start_offset in expected.begins
        ), where
        assert log.log_start_offset <= max(expected.start, *expected.begins), where
        if found or not (log.log_start_offset == log.log_end_offset and log.log_end_offset in expected.begins):
            assert log.log_end_offset >= expected.flushed_to, where
        for number, data in enumerate(found):
            header = read_header(data)
            is_expected = number < len(wanted) and data == wanted[number]
            is_refused = header.base_offset >= expected.flushed_to and data in expected.refused
            assert is_expected or is_refused, f"{where}: {data!r} at {header.base_offset}"
        if then is not None:
            assert (then.start, then.end, then.high_watermark) == (
                log.log_start_offset,
                log.log_end_offset,
                log.high_watermark,
            ), where
            # Of an empty log the epochs are taken from what stands before its start.
            assert then.epochs == log.leader_epochs.entries or then.start == then.end, where
            # Where all records have been deleted Apache Kafka forgets who has sent them, too.
            assert (then.start == then.end and not log.producers.entries) or (
                {e.producer_id: _persisted(e) for e in log.producers}
                == {number: _persisted(entry) for number, entry in then.producers.items()}
            ), where
        removed = [b for b in expected.batches if read_header(b).last_offset < log.log_start_offset]
        expected.batches = removed + found
        expected.start = log.log_start_offset
        expected.begins = {log.log_start_offset}
        expected.refused.clear()
        expected.flushed_to = min(expected.flushed_to, log.log_end_offset)
        if not found:
            assert log.log_end_offset >= log.log_start_offset
        # What has been lost may leave a start behind the last batch.
        expected.durable_start = min(expected.durable_start, log.log_start_offset)

    def check(self) -> None:
        """Check what must hold at any time."""
        self.files.disk.is_at_rest = True
        for topic, expected in self.topics.items():
            if (log := self.log(topic)) is not None:
                check_log(log, expected)
        self.files.disk.is_at_rest = False


def _persisted(entry: ProducerEntry) -> ProducerEntry:
    """A producer's entry as a snapshot has it: with the timestamp of its last marker as the timestamp of its last
    batch."""
    return entry._replace(batches=tuple(batch._replace(timestamp=0) for batch in entry.batches[-1:]))


def check_log(log: Log, expected: Expected) -> None:
    """Check that everything that a log knows agrees with its expected batches."""
    start, end = log.log_start_offset, log.log_end_offset
    wanted = expected.from_start(start)
    headers = [read_header(batch) for batch in wanted]
    assert [bytes(data) for _, data in log.batches()] == wanted
    assert end == (headers[-1].next_offset if headers else max(start, expected.end))
    assert start == expected.start
    assert log.recovery_point <= end
    _check_epochs(log, wanted)
    aborted = _check_producers(log, expected.batches)
    for header, batch in zip(headers, wanted, strict=True):
        for offset in {max(header.base_offset, start), header.last_offset}:
            region = log.read(offset, max_bytes=1, upper_bound_offset=end, at_least_one_batch=True).region
            assert region is not None
            assert region.read() == batch
    _check_timestamps(log, wanted)
    if end > start:
        read = log.read(start, max_bytes=1 << 20, upper_bound_offset=end, at_least_one_batch=True)
        assert read.region is not None
        read_end = start
        for header in headers:
            if sum(h.size for h in headers if h.base_offset <= header.base_offset) <= read.size:
                read_end = header.next_offset
        told = set(log.aborted_transactions(start, read))
        in_read = [
            transaction
            for transaction in aborted
            if any(
                header.producer_id == transaction.producer_id
                and not header.is_control
                and transaction.first_offset <= header.base_offset < min(transaction.last_offset, read_end)
                for header in headers
            )
        ]
        assert {(a.producer_id, a.last_offset) for a in in_read} <= {(a.producer_id, a.last_offset) for a in told}
        assert {(a.producer_id, a.last_offset) for a in told} <= {(a.producer_id, a.last_offset) for a in aborted}


def _check_epochs(log: Log, wanted: list[bytes]) -> None:
    entries = log.leader_epochs.entries
    assert entries == sorted(set(entries))
    assert [start for _, start in entries] == sorted({start for _, start in entries})
    assert all(log.log_start_offset <= start <= log.log_end_offset for _, start in entries), entries
    for batch in wanted:
        header = read_header(batch)
        for offset in (max(header.base_offset, log.log_start_offset), header.last_offset):
            assert log.leader_epochs.epoch_at(offset) == header.partition_leader_epoch, f"{log}: {entries} at {offset}"


def _check_producers(log: Log, batches: list[bytes]) -> list[AbortedTransaction]:
    """Check the producers of the log. Returns the aborted transactions, computed from the batches."""
    replayed = Producers()
    told = [replayed.apply(read_header(batch), batch) for batch in batches]
    aborted = [transaction for transaction in told if transaction is not None]
    start = log.log_start_offset
    for entry in log.producers:
        known = replayed.entries[entry.producer_id]
        if 0 <= known.transaction_first_offset < start:
            # Where the transaction begins may be forgotten with the records.
            known = known._replace(transaction_first_offset=entry.transaction_first_offset)
        assert _without_start(entry, start) == _without_start(known, start), f"{log}: {entry}, expected {known}"
        offsets = [batch.last_offset for batch in entry.batches]
        assert offsets == [batch.last_offset for batch in known.batches][len(known.batches) - len(offsets) :]
    for batch in batches:
        header = read_header(batch)
        if header.has_producer_id and header.base_offset >= start:
            assert header.producer_id in log.producers.entries, f"{log} has forgotten producer {header.producer_id}"
    return aborted


def _without_start(entry: ProducerEntry, log_start_offset: int) -> ProducerEntry:
    """An entry without the batches before the log's start, which may be forgotten."""
    last = tuple(b._replace(timestamp=0) for b in entry.batches[-1:] if b.last_offset >= log_start_offset)
    return entry._replace(batches=last, coordinator_epoch=0, last_timestamp=0)


def _check_timestamps(log: Log, wanted: list[bytes]) -> None:
    records = [(r.timestamp, r.offset) for r in _records(wanted) if r.offset >= log.log_start_offset]
    for timestamp in {timestamp + more for timestamp, _ in records for more in (0, 1)}:
        found = log.offset_for_timestamp(timestamp, log.log_end_offset)
        linear = next(((t, offset) for t, offset in records if t >= timestamp), None)
        assert (found and (found.timestamp, found.offset)) == linear, f"{log} at {timestamp}"


def _records(batches: list[bytes]) -> Iterator[Record]:
    for batch in batches:
        yield from iterate_records(batch)
