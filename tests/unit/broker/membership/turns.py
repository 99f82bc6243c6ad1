"""Letting a loop turn, and time pass, until something has come to pass."""

import asyncio
from collections.abc import Callable

from broker.runtime.manual_clock import ManualClock


async def until(condition: Callable[[], bool], clock: ManualClock, step_ms: int = 1) -> None:
    """Return once ``condition`` holds; ``step_ms`` pass with every few turns of the loop."""
    for _ in range(10_000):
        if condition():
            return
        for _ in range(5):
            await asyncio.sleep(0)
        clock.advance(step_ms)
    raise AssertionError("it has not come to pass")
