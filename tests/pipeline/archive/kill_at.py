"""The command, killed in the middle with everything that it has started: `python -m tests.pipeline.archive.kill_at`.

Arguments: a step, how often it has to come, a file in which that is counted, and behind them those of the command.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path


class KillAt:
    """Travels with the tasks: whoever comes to the step kills the command, Spark, and the worker that it is in."""

    def __init__(self, step: str, number: int, counter: Path, group: int) -> None:
        self._step = step
        self._number = number
        self._counter = counter
        self._group = group

    def __call__(self, step: str) -> None:
        if step != self._step:
            return
        with self._counter.open("ab") as counter:
            counter.write(b".")
        if self._counter.stat().st_size < self._number:
            return
        # The workers have a process group of their own.
        os.killpg(self._group, signal.SIGKILL)
        os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run the command; it does not come back if the step comes."""
    # Workers ask for the class by the name of its module.
    from pipeline.archive.command import add_options, archive, compact_archive
    from tests.pipeline.archive.kill_at import KillAt

    step, number, counter, *words = sys.argv[1:]
    parser = argparse.ArgumentParser()
    add_options(parser)
    options = parser.parse_args(words)
    command = compact_archive if "compact" in words else archive
    return command(options, KillAt(step, int(number), Path(counter), os.getpgid(0)))


if __name__ == "__main__":
    raise SystemExit(main())
