"""Writes down what Apache Kafka answers: `python -m tests.parity.record [SCRIPT ...]`."""

from __future__ import annotations

import sys

from dev.kafka_jars import NoKafka, libraries
from tests.parity.brokers import SCRIPTS, ask_kafka
from tests.parity.recording import write


def main() -> None:
    """Ask Kafka every script, or those that are named."""
    try:
        jars = str(libraries())
    except NoKafka as reason:
        raise SystemExit(f"Nothing is recorded: {reason}.") from None
    for script in sys.argv[1:] or SCRIPTS:
        run = ask_kafka(script, jars)
        path = write(script, run.answered)
        sys.stderr.write(f"{script}: {len(run.answered)} answers in {path}\n")


if __name__ == "__main__":
    main()
