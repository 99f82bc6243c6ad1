"""SimulatedProcess: what belongs together and dies together, a broker's or a client's process."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from storage.files import FileSystem

T = TypeVar("T")

MOST_AWAITS_AT_THE_END: Final = 50
"""How often a coroutine that is closed may wait for something once more."""

ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]

CURRENT: contextvars.ContextVar["SimulatedProcess | None"] = contextvars.ContextVar("process", default=None)
"""The process whose code runs. Callbacks and tasks inherit it from the code that makes them."""


class SimulatedProcess:
    """A process on the simulated loop. Once it is dead no callback, timer or task of it runs again."""

    def __init__(self, host: str) -> None:
        self.host = host
        """The name of the machine on the network."""
        self.is_dead = False
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """The tasks that have not ended."""
        self.exception_handler: ExceptionHandler | None = None
        self.files: FileSystem | None = None
        """The file system of a broker; None for a client, which has no disk."""
        self.context = contextvars.copy_context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"<SimulatedProcess on {self.host}{', dead' if self.is_dead else ''}>"

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str | None = None) -> "asyncio.Task[T]":
        """Run a coroutine as a task of this process."""
        assert not self.is_dead
        return asyncio.get_running_loop().create_task(coroutine, name=name, context=self.context.copy())

    def call(self, function: Callable[[], T]) -> T:
        """Call a function as this process."""
        return self.context.copy().run(function)

    def die(self) -> None:
        """From now on nothing of this process runs. A killed process cleans nothing up.

        Its coroutines are closed, and what they do then comes to a loop, a disk and a network that take nothing from
        the dead.
        """
        self.is_dead = True
        tasks = list(self.tasks)
        self.tasks.clear()
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # the dead say nothing
            coroutine = task.get_coro()
            assert coroutine is not None
            self.context.copy().run(_close, coroutine)


def _close(coroutine: Any) -> None:
    """Close a coroutine now, since else it would be closed whenever its memory is collected."""
    for _ in range(MOST_AWAITS_AT_THE_END):
        try:
            coroutine.close()
        except RuntimeError as error:
            # It has awaited something in a `finally`, and waits there now.
            if "ignored GeneratorExit" in str(error):
                continue
        except BaseException:  # noqa: BLE001 - whatever a dead process raises
            pass
        return
