"""SimulatedLoop: an asyncio event loop whose time is simulated. It never sleeps, has no threads and opens nothing.

When nothing is ready, time jumps to the next timer. Ready callbacks run in the order in which they became ready, so
that one seed gives one run.
"""

import asyncio
import contextvars
from asyncio import events
from collections.abc import Callable, Coroutine
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final, Protocol

from tests.simulation.process import CURRENT, ExceptionHandler, SimulatedProcess

START_S: Final = 1_000.0
"""The loop's time at the beginning, in seconds."""

MOST_CANCELLED: Final = 200
"""Cancelled timers among the others, above which they are sorted out."""


class NothingLeft(Exception):
    """Nothing is ready and no timer is set, though the main coroutine has not ended: it waits for ever."""


class Stalled(Exception):
    """Time stands still: callbacks make each other ready without end."""


MOST_TURNS_AT_ONE_TIME: Final = 100_000


class Pollable(Protocol):
    """What the loop watches in place of a file descriptor's socket."""

    descriptor: int

    def is_readable(self) -> bool:
        """Whether a read would not block."""

    def is_writable(self) -> bool:
        """Whether a write would not block."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop in simulated time; time is in seconds, as asyncio has it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = START_S
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = count()
        self._cancelled = 0
        self._pollables: dict[int, Pollable] = {}
        self._readers: dict[int, asyncio.Handle] = {}
        self._writers: dict[int, asyncio.Handle] = {}
        self._active: dict[int, None] = {}
        """Descriptors that may be readable or writable while somebody watches them."""
        self._running_process: SimulatedProcess | None = None
        self.turns = 0
        """How often the loop has turned."""
        self._turns_began = 0
        """The turn in which the present time began."""
        self.processes: dict[SimulatedProcess, None] = {}
        """All processes that have had a task, in the order of their first."""
        self.failures: list[str] = []
        """Errors that came to the loop and belong to no process."""
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def __del__(self) -> None:
        """The loop has opened nothing, so it need not be closed."""

    # Time

    def time(self) -> float:
        return self._now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = events.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._order), timer))
        timer._scheduled = True  # type: ignore[attr-defined]  # so that the loop hears of its cancellation
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if handle._scheduled:  # type: ignore[attr-defined]
            self._cancelled += 1
        if self._cancelled > MOST_CANCELLED and self._cancelled * 2 > len(self._timers):
            self._timers = [one for one in self._timers if not one[2].cancelled()]
            heapify(self._timers)
            self._cancelled = 0

    # No threads

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        """Call the function in the next turn of the loop."""
        future: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - the error belongs to whoever awaits it
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_soon(run)
        return future

    # Descriptors

    def watch(self, pollable: Pollable) -> None:
        """Let ``pollable`` be watched under its descriptor, until `unwatch`."""
        self._pollables[pollable.descriptor] = pollable

    def unwatch(self, descriptor: int) -> None:
        """The descriptor is closed."""
        self._pollables.pop(descriptor, None)
        self.remove_reader(descriptor)
        self.remove_writer(descriptor)

    def may_be_ready(self, descriptor: int) -> None:
        """Look at the descriptor in the next turn, if it is watched."""
        self._active[descriptor] = None

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        if fd not in self._pollables:
            raise OSError(9, "Bad file descriptor")
        self._readers[fd] = events.Handle(callback, args, self)
        self._active[fd] = None

    def remove_reader(self, fd: Any) -> bool:
        handle = self._readers.pop(fd, None)
        if handle is None:
            return False
        handle.cancel()
        return True

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        if fd not in self._pollables:
            raise OSError(9, "Bad file descriptor")
        self._writers[fd] = events.Handle(callback, args, self)
        self._active[fd] = None

    def remove_writer(self, fd: Any) -> bool:
        handle = self._writers.pop(fd, None)
        if handle is None:
            return False
        handle.cancel()
        return True

    def _poll(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        for descriptor in tuple(self._active):
            pollable = self._pollables.get(descriptor)
            is_active = False
            if pollable is not None:
                reader, writer = self._readers.get(descriptor), self._writers.get(descriptor)
                if reader is not None and pollable.is_readable():
                    ready.append(reader)
                    is_active = True
                if writer is not None and pollable.is_writable():
                    ready.append(writer)
                    is_active = True
            if not is_active:
                del self._active[descriptor]

    # Turns

    def _run_once(self) -> None:
        self.turns += 1
        ready = self._ready  # type: ignore[attr-defined]
        if self._active:
            self._poll()
        timers = self._timers
        if not ready:
            while timers and timers[0][2].cancelled():
                heappop(timers)
                self._cancelled -= 1
            if not timers:
                raise NothingLeft(f"nothing is ready and no timer is set at {self._now:.6f} s")
            if timers[0][0] > self._now:
                self._now = timers[0][0]
                self._turns_began = self.turns
        if self.turns - self._turns_began > MOST_TURNS_AT_ONE_TIME:
            raise Stalled(f"{MOST_TURNS_AT_ONE_TIME} turns at {self._now:.6f} s")
        now = self._now
        while timers and timers[0][0] <= now:
            timer = heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer.cancelled():
                self._cancelled -= 1
            else:
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(CURRENT)
            if process is not None:
                if process.is_dead:
                    continue
                self._running_process = process
                handle._run()
                self._running_process = None
            else:
                handle._run()

    # Processes

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> "asyncio.Task[Any]":
        context = options.get("context")
        process = CURRENT.get() if context is None else context.get(CURRENT)
        if process is not None and process.is_dead:
            coroutine.close()
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        if process is None:
            return task
        if process.is_dead:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        else:
            self.processes[process] = None
            process.tasks[task] = None
            task.add_done_callback(lambda task: process.tasks.pop(task, None))
        return task

    def set_exception_handler(self, handler: ExceptionHandler | None) -> None:
        """Each process has its own handler."""
        process = CURRENT.get()
        assert process is not None, "only a process sets a handler"
        process.exception_handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        process = self._running_process or CURRENT.get()
        if process is not None and process.exception_handler is not None:
            process.exception_handler(self, context)
        elif process is None or not process.is_dead:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    # What BaseEventLoop leaves to its heirs

    def _write_to_self(self) -> None:
        """There is no thread that would have to wake the loop."""

    def _process_events(self, event_list: Any) -> None:
        raise AssertionError("there is no selector")
