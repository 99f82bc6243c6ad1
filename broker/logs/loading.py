"""Loading of all logs at the start: on the loop, and after an unclean stop also in child processes.

Checking batches takes processor time, and a Python process uses one processor. So large logs are recovered by child
processes, `num.recovery.threads.per.data.dir` for each data directory, the largest first; meanwhile the other logs are
opened in this process. A log that a child has recovered is opened here like a log that was closed cleanly.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from broker.runtime.child_process import ChildEnded, ChildProcess, Message
from broker.runtime.clock import Clock
from broker.runtime.counted import counted
from broker.runtime.worker_thread import MakeWorker, WorkerThread
from config.log_config import LogConfig
from storage.errors import LogDirFailed, StorageError
from storage.log_dir import LogDir
from storage.log_finder import FoundLog
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from storage.recovery_order import RecoveredLog

log = logging.getLogger(__name__)

RECOVERY_CHILD: Final = "broker.logs.recovery_child"

WORTH_A_PROCESS_BYTES: Final = 32 << 20
"""With fewer bytes to check in all, the check is done before a child process has started (bench: recovery)."""

WORTH_AN_ORDER_BYTES: Final = 256 << 10
"""A log with fewer bytes to check is not worth an order to a child process."""

SLICE_S: Final = 0.02
"""How long opening logs may hold the loop at a time, in seconds."""

PROGRESS_INTERVAL_S: Final = 2.0
"""How often the progress of loading is logged, in seconds."""

T = TypeVar("T")


class Stopped(Exception):
    """A stop was asked for while logs were loaded: not all logs are open."""


@dataclass(slots=True, eq=False, repr=False)
class LoadingStats:
    """How far loading has come in one data directory."""

    logs_total: int = 0
    logs_loaded: int = 0
    bytes_to_check: int = 0
    """Bytes to check of all logs that were not closed cleanly."""
    bytes_checked: int = 0


class LogLoading:
    """Opens the logs in the data directories. Its figures are valid meanwhile and afterwards."""

    def __init__(
        self,
        logs: LogManager,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        make_worker: MakeWorker,
        processes_per_directory: int,
        recovery: str,
        stop: asyncio.Event,
    ) -> None:
        """``recovery``: which logs are checked, `ottla.recovery`; ``stop`` is set when a stop is asked for."""
        self._logs = logs
        self._loop = loop
        self._clock = clock
        self._make_worker = make_worker
        self._processes_per_directory = processes_per_directory
        self._recovery = recovery
        self._stop = stop
        self.stats: dict[str, LoadingStats] = {directory.label: LoadingStats() for directory in logs.directories}
        """Progress by the path of the data directory."""
        self._began = self._turned = loop.time()

    @property
    def seconds_left(self) -> float | None:
        """How long the rest of the check takes at the speed so far; None before the first byte and after the last."""
        checked, to_check = self._bytes()
        if not 0 < checked < to_check:
            return None
        return (self._loop.time() - self._began) * (to_check - checked) / checked

    def _bytes(self) -> tuple[int, int]:
        stats = self.stats.values()
        return sum(one.bytes_checked for one in stats), sum(one.bytes_to_check for one in stats)

    async def run(
        self,
        *,
        config_of: Callable[[str], LogConfig],
        is_ours: Callable[[TopicPartition, bytes | None], bool],
        assigned: Callable[[TopicPartition], LogDir | None],
        new_id: Callable[[], str],
    ) -> None:
        """Open all logs; the arguments are those of `LogManager.find`. Raises `Stopped`, and the errors of
        `LogManager.find` and `open`."""
        log.info("loading logs from %s", ", ".join(self.stats))
        found: list[FoundLog] = []
        for one in self._logs.find(
            config_of=config_of, is_ours=is_ours, assigned=assigned, new_id=new_id, recovery=self._recovery
        ):
            found.append(one)
            stats = self.stats[one.directory.label]
            stats.logs_total += 1
            stats.bytes_to_check += one.bytes_to_check
            await self._turn()
        _, to_check = self._bytes()
        if to_check:
            unclean = sum(one.bytes_to_check > 0 for one in found)
            log.info(
                "recovering %d of %s: %s to be checked", unclean, counted(len(found), "log"), counted(to_check, "byte")
            )
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self._watch())
                await self._open_all(found, tasks)
                watching.cancel()
        except ExceptionGroup as group:
            expected = group.subgroup((Stopped, StorageError))
            if expected is None:
                raise
            raise expected.exceptions[0] from None
        self._logs.loaded()
        self._say_what_was_found()
        if to_check:
            log.info("recovery complete: %s checked", counted(to_check, "byte"))
        log.info("loaded %s in %.3f s", counted(len(self._logs.all()), "log"), self._loop.time() - self._began)

    def _say_what_was_found(self) -> None:
        for finding in self._logs.findings:
            log.warning("%s", finding)
        for repaired in self._logs.repaired:
            report = repaired.report
            for finding in report.findings:
                log.warning("%s: %s", repaired.topic_partition, finding)
            if report.recovered_from_offset >= 0 and report.bytes_recovered:
                log.info(
                    "recovered %s: %d bytes checked in %d segments from offset %d on, %d cut off, it ends at offset %d",
                    repaired.topic_partition,
                    report.bytes_recovered,
                    report.segments_rebuilt,
                    report.recovered_from_offset,
                    report.bytes_cut,
                    report.log_end_offset,
                )

    async def _open_all(self, found: list[FoundLog], tasks: asyncio.TaskGroup) -> None:
        here: list[FoundLog] = []
        in_children: dict[str, deque[FoundLog]] = defaultdict(deque)
        are_worth_a_process = sum(one.bytes_to_check for one in found) >= WORTH_A_PROCESS_BYTES
        for one in found:
            if are_worth_a_process and one.bytes_to_check >= WORTH_AN_ORDER_BYTES:
                in_children[one.directory.path].append(one)
            else:
                here.append(one)
        children: list[asyncio.Task[None]] = []
        for path, some in in_children.items():
            queue = deque(sorted(some, key=lambda one: one.bytes_to_check, reverse=True))
            children += [
                tasks.create_task(self._recover_in_child(f"recovery {number} of {path}", queue))
                for number in range(min(self._processes_per_directory, len(queue)))
            ]
        for one in here:
            await self._open(one)
        for child in children:
            await child

    async def _open(self, found: FoundLog, recovered: "RecoveredLog | None" = None) -> None:
        stats = self.stats[found.directory.label]
        is_checked_here = recovered is None and found.bytes_to_check > 0
        if is_checked_here:
            log.debug("recovering segments of %s from offset %d on", found.topic_partition, found.check_from)
        steps = self._logs.open(found, self._clock.now_ms(), recovered)
        checked = 0
        while True:
            try:
                bytes_read = next(steps)
            except StopIteration as stop:
                opened = stop.value
                break
            if is_checked_here:
                checked += bytes_read
                stats.bytes_checked += bytes_read
            await self._turn()
        if is_checked_here:
            # Some bytes were cut off unread, or read twice.
            stats.bytes_checked += found.bytes_to_check - checked
        stats.logs_loaded += 1
        if opened is not None:
            log.debug(
                "loaded log for partition %s: offsets %d to %d, recovery point %d",
                opened.topic_partition,
                opened.log_start_offset,
                opened.log_end_offset,
                opened.recovery_point,
            )
        await self._turn()

    async def _turn(self) -> None:
        """Let the loop turn if loading has held it for `SLICE_S`."""
        if self._loop.time() - self._turned >= SLICE_S:
            await asyncio.sleep(0)
            self._turned = self._loop.time()
            if self._stop.is_set():
                raise Stopped

    async def _watch(self) -> None:
        """Log the progress periodically, until a stop is asked for."""
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(PROGRESS_INTERVAL_S):
                    await self._stop.wait()
            except TimeoutError:
                log.info("%s", self.progress)
        raise Stopped

    @property
    def progress(self) -> str:
        """The progress of loading as one line."""
        loaded = sum(one.logs_loaded for one in self.stats.values())
        total = sum(one.logs_total for one in self.stats.values())
        checked, to_check = self._bytes()
        seconds_left = self.seconds_left
        return (
            f"loading logs: {loaded} of {total}, {checked} of {to_check} bytes checked"
            f"{'' if seconds_left is None else f', about {seconds_left:.0f} s left'}"
        )

    # In a child -------------------------------------------------------------------------------------------------------

    async def _recover_in_child(self, name: str, queue: deque[FoundLog]) -> None:
        """Recover logs from ``queue`` in one child process, which a thread speaks with, until the queue is empty."""
        thread = self._make_worker(name)
        child: ChildProcess | None = None
        try:
            while queue:
                found = queue.popleft()
                if found.directory.has_failed:
                    continue
                recovered = None
                try:
                    if child is None:
                        child = ChildProcess(RECOVERY_CHILD)
                    recovered = await self._recover(thread, child, found)
                except (ChildEnded, OSError) as error:
                    # The child was killed for its memory, or could not be started: then this process recovers the log.
                    log.warning("recovering %s here, not in a process beside: %s", found.topic_partition, error)
                except LogDirFailed as error:
                    self._logs.fail(found.directory, error)
                    continue
                await self._open(found, recovered)
        finally:
            if child is not None:
                child.kill()
                thread.submit(child.wait, _nothing, _raise)
            await thread.stop()

    async def _recover(self, thread: WorkerThread, child: ChildProcess, found: FoundLog) -> "RecoveredLog":
        """Recover one log in the child. Raises `ChildEnded`, and the errors of `storage.recovery_order.conclude`."""
        from storage.recovery_order import conclude

        log.info(
            "recovering segments of %s from offset %d on: %d bytes",
            found.topic_partition,
            found.check_from,
            found.bytes_to_check,
        )
        order = found.recovery_order(self._clock.now_ms(), self._logs.producer_id_expiration_ms)
        stats = self.stats[found.directory.label]
        checked = 0

        def has_read(bytes_read: int) -> None:
            nonlocal checked
            checked += bytes_read
            stats.bytes_checked += bytes_read

        def ask() -> "RecoveredLog":
            outcome: list[Message] = []
            for message in child.ask(order.to_message()):
                if "bytes_read" in message:
                    self._loop.call_soon_threadsafe(has_read, message["bytes_read"])
                else:
                    outcome.append(message)
            return conclude(outcome)

        try:
            recovered = await thread.run(ask)
        except ChildEnded:
            stats.bytes_checked -= checked  # the log is checked again, in this process
            raise
        stats.bytes_checked += found.bytes_to_check - checked
        return recovered


def _nothing(_: object) -> None:
    pass


def _raise(error: Exception) -> None:
    raise error
