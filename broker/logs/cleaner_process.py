"""CleanerProcess: a child process that cleans one log at a time, and the thread that speaks with it."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from broker.runtime.child_process import ChildProcess
from broker.runtime.worker_thread import WorkerThread

if TYPE_CHECKING:
    from storage.cleaning.order import CleanedGroup, CleaningOrder, CleaningReport

CHILD: Final = "broker.logs.cleaner_child"


class CleanerProcess:
    """A process that starts with the first order and ends when it is told to."""

    def __init__(self, thread: WorkerThread) -> None:
        self.thread = thread
        """For blocking work of the round, one piece after the other."""
        self._child: ChildProcess | None = None
        self._may_have_child = False
        """Whether a child was started, or is being started, since the last `end`."""
        self._is_killed = False
        """Whether `kill` was called since the last order was given."""

    async def clean(self, order: "CleaningOrder") -> "AsyncIterator[CleanedGroup | CleaningReport]":
        """Have a log cleaned; gives what `storage.cleaning.round.CleaningRound.perform` gives, and raises its errors.

        Raises ChildEnded where the process dies, OSError where the system has no process to give.
        """
        from storage.cleaning.order import conclude  # not at a start

        if self._is_killed:  # behind the last answer to the order before this one
            await self.end()
        self._may_have_child, self._is_killed = True, False
        child = await self.thread.run(self._started)
        if self._is_killed:  # while it started
            child.kill()
        answers = child.ask(order.to_message())
        while (message := await self.thread.run(lambda: next(answers, None))) is not None:
            yield conclude(message)

    def kill(self) -> None:
        """Kill the process: the round that is under way raises ChildEnded. This method does not block."""
        self._is_killed = True
        if self._child is not None:
            self._child.kill()

    async def end(self) -> None:
        """End the process, whatever it does, and return when it has ended."""
        if self._may_have_child:
            self.kill()
            await self.thread.run(self._finish)
            self._may_have_child = False

    async def stop(self) -> None:
        """End the process and the thread."""
        await self.end()
        await self.thread.stop()

    # In the thread ----------------------------------------------------------------------------------------------------

    def _started(self) -> ChildProcess:
        if self._child is None:
            self._child = ChildProcess(CHILD)
        return self._child

    def _finish(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()  # it may have started behind the kill
            child.wait()
