"""The contenders of a comparison: our broker, our broker at another commit, Apache Kafka; started as users start
them."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bench.conversation import Conversation
from bench.processes import PACKAGES, OwnBroker, StartedBroker, wait_until_answering
from dev.apache_kafka import ApacheKafka


class Contender(Protocol):
    """A kind of broker that can be started on a directory."""

    @property
    def key(self) -> str:
        """The name in files."""

    @property
    def title(self) -> str:
        """The name in tables."""

    def start(self, directory: Path, settings: Mapping[str, str]) -> StartedBroker:
        """Start a broker on a data directory, which may be new. The broker has answered when this returns."""


@dataclass(frozen=True, slots=True)
class Ottla:
    """The broker of this checkout as a user runs it, or that of other packages."""

    key: str = "ottla"
    title: str = "Ottla"
    packages: Path = PACKAGES

    def start(self, directory: Path, settings: Mapping[str, str]) -> StartedBroker:
        broker = OwnBroker(directory, settings=settings, packages=self.packages)
        wait_until_answering(broker.bootstrap)
        return broker


@dataclass(frozen=True, slots=True)
class Kafka:
    """Apache Kafka from a directory with its jars."""

    libraries: Path
    key: str = "kafka"
    title: str = "Apache Kafka"

    def start(self, directory: Path, settings: Mapping[str, str]) -> StartedBroker:
        return _KafkaBroker(_AsInstalled(directory, settings=settings, port=0, libraries=str(self.libraries)))


def served_by(contender: Contender, directory: Path) -> frozenset[int]:
    """The keys of the APIs that a contender serves; it is started on ``directory`` for the question."""
    with closing(contender.start(directory, {})) as broker, Conversation(broker.bootstrap) as conversation:
        return frozenset(conversation.served)


JVM_OPTIONS: Final = (
    *("-server", "-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
"""The JVM options of `kafka-server-start.sh`."""


class _AsInstalled(ApacheKafka):
    """Apache Kafka with the JVM options of its start script and its sample configuration."""

    def __init__(self, directory: Path, *, settings: Mapping[str, str], port: int, libraries: str) -> None:
        # The tests' node does not wait for more members of an empty group; a user's does. And what a sample has written
        # must be gone before the next one: by default Kafka keeps the files of a deleted topic for a minute.
        given = {"group.initial.rebalance.delay.ms": "3000", "log.segment.delete.delay.ms": "200", **settings}
        super().__init__(directory, settings=given, port=port, libraries=libraries)

    def _java(self, *words: str) -> list[str]:
        return ["java", *JVM_OPTIONS, "-Dlog4j2.level=INFO", "-cp", f"{self.libraries}/*", *words]


class _KafkaBroker(StartedBroker):
    def __init__(self, node: _AsInstalled) -> None:
        self._node = node
        node.format()
        created_s = time.perf_counter()
        node.launch()
        super().__init__(node.bootstrap, node.process.pid, data_directory=node.data_directory, created_s=created_s)
        try:
            wait_until_answering(self.bootstrap)
        except OSError:
            sys.stderr.write(node.log_text())
            node.kill()
            raise

    def close(self) -> None:
        # What it has measured is verified already; half a minute for a clean shutdown would be wasted.
        self._node.close()
