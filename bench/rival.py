"""Apache Kafka, measured in the same run as the broker for their ratio."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bench.processes import BenchedBroker, wait_until_answering
from dev.apache_kafka import ApacheKafka
from dev.kafka_jars import NoKafka, libraries

WARM_UP_S: Final = 30.0
"""Seconds of each load before its measurement: a JVM compiles the code that is used."""

SETTINGS: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "0"  # as with ours: its 3 seconds would be all that is seen
}


class Rival:
    """An Apache Kafka that is started by the first case that needs it; none without Java or without its jars."""

    def __init__(self, directory: Path, warm_up_s: float = WARM_UP_S) -> None:
        self._directory = directory
        self._warm_up_s = warm_up_s
        self._kafka: ApacheKafka | None = None
        self._is_missing = False
        self._warm: set[str] = set()

    def warmed_up(self, name: str, load: Callable[[BenchedBroker], object]) -> BenchedBroker | None:
        """Apache Kafka after its warm-up under ``load`` in this run; None if there is none. ``name`` says which load
        it is."""
        kafka = self._started()
        if kafka is None:
            return None
        broker = BenchedBroker(kafka.bootstrap, kafka.process.pid)
        if name not in self._warm:
            self._warm.add(name)
            wait_until_answering(broker.bootstrap)
            end = time.monotonic() + self._warm_up_s
            while time.monotonic() < end:
                load(broker)
        return broker

    def cpu_seconds(self) -> float:
        """CPU seconds of Apache Kafka so far; 0 if it does not run."""
        if self._kafka is None:
            return 0.0
        return BenchedBroker(self._kafka.bootstrap, self._kafka.process.pid).cpu_seconds()

    def close(self) -> None:
        if self._kafka is not None:
            self._kafka.close()

    def _started(self) -> ApacheKafka | None:
        if self._kafka is None and not self._is_missing:
            try:
                kafka = ApacheKafka(self._directory, settings=SETTINGS, port=0, libraries=str(libraries()))
            except NoKafka as reason:
                self._is_missing = True
                sys.stderr.write(f"not compared with Apache Kafka: {reason}\n")
                return None
            kafka.start()
            self._kafka = kafka
        return self._kafka
