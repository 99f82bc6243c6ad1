"""Whether the broker is to end, and why."""

import asyncio


class Shutdown:
    """Asked for by a signal, or brought about by what keeps the broker from going on."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        """What keeps the broker from going on, or has kept it from closing in order."""
        self.asked = asyncio.Event()
        self.failed = asyncio.Event()
        """There is a `failure`."""

    def ask(self) -> None:
        """Somebody wants it."""
        self.asked.set()

    def fail(self, error: BaseException) -> None:
        """The broker can't go on: whoever waits for it is told, and will stop it. The first reason counts."""
        if self.failure is None:
            self.failure = error
        self.failed.set()
        self.asked.set()

    async def wait_unless(self, event: asyncio.Event) -> None:
        """Return when ``event`` is set, or the end is asked for. Raises what keeps the broker from going on."""
        await first_of(event, self.asked)
        if self.failure is not None:
            raise self.failure


async def first_of(*events: asyncio.Event) -> None:
    """Return when one of ``events`` is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
