"""LogCleaner: removes superseded records from compacted topics (``log.cleaner.*``).

A cleaner, of which there are ``log.cleaner.threads``, takes the dirtiest log that is due, has a process of its own copy
the log's segments without the superseded records, and puts each copy in place. When no log is due it ends its process,
and looks again after ``log.cleaner.backoff.ms``.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.logs.cleaner_process import CleanerProcess
from broker.logs.cleaner_stats import CleanerStats, LastRound
from broker.logs.removals import LogRemovals
from broker.replication.replica_manager import ReplicaManager
from broker.runtime.child_process import ChildEnded
from broker.runtime.clock import Clock
from broker.runtime.counted import counted
from broker.runtime.worker_thread import MakeWorker, WorkerThread
from config.broker_settings import BrokerSettings
from storage.errors import DiskFull, LogDirFailed, StorageError, TooManyOpenFiles
from storage.log import Log
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from storage.cleaning.candidates import Cleanable
    from storage.cleaning.order import CleanedGroup, CleanerLimits, CleaningReport

log = logging.getLogger(__name__)

MOST_DEATHS: Final = 3
"""A log in whose rounds so many processes have died, one after the other, counts as one that cannot be cleaned."""

MOST_MAP_BYTES: Final = 2**31 - 1
"""Bytes of one cleaner's offset map, at most, whatever ``log.cleaner.dedupe.buffer.size`` says; as in Kafka."""

LEAST_LOAD_FACTOR: Final = 0.01
"""The least part of the offset map that is used, whatever ``log.cleaner.io.buffer.load.factor`` says."""

_MAY_PASS: Final = (DiskFull, TooManyOpenFiles)


class LogCleaner:
    """Chooses the logs, orders the rounds, and deals with what goes wrong in them."""

    def __init__(
        self,
        *,
        make_worker: MakeWorker,
        clock: Clock,
        logs: LogManager,
        replicas: ReplicaManager,
        removals: LogRemovals,
        checkpoint_writer: WorkerThread,
        settings: BrokerSettings,
        interval: Callable[[int], int],
    ) -> None:
        """``checkpoint_writer`` is the thread that writes all checkpoints; ``interval`` is `Scheduler.interval`."""
        self._interval = interval
        self._make_worker = make_worker
        self._clock = clock
        self._logs = logs
        self._replicas = replicas
        self._removals = removals
        self._checkpoint_writer = checkpoint_writer
        self._settings = settings
        self._pauses: set[asyncio.Event] = set()
        """What waits for a backoff to be over, or for new settings."""
        self._uncleanable: dict[Log, str] = {}
        self._deaths: dict[Log, int] = {}
        """How many processes in a row have died in rounds over a log."""
        self._demanded: set[Log] = set()
        """Logs that are cleaned whatever their dirty ratio is, since an administrator wants it."""
        self._satisfied: list[asyncio.Event] = []
        """Set once no log is demanded any more."""
        self._postponed: set[Log] = set()
        """The logs whose rounds have failed since the last backoff: others have their turn first."""
        self._under_way: dict[TopicPartition, CleanerProcess] = {}
        self._aborted: set[TopicPartition] = set()
        """Those of them whose rounds were ended."""
        self._full: set[LogDir] = set()
        """Directories that have been logged as full, and in which no round has succeeded since."""
        self.stats = CleanerStats()

    @property
    def uncleanable(self) -> dict[Log, str]:
        """The logs that cannot be cleaned, and why. They are left alone until the next start."""
        self._uncleanable = {one: why for one, why in self._uncleanable.items() if self._is_ours(one)}
        return self._uncleanable

    def reconfigure(self, settings: BrokerSettings) -> None:
        """Take new settings. Rounds with other limits are begun anew, as Kafka's are: one may take days by the old."""
        limits = self._limits() if self._under_way else None
        self._settings = settings
        if limits is not None and self._limits() != limits:
            for topic_partition in self._under_way:
                self.abort(topic_partition)
        for pause in self._pauses:
            pause.set()

    async def clean_now(self, demanded: Iterable[Log]) -> None:
        """Clean compacted logs as far as they can be cleaned, however little that is, and return once that is done, or
        has failed."""
        if not self._cleaners:
            return
        self._demanded.update(demanded)
        satisfied = asyncio.Event()
        self._satisfied.append(satisfied)
        for pause in self._pauses:
            pause.set()
        await satisfied.wait()

    def abort(self, topic_partition: TopicPartition) -> None:
        """End the round over a log, if there is a round. The log is about to be removed, cut, or cleaned otherwise."""
        if (process := self._under_way.get(topic_partition)) is not None:
            self._aborted.add(topic_partition)
            process.kill()

    async def run(self) -> None:
        """Clean until cancelled."""
        cleaners: dict[int, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                for number in range(self._cleaners):
                    if number not in cleaners or cleaners[number].done():
                        cleaners[number] = tasks.create_task(self._run_cleaner(number))
                await self._pause(None)

    async def _run_cleaner(self, number: int) -> None:
        """One cleaner: until there are to be fewer of them."""
        process = CleanerProcess(self._make_worker(f"cleaner-{number}"))
        try:
            while number < self._cleaners:
                candidate = self._choose()
                if candidate is not None:
                    if not await self._clean(number, process, candidate):
                        await process.end()
                else:
                    await process.end()
                    await self._pause(self._interval(self._settings.log_cleaner_backoff_ms))
                    self._postponed.clear()
        finally:
            self.stats.last_rounds.pop(number, None)
            self.stats.dead_cleaners.discard(number)
            await process.stop()

    async def _pause(self, backoff_ms: int | None) -> None:
        """Wait for ``backoff_ms`` (None: without end), or until the settings change."""
        over = asyncio.Event()
        self._pauses.add(over)
        alarm = None if backoff_ms is None else self._clock.call_at(self._clock.monotonic_ms() + backoff_ms, over.set)
        try:
            await over.wait()
        finally:
            self._pauses.discard(over)
            if alarm is not None:
                alarm.cancel()

    @property
    def _cleaners(self) -> int:
        """How many cleaners there are to be."""
        return self._settings.log_cleaner_threads if self._settings.log_cleaner_enable else 0

    # Choosing ---------------------------------------------------------------------------------------------------------

    def _choose(self) -> "Cleanable | None":
        """The dirtiest of the logs that are due and not postponed; None if there is none."""
        now_ms = self._clock.now_ms()
        stats = self.stats
        stats.looked_ms = now_ms
        stats.max_dirty_ratio, stats.max_delay_ms = 0.0, 0
        chosen: Cleanable | None = None
        self._demanded.intersection_update(self._logs.all())
        self._demanded.difference_update(self._uncleanable, self._postponed)
        for one in self._logs.all():
            if not one.config.is_compacted or one.topic_partition in self._under_way or one in self._uncleanable:
                continue
            if one.topic_partition in self._logs.futures:
                continue  # a copy of the log is being made in another directory
            try:
                from storage.cleaning.candidates import cleanable  # not before a log is compacted

                found = cleanable(one, now_ms)
            except StorageError as error:
                self._failed(one, error)
                continue
            stats.max_dirty_ratio = max(stats.max_dirty_ratio, found.dirty_ratio)
            stats.max_delay_ms = max(stats.max_delay_ms, found.delay_ms)
            if not found.cleanable_bytes:
                self._demanded.discard(one)
            if (
                (found.is_due or one in self._demanded)
                and one not in self._postponed
                and (chosen is None or found.dirty_ratio > chosen.dirty_ratio)
            ):
                chosen = found
        if not self._demanded:
            for satisfied in self._satisfied:
                satisfied.set()
            self._satisfied.clear()
        return chosen

    def _is_ours(self, one: Log) -> bool:
        return self._logs.get(one.topic_partition) is one

    # A round ----------------------------------------------------------------------------------------------------------

    async def _clean(self, number: int, process: CleanerProcess, candidate: "Cleanable") -> bool:
        """Clean a log; whether that was done. If not, the log is postponed, unless its round was ended by `abort`."""
        cleaned = candidate.log
        began_ms = self._clock.monotonic_ms()
        cleaned.is_being_cleaned = True
        self._under_way[cleaned.topic_partition] = process
        try:
            report = await self._perform(process, candidate)
        except ChildEnded as error:
            report = None
            if cleaned.topic_partition not in self._aborted:
                self._died(number, cleaned, error)
        except StorageError as error:
            report = None
            self._failed(cleaned, error)
        except OSError as error:
            report = None
            log.warning("no process to clean %s: %s", cleaned.topic_partition, error)
            self._postponed.update(self._logs.all())
        finally:
            was_ended = cleaned.topic_partition in self._aborted
            cleaned.is_being_cleaned = False
            del self._under_way[cleaned.topic_partition]
            self._aborted.discard(cleaned.topic_partition)
        if was_ended:
            # Also where the report came before the end of the process: the log may have been cut since then.
            log.info("a round of cleaning %s was ended", cleaned.topic_partition)
            return False
        if report is None or not self._is_ours(cleaned):
            self._postponed.add(cleaned)
            return False
        seconds = (self._clock.monotonic_ms() - began_ms) / 1000
        self._succeeded(number, candidate, report, seconds)
        return True

    async def _perform(self, process: CleanerProcess, candidate: "Cleanable") -> "CleaningReport | None":
        """One round. None if the log has changed meanwhile, so that a copy could not take its place."""
        from storage.cleaning.candidates import order_for
        from storage.cleaning.order import CleanedGroup

        cleaned = candidate.log
        report: CleaningReport | None = None
        async for result in process.clean(order_for(candidate, self._limits(), self._clock.now_ms())):
            if not isinstance(result, CleanedGroup):
                report = result
            elif not await self._swap(process.thread, cleaned, result):
                return None
        return report

    def _limits(self) -> "CleanerLimits":
        """What one of the cleaners may take."""
        from storage.cleaning.order import CleanerLimits

        settings = self._settings
        cleaners = max(settings.log_cleaner_threads, 1)
        return CleanerLimits(
            map_bytes=min(settings.log_cleaner_dedupe_buffer_size // cleaners, MOST_MAP_BYTES),
            map_load_factor=min(max(settings.log_cleaner_io_buffer_load_factor, LEAST_LOAD_FACTOR), 1.0),
            # Half of it is for reading, half for writing.
            io_buffer_bytes=settings.log_cleaner_io_buffer_size // cleaners // 2,
            max_bytes_per_second=settings.log_cleaner_io_max_bytes_per_second / cleaners,
            reserve_bytes=settings.ottla_disk_reserve_bytes,
        )

    async def _swap(self, thread: WorkerThread, cleaned: Log, group: "CleanedGroup") -> bool:
        """Put a copy in the place of its segments. False if the log does not have these segments any more."""
        directory = self._logs.directory_of(cleaned.topic_partition)
        swap = cleaned.begin_swap(group.base_offsets, group.sizes, group.modified_ms)
        if swap is None or directory is None or not self._is_ours(cleaned):
            return False
        await thread.run(swap.prepare)
        removals = cleaned.swap_in(swap) if self._is_ours(cleaned) else None
        if removals is None:
            await thread.run(swap.give_up)
            return False
        self.stats.segments_replaced += len(swap.replaced)
        for removal in removals:
            self._removals.remove_later(removal, directory)
        try:
            await thread.run(swap.sync)
        finally:
            if self._is_ours(cleaned):
                cleaned.end_swap(swap)
        return True

    # How it ended -----------------------------------------------------------------------------------------------------

    def _succeeded(self, number: int, candidate: "Cleanable", report: "CleaningReport", seconds: float) -> None:
        cleaned, done, stats = candidate.log, report.stats, self.stats
        cleaned.cleaned_to = report.cleaned_to
        self._deaths.pop(cleaned, None)
        stats.rounds += 1
        stats.bytes_read += done.bytes_read
        stats.bytes_written += done.bytes_written
        stats.bytes_moved += done.map_bytes_read + done.bytes_read + done.bytes_written
        stats.records_read += done.records_read
        stats.records_written += done.records_written
        stats.last_rounds[number] = LastRound(seconds, done.bytes_read, done.bytes_written, report.map_utilization)
        stats.dead_cleaners.discard(number)
        directory = self._logs.directory_of(cleaned.topic_partition)
        if directory is not None:
            self._full.discard(directory)
        log.info(
            "cleaned %s from offset %d to %d in %.3f s: %d of %d records and %d of %d bytes are left",
            cleaned.topic_partition,
            candidate.first_dirty_offset,
            report.cleaned_to,
            seconds,
            done.records_written,
            done.records_read,
            done.bytes_written,
            done.bytes_read,
        )
        if done.records_without_key:
            log.warning(
                "%s had %s without a key, which cleaning removed",
                *(cleaned.topic_partition, counted(done.records_without_key, "record")),
            )
        for write in self._logs.cleaner_checkpoints():
            self._checkpoint_writer.submit(
                write.perform, _nothing, partial(self._replicas.work_failed, write.directory)
            )

    def _died(self, number: int, cleaned: Log, error: ChildEnded) -> None:
        if not self._is_ours(cleaned):
            return  # the log was deleted meanwhile
        self.stats.deaths += 1
        self.stats.dead_cleaners.add(number)
        deaths = self._deaths[cleaned] = self._deaths.get(cleaned, 0) + 1
        log.warning("the cleaner of %s died: %s", cleaned.topic_partition, error)
        if deaths >= MOST_DEATHS:
            self._give_up(cleaned, f"{deaths} cleaners have died of it")

    def _failed(self, cleaned: Log, error: StorageError) -> None:
        directory = self._logs.directory_of(cleaned.topic_partition)
        if directory is None or not self._is_ours(cleaned):
            return  # the log was deleted meanwhile
        self.stats.failed_rounds += 1
        if isinstance(error, LogDirFailed):
            self._disk_failed(cleaned, directory, error)
        elif not isinstance(error, _MAY_PASS):
            self._give_up(cleaned, str(error))
        elif directory not in self._full:
            self._full.add(directory)
            log.error("%s cannot be cleaned now: %s", cleaned.topic_partition, error)

    def _disk_failed(self, cleaned: Log, directory: LogDir, error: LogDirFailed) -> None:
        partition = self._replicas.find(*cleaned.topic_partition)
        if partition is None:
            self._replicas.disk_failed(directory, error)
        else:
            partition.disk_failed(error)

    def _give_up(self, cleaned: Log, why: str) -> None:
        self._uncleanable[cleaned] = why
        log.error("%s is not cleaned any more until the next start: %s", cleaned.topic_partition, why)


def _nothing(_: object) -> None:
    pass
