"""Workers transform one topic into another in transactions, while they and the broker are killed.

In the end the target has what the source has, each value once and in order. The workers are confluent-kafka clients.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from dev.apache_kafka import ApacheKafka
from dev.brokers import broker_for_tests
from tests.crash.offline import verify
from tests.crash.promises import Promise, require
from tests.crash.run import TROUBLE
from tests.support.clients.transforming import SETTINGS, Transformation, worker_command


@dataclass(slots=True, kw_only=True)
class TransformSummary:
    """What a run has come through."""

    kills: Counter[str] = field(default_factory=Counter)
    """By what was killed."""
    records: int = 0
    """Transformed."""
    revived: int = 0
    """Workers that were started again, also those that had ended by themselves."""


class TransformRun:
    """One run, to be used in a `with`."""

    def __init__(self, directory: Path, *, seed: int, report: Callable[[str], None]) -> None:
        self.broker = broker_for_tests(directory, settings=SETTINGS)
        self._directory = directory
        self._chance = random.Random(seed)
        self._report = report

    def __enter__(self) -> TransformRun:
        self.broker.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.broker.close()

    def go(self, kills: int) -> TransformSummary:
        """Kill so many times. Raises `PromiseBroken`."""
        summary = TransformSummary()
        with Transformation(
            self.broker, worker_command("confluent-kafka"), self._directory, self._chance
        ) as transformation:
            for number in range(1, kills + 1):
                victims = transformation.kill_something()
                summary.kills[victims] += 1
                self._report(
                    f"{number:5} of {kills}  killed {victims}: {transformation.transformed:,} records transformed"
                )
            differing = transformation.finish()
            summary.records = transformation.transformed
            summary.revived = transformation.revived
        require(not differing, Promise.TRANSFORMED, "; ".join(differing))
        self.broker.kill()
        if not isinstance(self.broker, ApacheKafka):
            log = self.broker.log_path.read_text(errors="replace")
            require(not TROUBLE.search(log), Promise.LIVES, f"the broker's log has trouble\n{log}")
            verify(self.broker.data_directory)
        return summary
