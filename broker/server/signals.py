"""Signals: which stop the broker, which make it write a report, and which do nothing.

    SIGTERM SIGINT SIGHUP    stop in order; SIGHUP is ignored where the caller ignores it, as `nohup` does
    SIGQUIT                  the stacks of all threads and tasks go to stderr, as a JVM dumps its threads
    SIGUSR1                  how long requests take goes to the log
    SIGUSR2                  nothing, as in a JVM; unhandled, it would end the process

SIGPIPE and SIGXFSZ are ignored by Python: the write that caused the signal fails instead.
"""

import asyncio
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Final

STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_OTHERS: Final = (*STOPPING, signal.SIGUSR1)
"""The signals that the loop handles."""


class Signals:
    """What the signals of this process do. To be made before any thread is started."""

    def __init__(self) -> None:
        """Until the broker runs, SIGUSR1 and SIGUSR2 do nothing."""
        self._loop: asyncio.AbstractEventLoop | None = None
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        # A supervisor may have blocked them for itself, and its children inherit that.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OTHERS)
        # All threads inherit this, so that the signal waits for the reporter.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGQUIT})
        with suppress(RuntimeError):  # no thread can start: SIGQUIT does nothing then
            threading.Thread(target=self._report_stacks, name="reporter", daemon=True).start()

    def stop_by(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        """Let ``loop`` call ``stop`` for the signals that stop the broker. Its tasks belong to what SIGQUIT writes."""
        self._loop = loop
        for number in STOPPING:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, stop)

    def has_stopped(self) -> None:
        """The broker has stopped: a second Ctrl-C must not change the exit code, which says how."""
        # Closing the loop gives the signals back to the system. No other thread that could get them is left.
        signal.pthread_sigmask(signal.SIG_BLOCK, _OTHERS)

    def _report_stacks(self) -> None:
        """Write all stacks at each SIGQUIT. A thread of its own can tell also where the loop is stuck.

        faulthandler can do so without a thread, but reads the frames of threads that run: that has killed the process.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _OTHERS)
        while True:
            signal.sigwait({signal.SIGQUIT})
            sys.stderr.write("".join((*_threads(), *_tasks(self._loop))))


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            yield f"Thread {names.get(ident, ident)} (most recent call last):\n"
            yield from traceback.format_stack(frame)


def _tasks(loop: asyncio.AbstractEventLoop | None) -> Iterator[str]:
    for task in () if loop is None else asyncio.all_tasks(loop):
        yield f"Task {task.get_name()} (most recent call last):\n"
        for frame in _calls(task):
            yield from traceback.format_stack(frame, limit=1)


def _calls(task: asyncio.Task[object]) -> Iterator[FrameType]:
    """The frames of the coroutines that wait for each other. Compiled coroutines have no frames."""
    coroutine: object = task.get_coro()
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None:
            yield frame
        coroutine = getattr(coroutine, "cr_await", None)
