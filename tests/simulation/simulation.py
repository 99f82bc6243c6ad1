"""Simulation: one run from one seed. It has the loop, the network and the machines, and runs a scenario in them."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation import system
from tests.simulation.chance import Chance
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.trace import Trace


class Broken(AssertionError):
    """A promise was not kept, or a broker did what it must never do."""


class Simulation:
    """The world of one run."""

    def __init__(self, seed: int, *, keeps_lines: bool = False) -> None:
        """``keeps_lines``: whether the trace keeps every event as a line."""
        self.seed = seed
        self.chance = Chance(seed)
        self.loop = SimulatedLoop()
        self.trace = Trace(self.loop, keeps_lines=keeps_lines)
        self.network = SimulatedNetwork(self.loop, self.chance.of("network"), self.trace)
        self._system_random = self.chance.of("system")

    def run(self, scenario: Callable[["Simulation"], Coroutine[Any, Any, None]]) -> None:
        """Run a scenario to its end. Raises what it raises, and `Broken` for errors that nobody has taken."""
        system.use(lambda: int(self.loop.time() * 1_000_000_000), self._system_random.randbytes)
        # Collected at any time, objects of dead processes would run their finalizers at any time.
        gc.disable()
        asyncio.set_event_loop(None)
        try:
            self.loop.run_until_complete(scenario(self))
        finally:
            for process in self.loop.processes:
                process.die()
            self.loop.close()
        if self.loop.failures:
            raise Broken(self.loop.failures[0])
