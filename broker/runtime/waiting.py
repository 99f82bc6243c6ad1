"""Waiting with a deadline on a `Clock`, so that a clock that a test moves ends it, too."""

import asyncio
from typing import Any

from broker.runtime.clock import Clock


async def done_by(clock: Clock, deadline_ms: int, future: "asyncio.Future[Any]") -> bool:
    """Wait until ``future`` is done or the deadline has come; return whether it is done.

    The future is left alone: neither the deadline nor a cancelled waiter cancels it.
    """
    if future.done():
        return True
    woken = asyncio.get_running_loop().create_future()

    def wake(_: object = None) -> None:
        if not woken.done():
            woken.set_result(None)

    alarm = clock.call_at(deadline_ms, wake)
    future.add_done_callback(wake)
    try:
        await woken
    finally:
        alarm.cancel()
        future.remove_done_callback(wake)
    return future.done()


async def pause_until(clock: Clock, deadline_ms: int) -> None:
    """Return once ``clock.monotonic_ms()`` has reached the deadline; at once where it has."""
    if clock.monotonic_ms() < deadline_ms:
        await done_by(clock, deadline_ms, asyncio.get_running_loop().create_future())


async def set_by(clock: Clock, deadline_ms: int, event: asyncio.Event) -> bool:
    """Wait until ``event`` is set or the deadline has come; return whether it is set."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        return await done_by(clock, deadline_ms, waiting)
    finally:
        waiting.cancel()
