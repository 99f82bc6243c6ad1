"""Shutdown: whether the broker shall stop, and the failure if there is one."""

import asyncio
from typing import Final

CONTROLLED_SHUTDOWN_MS: Final = 300_000
"""How long a stop waits until other brokers lead the partitions of this broker, as in Kafka."""


class Shutdown:
    """A stop that a signal asks for, or that a failure forces."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        """The error that keeps the broker from going on, or has kept it from closing in order."""
        self.asked = asyncio.Event()
        self.failed = asyncio.Event()
        """Set when there is a `failure`."""

    def ask(self) -> None:
        """Ask for a stop."""
        self.asked.set()

    def fail(self, error: BaseException) -> None:
        """The broker can't go on: the task that waits for `failed` stops it. The first error is kept."""
        if self.failure is None:
            self.failure = error
        self.failed.set()
        self.asked.set()

    async def wait_unless(self, event: asyncio.Event) -> None:
        """Return when ``event`` is set, or a stop is asked for. Raises the `failure`."""
        await first_of(event, self.asked)
        if self.failure is not None:
            raise self.failure


async def first_of(*events: asyncio.Event) -> None:
    """Return when one of ``events`` is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
