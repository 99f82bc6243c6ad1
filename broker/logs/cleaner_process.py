"""CleanerProcess: a child process that cleans one log at a time, and the thread that speaks with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from broker.runtime.child_process import ChildEnded, ChildProcess
from broker.runtime.clock import Clock
from broker.runtime.worker_thread import WorkerThread

if TYPE_CHECKING:
    from storage.cleaning.order import CleanedGroup, CleaningOrder, CleaningReport

CHILD: Final = "broker.logs.cleaner_child"


class CleanerProcess:
    """A process that starts with the first order and ends when it is told to `rest`."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.thread = WorkerThread(name, loop, clock)
        """For blocking work of the round, one piece after the other."""
        self._child: ChildProcess | None = None

    async def clean(self, order: "CleaningOrder") -> "AsyncIterator[CleanedGroup | CleaningReport]":
        """Have a log cleaned; gives what `storage.cleaning.round.CleaningRound.perform` gives, and raises its errors.

        Raises ChildEnded where the process dies, OSError where the system has no process to give.
        """
        from storage.cleaning.order import conclude  # not at a start

        child = self._child
        if child is None:
            child = self._child = await self.thread.run(lambda: ChildProcess(CHILD))
        answers = child.ask(order.to_message())
        while (message := await self.thread.run(lambda: next(answers, None))) is not None:
            yield conclude(message)

    def kill(self) -> None:
        """Kill the process: the round that is under way raises ChildEnded. This method does not block."""
        if self._child is not None:
            self._child.kill()

    async def end(self) -> None:
        """End the process, whatever it does, and return when it has ended."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            await self.thread.run(child.wait)

    async def stop(self) -> None:
        """End the process and the thread."""
        with suppress(ChildEnded):
            await self.end()
        await self.thread.stop()
