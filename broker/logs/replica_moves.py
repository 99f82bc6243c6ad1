"""ReplicaMoves: moves replicas between the data directories of this broker while they are written and read (KIP-113).

A copy of the log is made in the other directory, batch by batch, and follows the log. Once it has everything the
controller is told; then the copy takes the log's place (`storage.future_logs`). Clients notice a short wait at most.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol

from broker.logs.cleaner import LogCleaner
from broker.logs.removals import LogRemovals
from broker.replication.disk_reserve import DiskReserve
from broker.replication.log_start_checkpoints import LogStartCheckpoints
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.runtime.clock import Clock, Ids
from broker.runtime.rate import SimpleRate
from broker.runtime.worker_thread import MakeWorker, WorkerThread
from storage.errors import DiskFull, FilesRemoved, LogDirFailed, StorageError, TooManyOpenFiles
from storage.future_logs import FutureLog, LogExchange
from storage.log import Log
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.logs.log_copying import LogCopying

log = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""After how long a move goes on that has found a full disk, or no file descriptor left."""

FOLLOWING_MS: Final = 5
"""How long a copy that has everything waits for the controller, or for the log to be idle, before it looks again."""

LONGEST_FLUSH_MS: Final = 500
"""How long appends wait for a flush under way, before the exchange of the log is put off."""


class FlushLate(StorageError):
    """A flush takes long, or waits for a file descriptor: the log goes on meanwhile."""


class LogCut(StorageError):
    """The log was cut while its copy was about to take its place: the copy has to be cut before that, too."""


class AssignDirectory(Protocol):
    """Tells the controller in which log directory a replica of this broker is."""

    def __call__(self, topic_id: bytes, partition: int, directory_id: bytes, then: Callable[[], None]) -> None:
        """``then`` is called once the controller knows it."""


def as_storage_error(error: StorageError | FileNotFoundError) -> StorageError:
    """The error itself, or what it means that a file of a log is missing."""
    if isinstance(error, StorageError):
        return error
    return FilesRemoved(f"{error.filename} is gone: another process has removed it")


class Move:
    """One replica on its way to another data directory."""

    __slots__ = ("exchange", "future", "is_asked", "is_assigned", "is_waiting_logged", "log")

    def __init__(self, moved: Log, future: FutureLog) -> None:
        self.log = moved
        self.future = future
        self.is_asked = False
        """Whether the controller was told of the new directory."""
        self.is_assigned = False
        """Whether the controller has answered."""
        self.exchange: LogExchange | None = None
        """The renames of the attempt under way to let the copy take the log's place, if it has got so far."""
        self.is_waiting_logged = False
        """Whether it has been logged that the move waits for space."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition whose replica is moved."""
        return self.log.topic_partition


class ReplicaMoves:
    """Begins, carries out and ends the moves. All methods belong to the loop's thread."""

    def __init__(
        self,
        *,
        clock: Clock,
        ids: Ids,
        call_soon: Callable[[Callable[[], None]], object],
        make_worker: MakeWorker,
        workers: int,
        logs: LogManager,
        log_starts: LogStartCheckpoints,
        replicas: ReplicaManager,
        removals: LogRemovals,
        log_cleaner: LogCleaner,
        disk_reserves: Mapping[LogDir, DiskReserve],
        directory_id: Callable[[LogDir], bytes | None],
        assign: AssignDirectory,
        max_bytes_per_second: Callable[[], int],
        rate: SimpleRate,
    ) -> None:
        """
        Args:
            call_soon: the loop's: its callbacks run in a later turn.
            workers: `num.replica.alter.log.dirs.threads`: how many replicas are copied at the same time.
            disk_reserves: the disk reserve of each directory, which copies do not use.
            directory_id: the id of a directory at the controller, None if it has none.
            assign: tells the controller in which directory a replica is.
            max_bytes_per_second: `replica.alter.log.dirs.io.max.bytes.per.second`, of all moves together.
            rate: how that is measured.
        """
        self._clock = clock
        self._ids = ids
        self._call_soon = call_soon
        self._make_worker = make_worker
        self._workers = workers
        self._logs = logs
        self._log_starts = log_starts
        self._replicas = replicas
        self._removals = removals
        self._log_cleaner = log_cleaner
        self._disk_reserves = disk_reserves
        self._directory_id = directory_id
        self._assign = assign
        self._max_bytes_per_second = max_bytes_per_second
        self._rate = rate
        self._moves: dict[TopicPartition, Move] = {}
        self._queue: deque[Move] = deque()
        self._is_wanted = asyncio.Event()
        self._has_ended = False
        self._pauses: set[asyncio.Event] = set()
        self._after_exchange: dict[TopicPartition, Callable[[], None]] = {}
        """What waits until the renames of a partition's directories are over."""
        self.failed: set[TopicPartition] = set()
        """Replicas whose moves were given up because of an error."""

    @property
    def max_lag(self) -> int:
        """How many offsets the copy that is furthest behind does not have."""
        return max((move.future.missing(move.log) for move in self._moves.values()), default=0)

    # Beginning and ending ---------------------------------------------------------------------------------------------

    def move(self, moved: Log, directory: LogDir) -> None:
        """Move a replica to ``directory``; a move to another one ends. A replica that stands there stays there.

        Raises DiskFull, TooManyOpenFiles, LogDirFailed.
        """
        topic_partition = moved.topic_partition
        if topic_partition in self._logs.exchanged:
            # Its move is all but done: another one begins behind it.
            self._after_exchange[topic_partition] = lambda: self._move_again(moved, directory)
            return
        move = self._moves.get(topic_partition)
        if move is not None and move.future.directory is not directory:
            self._give_up(topic_partition)
            move = None
        if move is None and self._logs.directory_of(topic_partition) is not directory:
            self.failed.discard(topic_partition)
            try:
                future = self._logs.futures.create(moved, directory, self._ids.uuid().hex(), self._clock.now_ms())
            except LogDirFailed as error:
                self._replicas.disk_failed(directory, error)
                raise
            log.info("moving %s from %s to %s", topic_partition, moved.directory, future.log.directory)
            self._begin(moved, future)

    def _move_again(self, moved: Log, directory: LogDir) -> None:
        if self._logs.get(moved.topic_partition) is not moved:
            return
        try:
            self.move(moved, directory)
        except StorageError as error:
            log.error("%s is not moved to %s: %s", moved.topic_partition, directory.path, error)

    def resume(self) -> None:
        """Go on with the moves of the last run of the process, of which loading has found copies."""
        for future in self._logs.futures.all():
            moved = self._logs.get(future.log.topic_partition)
            if moved is None or self._logs.directory_of(moved.topic_partition) is future.directory:
                self._delete_copy(future.log.topic_partition)
                continue
            try:
                future.fit(moved, self._clock.now_ms())
            except StorageError as error:
                self._replicas.work_failed(future.directory, error)
                continue
            log.info("going on to move %s to %s", moved.topic_partition, future.log.directory)
            self._begin(moved, future)

    def _begin(self, moved: Log, future: FutureLog) -> None:
        self._log_cleaner.abort(moved.topic_partition)
        move = self._moves[moved.topic_partition] = Move(moved, future)
        self._queue.append(move)
        self._is_wanted.set()

    def leave(self, topic_partition: TopicPartition, then: Callable[[], None]) -> None:
        """A replica leaves this broker: end its move, then call ``then``, at once or when its directories have their
        names."""
        if topic_partition in self._logs.exchanged:
            self._after_exchange[topic_partition] = then
            return
        self._give_up(topic_partition)
        then()

    def _give_up(self, topic_partition: TopicPartition) -> None:
        move = self._moves.pop(topic_partition, None)
        self._delete_copy(topic_partition)
        if move is not None and move.is_asked and self._logs.get(topic_partition) is move.log:
            try:
                self._tell_controller(move, self._logs.directory_of(topic_partition))
            except StorageError as error:
                # The metadata log cannot be written; the next start registers where the replica is.
                log.error("the controller is not told that %s stays: %s", topic_partition, error)

    def _delete_copy(self, topic_partition: TopicPartition) -> None:
        future = self._logs.futures.get(topic_partition)
        if future is None:
            return
        try:
            removal = self._logs.futures.delete(topic_partition, self._ids.uuid().hex())
        except StorageError as error:
            self._replicas.work_failed(future.directory, error)
        else:
            if removal is not None:
                self._removals.remove_later(*removal)

    def directory_failed(self, directory: LogDir) -> None:
        """A data directory has failed: moves to it end, and the controller is told in time that the replicas stay."""
        for move in list(self._moves.values()):
            if move.future.directory is directory:
                self.failed.add(move.topic_partition)
                # Not at once: this call may come from the publication of a metadata change.
                self._call_soon(partial(self._give_up, move.topic_partition))

    def end(self) -> None:
        """End `run` as soon as no directory is being renamed; the next start goes on with the moves."""
        self._has_ended = True
        self._is_wanted.set()
        for pause in self._pauses:
            pause.set()

    # Carrying out -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out moves until `end`."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._workers):
                tasks.create_task(self._work(number))

    async def _work(self, number: int) -> None:
        worker: WorkerThread | None = None
        try:
            while not self._has_ended:
                if not self._queue:
                    self._is_wanted.clear()
                    await self._is_wanted.wait()
                    continue
                move = self._queue.popleft()
                if worker is None:
                    worker = self._make_worker(f"replica-move-{number}")
                await self._carry_out(move, worker)
        finally:
            if worker is not None:
                await worker.stop()

    def _is_wanted_still(self, move: Move) -> bool:
        return (
            not self._has_ended
            and self._moves.get(move.topic_partition) is move
            and self._logs.get(move.topic_partition) is move.log
            and self._logs.futures.get(move.topic_partition) is move.future
        )

    async def _carry_out(self, move: Move, worker: WorkerThread) -> None:
        from broker.logs.log_copying import LogCopying  # not at a start

        copying = LogCopying(
            move.log,
            move.future,
            reserve=self._disk_reserves[move.future.directory],
            run=worker.run,
            now_ms=self._clock.now_ms,
        )
        while self._is_wanted_still(move):
            try:
                await self._heed_quota(move)
                copied = await copying.copy_some()
                if copied:
                    self._rate.record(copied, self._clock.monotonic_ms())
                elif not self._is_wanted_still(move):
                    break
                elif self._may_be_exchanged(move):
                    await self._exchange(move, copying, worker)
                    return
                else:
                    await self._pause(FOLLOWING_MS)
                move.is_waiting_logged = False
            except (StorageError, FileNotFoundError) as error:
                if not self._is_wanted_still(move):
                    break  # the copy was removed meanwhile
                if not isinstance(error, DiskFull | TooManyOpenFiles):
                    self._fail(move, as_storage_error(error), is_of_source=copying.is_reading)
                    return
                if not move.is_waiting_logged:
                    move.is_waiting_logged = True
                    log.error("the move of %s waits: %s", move.topic_partition, error)
                await self._pause(RETRY_MS)
        if not self._has_ended and self._moves.get(move.topic_partition) is move:
            # The log or its copy is gone: a directory has failed.
            del self._moves[move.topic_partition]
            self.failed.add(move.topic_partition)
            self._delete_copy(move.topic_partition)

    def _fail(self, move: Move, error: StorageError, *, is_of_source: bool) -> None:
        log.error("%s is not moved to %s: %s", move.topic_partition, move.future.directory.path, error)
        self.failed.add(move.topic_partition)
        directory = move.future.directory
        if self._moves.get(move.topic_partition) is move:
            self._give_up(move.topic_partition)
        if is_of_source:
            partition = self._replicas.find(*move.topic_partition)
            if partition is not None and partition.log is move.log:
                partition.disk_failed(error)
        elif isinstance(error, LogDirFailed):
            self._replicas.disk_failed(directory, error)

    def _may_be_exchanged(self, move: Move) -> bool:
        """Whether the controller knows, and the log is idle for the moment."""
        if not move.is_asked:
            self._tell_controller(move, move.future.directory)
            move.is_asked = True
        moved = move.log
        return move.is_assigned and not (moved.staged or moved.is_writing or moved.is_being_cleaned)

    def _tell_controller(self, move: Move, directory: LogDir | None) -> None:
        directory_id = None if directory is None else self._directory_id(directory)
        if directory_id is None or move.log.topic_id is None:
            move.is_assigned = True
            return

        def known() -> None:
            move.is_assigned = True

        self._assign(move.log.topic_id, move.topic_partition.partition, directory_id, known)

    async def _exchange(self, move: Move, copying: "LogCopying", worker: WorkerThread) -> None:
        """Let the copy take the log's place. What is appended meanwhile waits."""
        moved, topic_partition = move.log, move.topic_partition
        partition = self._replicas.find(*topic_partition)
        move.exchange = None
        moved.hold()
        moved.is_being_cleaned = True  # retention leaves the segments alone
        self._logs.exchanged.add(topic_partition)
        try:
            await self._rename(move, copying, worker)
        except (StorageError, FileNotFoundError) as error:
            self._after(move, partition)
            if isinstance(error, DiskFull | TooManyOpenFiles | FlushLate | LogCut):
                log.warning("the move of %s waits: %s", topic_partition, error)
                self._queue.append(move)
                await self._pause(RETRY_MS)
                self._is_wanted.set()
            elif self._is_wanted_still(move):
                exchange = move.exchange
                is_of_source = copying.is_reading if exchange is None else exchange.is_leaving
                self._fail(move, as_storage_error(error), is_of_source=is_of_source)
        else:
            self._after(move, partition)

    async def _rename(self, move: Move, copying: "LogCopying", worker: WorkerThread) -> None:
        moved, future, topic_partition = move.log, move.future, move.topic_partition
        began_ms = self._clock.monotonic_ms()
        while moved.is_flushing and self._logs.get(topic_partition) is moved:
            if self._has_ended or self._clock.monotonic_ms() - began_ms > LONGEST_FLUSH_MS:
                raise FlushLate(f"{topic_partition} is still being flushed after {LONGEST_FLUSH_MS} ms")
            await self._pause(1)
        while await copying.copy_some():
            pass  # what was appended in the last turns
        await copying.complete()
        await self._save_log_starts(future.directory)
        if self._logs.get(topic_partition) is not moved or self._logs.futures.get(topic_partition) is not future:
            return  # a directory has failed
        if not future.ends_with(moved):
            raise LogCut(f"{topic_partition} was cut")
        exchange = move.exchange = self._logs.futures.begin_exchange(moved, future, self._ids.uuid().hex())
        await worker.run(exchange.perform)
        if self._logs.get(topic_partition) is not moved:
            return
        if self._logs.futures.get(topic_partition) is not future:
            await worker.run(exchange.undo)
            return
        if not future.ends_with(moved):
            await worker.run(exchange.undo)
            raise LogCut(f"{topic_partition} was cut")
        removal, before = self._logs.complete_exchange(future, exchange)
        self._removals.remove_later(removal, before)
        del self._moves[topic_partition]
        partition = self._replicas.find(*topic_partition)
        if partition is not None and partition.log is moved:
            partition.moved_to(future.directory, self._disk_reserves[future.directory])
        log.info("moved %s to %s", topic_partition, moved.directory)

    def _after(self, move: Move, partition: Partition | None) -> None:
        """Let the partition go on. It may be gone by now: what has waited is refused then."""
        moved, topic_partition = move.log, move.topic_partition
        moved.is_being_cleaned = False
        moved.release()
        self._logs.exchanged.discard(topic_partition)
        if partition is not None:
            self._replicas.go_on(partition)
        then = self._after_exchange.pop(topic_partition, None)
        if then is not None:
            then()

    async def _save_log_starts(self, directory: LogDir) -> None:
        """Have the checkpoint of ``directory`` name where the copy begins. Raises the directory's error."""
        error = (await self._log_starts.saved()).get(directory)
        if error is not None:
            raise error

    # Waiting ----------------------------------------------------------------------------------------------------------

    async def _heed_quota(self, move: Move) -> None:
        """Wait until the quota admits more bytes, or the move is over."""
        while (pause_ms := self._quota_pause_ms()) and self._is_wanted_still(move):
            await self._pause(pause_ms)

    def _quota_pause_ms(self) -> int:
        """For how long nothing is copied now, `RETRY_MS` at most: the quota may change meanwhile."""
        most = max(self._max_bytes_per_second(), 1)
        return ceil(min(self._rate.throttle_ms(most, self._clock.monotonic_ms()), RETRY_MS))

    async def _pause(self, pause_ms: int) -> None:
        """Wait, or until `end`."""
        if self._has_ended:
            return
        over = asyncio.Event()
        self._pauses.add(over)
        alarm = self._clock.call_at(self._clock.monotonic_ms() + pause_ms, over.set)
        await over.wait()
        alarm.cancel()
        self._pauses.discard(over)
