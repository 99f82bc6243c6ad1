"""Running many seeds, and saying what was found."""

import gc
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from broker.logs import cleaner_process
from tests.simulation.cleaning import SimulatedCleaner
from tests.simulation.replicated import replicated
from tests.simulation.simulation import Simulation
from tests.simulation.single_node import single_node

Scenario = Callable[[Simulation], Coroutine[Any, Any, None]]

SCENARIOS: Final[dict[str, Scenario]] = {"single-node": single_node, "replicated": replicated}

cleaner_process.ChildProcess = SimulatedCleaner  # type: ignore[misc,assignment]  # a simulated broker has no process

RUNS_BETWEEN_COLLECTIONS: Final = 25
"""During a run no memory is collected: after so many it is."""


class Result(NamedTuple):
    """What came of a seed."""

    seed: int
    digest: str
    """The hash over all that has happened."""
    simulated_s: float
    events: int
    failure: str
    """Why the run has failed, with the stack; empty if it has not."""
    lines: list[str]
    """All events, where they were wanted."""


def run_seed(scenario: str, seed: int, *, keeps_lines: bool = False) -> Result:
    """Run one seed."""
    simulation = Simulation(seed, keeps_lines=keeps_lines)
    began_s = simulation.loop.time()
    failure = ""
    try:
        simulation.run(SCENARIOS[scenario])
    except Exception:  # noqa: BLE001 - whatever it is, it is what the seed has found
        failure = traceback.format_exc()
    if seed % RUNS_BETWEEN_COLLECTIONS == 0:
        gc.collect()
    trace = simulation.trace
    return Result(seed, trace.digest, simulation.loop.time() - began_s, trace.events, failure, trace.lines or [])
