"""`make crash`: the broker is killed again and again while it is used; a line for each restart, then a summary."""

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.run import CrashRun, Summary


def main() -> int:
    """Run; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how often the process is killed")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="what chance begins with")
    options = parser.parse_args()
    # Whoever ends the run ends the broker with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    directory = Path(tempfile.mkdtemp(prefix="ottla-crash-"))
    print(f"seed {options.seed}, in {directory}", flush=True)
    began = time.monotonic()
    try:
        with CrashRun(directory, seed=options.seed, report=lambda line: print(line, flush=True)) as run:
            summary = run.go(options.kills)
    except AssertionError as broken:
        sys.stderr.write(f"{broken}\nseed {options.seed}; the broker's directory and log are left in {directory}\n")
        sys.stderr.flush()
        # The clients would wait for the broker's next life.
        os._exit(1)
    _tell(summary, time.monotonic() - began)
    shutil.rmtree(directory)
    return 0


def _tell(summary: Summary, seconds: float) -> None:
    def listed(counted: dict[str, int]) -> str:
        return ", ".join(f"{count:,} {what}" for what, count in sorted(counted.items()))

    print(f"{summary.kills.total()} kills in {seconds:.0f} s: {listed(summary.kills)}")
    print(f"{summary.restarts} restarts looked at, {summary.clean_stops} clean stops")
    print(f"acknowledged records: {listed(summary.records)}; {summary.doubled:,} of 'plain' are there twice, as may be")
    print(f"records consumed: {summary.consumed:,}; changes answered: {listed(summary.changes)}")
    print(f"torn tails cut off: {summary.torn_tails} ({summary.torn_bytes:,} bytes)")
    print(f"offline checks: {summary.verifications}" + (f" ({summary.verify_missing})" * bool(summary.verify_missing)))


if __name__ == "__main__":
    raise SystemExit(main())
