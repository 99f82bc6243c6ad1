"""Runs a command beside processes that keep every processor busy: `python -m dev.busy 4 make test`."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys


def spin() -> None:
    """Use a processor for as long as the parent process lives."""
    parent = multiprocessing.parent_process()
    while parent is not None and parent.is_alive():
        for _ in range(1_000_000):
            pass


def main() -> int:
    """Run the command. Returns its exit code."""
    count, *command = sys.argv[1:]
    spinning = [multiprocessing.Process(target=spin, daemon=True) for _ in range(int(count))]
    for process in spinning:
        process.start()
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        for process in spinning:
            process.kill()


if __name__ == "__main__":
    raise SystemExit(main())
