"""`make simulate`: brokers in a simulated world, one run for each seed. A seed repeats its run exactly.

python -m tests.simulation --seeds 1000 --first 0                      runs of all scenarios, from seed 0 on
python -m tests.simulation --scenario replicated --seed 4711 --trace   one run, with everything that happens in it
python -m tests.simulation --seeds 100 --twice                         each run twice: both must be the same
"""

import argparse
import logging
import os
import secrets
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from tqdm import tqdm

from tests.simulation import system

if TYPE_CHECKING:
    from tests.simulation.run import Result

REPOSITORY: Final = Path(__file__).resolve().parent.parent.parent

RUNS_OF_SEEDS: Final = {"single-node": 1, "replicated": 4}
"""The scenarios. One that takes longer is run for one of so many seeds where all scenarios are run."""

PORTION: Final = 20
"""Seeds that a process takes at a time."""

SEEDS_OF_A_LINE: Final = 5_000
"""After so many runs a line says how many have failed, where there is no terminal to draw a bar in."""

_real_time = time.perf_counter


class Portion(NamedTuple):
    """The seeds that a process runs next."""

    scenario: str
    first: int
    seeds: int
    is_run_twice: bool


def main() -> int:
    """Run; 1 if a seed has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--scenario", choices=RUNS_OF_SEEDS, help="what happens in a run; by default all")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many runs")
    parser.add_argument("--first", type=int, help="the first seed; by default any")
    parser.add_argument("--processes", type=int, default=2, help="how many processes share the seeds")
    parser.add_argument("--twice", action="store_true", help="run each seed twice, and compare")
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every event")
    parser.add_argument("--log", action="store_true", help="with --seed: print what the brokers log")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is a part of a run, and is chosen when a process starts.
        packages = os.environ.get("OTTLA_TEST_PACKAGES", REPOSITORY)
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": f"{packages}{os.pathsep}{REPOSITORY}"}
        os.execve(sys.executable, [sys.executable, "-P", "-m", "tests.simulation", *sys.argv[1:]], environment)
    system.install()
    _log_to_stdout(logging.INFO if options.log else logging.CRITICAL + 1)
    if options.seed is not None:
        return _run_one(options.scenario or "single-node", options.seed, prints_trace=options.trace)
    first = secrets.randbelow(1_000_000_000) if options.first is None else options.first
    share_of = RUNS_OF_SEEDS if options.scenario is None else {options.scenario: 1}
    failed = 0
    for scenario, share in share_of.items():
        seeds = -(-options.seeds // share)
        failed += _run_many(scenario, first, seeds, options.processes, is_run_twice=options.twice)
    return 1 if failed else 0


def _log_to_stdout(level: int) -> None:
    """Log lines with their simulated time, and the machine whose process has written them."""
    from tests.simulation.process import CURRENT

    class WithPlaceAndTime(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            process = CURRENT.get()
            host = "nobody" if process is None else process.host
            return f"{time.monotonic_ns() / 1e9:.6f} {host} {super().format(record)}"

    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(WithPlaceAndTime("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def _run_one(scenario: str, seed: int, *, prints_trace: bool) -> int:
    from tests.simulation.run import run_seed

    result = run_seed(scenario, seed, keeps_lines=prints_trace)
    for line in result.lines:
        print(line)
    print(f"seed {seed}: {result.events} events in {result.simulated_s:.3f} s, hash {result.digest}\n{result.failure}")
    return 1 if result.failure else 0


def _run_many(scenario: str, first: int, seeds: int, processes: int, *, is_run_twice: bool) -> int:
    """Run many seeds; returns how many have failed."""
    print(f"{scenario}: seeds {first} to {first + seeds - 1}", flush=True)
    began_s = _real_time()
    portions = [
        Portion(scenario, start, min(PORTION, first + seeds - start), is_run_twice)
        for start in range(first, first + seeds, PORTION)
    ]
    failed = events = hash_of_all = 0
    simulated_s = 0.0
    with (
        get_context("fork").Pool(processes) as pool,
        tqdm(total=seeds, unit="run", file=sys.stderr, disable=None) as bar,
    ):
        for number, results in enumerate(pool.imap(_run_portion, portions), 1):
            bar.update(len(results))
            if bar.disable and number % (SEEDS_OF_A_LINE // PORTION) == 0:
                print(f"{number * PORTION} runs, {failed} failed", flush=True)
            for result in results:
                events += result.events
                simulated_s += result.simulated_s
                hash_of_all = crc32(result.digest.encode(), hash_of_all)
                if result.failure:
                    failed += 1
                    print(f"seed {result.seed}: {result.failure}", flush=True)
    took_s = _real_time() - began_s
    print(
        f"{seeds} runs in {took_s:.1f} s, {events} events in {simulated_s / 3600:.1f} simulated hours, "
        f"{failed} failed, hash {hash_of_all:08x}",
        flush=True,
    )
    return failed


def _run_portion(portion: Portion) -> "list[Result]":
    from tests.simulation.run import run_seed

    results = []
    for seed in range(portion.first, portion.first + portion.seeds):
        result = run_seed(portion.scenario, seed)
        if portion.is_run_twice and not result.failure:
            again = run_seed(portion.scenario, seed)
            if again.digest != result.digest:
                result = result._replace(failure=f"a second run was another: {result.digest}, then {again.digest}")
        results.append(result)
    return results


if __name__ == "__main__":
    raise SystemExit(main())
