"""`make simulate`: brokers in a simulated world, one run for each seed. A seed repeats its run exactly.

    python -m tests.simulation --seeds 1000 --first 0        a thousand runs, beginning with seed 0
    python -m tests.simulation --seed 4711 --trace           one run, with everything that happens in it
    python -m tests.simulation --seeds 100 --twice           each run twice: both must be the same
"""

import argparse
import logging
import os
import secrets
import sys
from multiprocessing import get_context

from tests.simulation import system

PORTION = 25
"""Seeds that a process takes at a time."""


def main() -> int:
    """Run; 1 if a seed has failed."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is a part of a run.
        os.execve(  # noqa: S606 - ourselves
            sys.executable, [sys.executable, "-P", "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.getcwd()},
        )  # fmt: skip
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1_000, help="how many runs")
    parser.add_argument("--first", type=int, help="the first seed; by default any")
    parser.add_argument("--seed", type=int, help="this run only")
    parser.add_argument("--scenario", default="single-node", help="what happens")
    parser.add_argument("--processes", type=int, default=1, help="processes that share the seeds")
    parser.add_argument("--twice", action="store_true", help="run each seed twice, and compare")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every event")
    parser.add_argument("--log", action="store_true", help="print what the brokers log")
    options = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG if options.log else logging.CRITICAL + 1, stream=sys.stdout)
    real_clock = __import__("time").perf_counter
    system.install()
    if options.seed is not None:
        return _run_one(options.scenario, options.seed, prints_trace=options.trace)
    first = secrets.randbelow(1_000_000_000) if options.first is None else options.first
    print(f"{options.scenario}: seeds {first} to {first + options.seeds - 1}", flush=True)
    began = real_clock()
    portions = [
        (options.scenario, start, min(PORTION, first + options.seeds - start), options.twice)
        for start in range(first, first + options.seeds, PORTION)
    ]
    failed = events = 0
    simulated_s = 0.0
    with get_context("fork").Pool(options.processes) as pool:
        for results in pool.imap_unordered(_run_portion, portions):
            for result in results:
                events += result.events
                simulated_s += result.simulated_s
                if result.failure:
                    failed += 1
                    print(f"seed {result.seed}: {result.failure}", flush=True)
    took_s = real_clock() - began
    print(
        f"{options.seeds} runs in {took_s:.1f} s ({1000 * took_s / options.seeds:.1f} ms each), {events} events, "
        f"{simulated_s / 3600:.1f} simulated hours, {failed} failed",
        flush=True,
    )
    return 1 if failed else 0


def _run_portion(portion):
    from tests.simulation.run import run_seed

    scenario, first, count, twice = portion
    results = []
    for seed in range(first, first + count):
        result = run_seed(scenario, seed)
        if twice and not result.failure:
            again = run_seed(scenario, seed)
            if again.digest != result.digest:
                result = result._replace(failure=f"the second run was another: {result.digest}, {again.digest}")
        results.append(result)
    return results


def _run_one(scenario: str, seed: int, *, prints_trace: bool) -> int:
    from tests.simulation.run import run_seed

    result = run_seed(scenario, seed, keeps_lines=prints_trace)
    for line in result.lines:
        print(line)
    print(f"seed {seed}: {result.events} events in {result.simulated_s:.3f} s, hash {result.digest} {result.failure}")
    return 1 if result.failure else 0


if __name__ == "__main__":
    raise SystemExit(main())
