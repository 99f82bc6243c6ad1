"""Writes down what Apache Kafka answers: `python -m tests.parity.record LIBRARIES [SCRIPT ...]`."""

from __future__ import annotations

import sys

from tests.parity.brokers import SCRIPTS, ask_kafka
from tests.parity.recording import write


def main() -> None:
    """Ask Kafka every script, or those that are named."""
    libraries, *chosen = sys.argv[1:]
    for script in chosen or SCRIPTS:
        run = ask_kafka(script, libraries)
        path = write(script, run.answered)
        sys.stderr.write(f"{script}: {len(run.answered)} answers in {path}\n")


if __name__ == "__main__":
    main()
