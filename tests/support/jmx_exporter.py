"""Prometheus' JMX exporter, a Java agent that makes series of Kafka's beans; fetched once by Maven."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from dev.apache_kafka import ApacheKafka
from dev.broker_process import port_below_client_ports
from dev.kafka_jars import NoKafka
from dev.repository import REPOSITORY

VERSION = "1.0.1"
DIRECTORY = REPOSITORY / ".kafka" / f"jmx-exporter-{VERSION}"
JAR = DIRECTORY / f"jmx_prometheus_javaagent-{VERSION}.jar"
RULES = REPOSITORY / "tests" / "parity" / "jmx_rules.yaml"


def agent() -> Path:
    """The agent's jar. Raises `NoKafka`."""
    if not JAR.exists():
        _fetch()
    return JAR


def _fetch() -> None:
    if shutil.which("mvn") is None:
        raise NoKafka("there is no 'mvn' on the path: install Maven")
    command = ["mvn", "-B", "-q", "--strict-checksums", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"]
    command += [f"-Dartifact=io.prometheus.jmx:jmx_prometheus_javaagent:{VERSION}", f"-DoutputDirectory={DIRECTORY}"]
    sys.stderr.write(f"Fetching the JMX exporter {VERSION} into {DIRECTORY} ...\n")
    done = subprocess.run(command, check=False, stdout=sys.stderr)
    if done.returncode or not JAR.exists():
        raise NoKafka(f"Maven ended with exit code {done.returncode}; what it said stands above")


class WatchedKafka(ApacheKafka):
    """Apache Kafka with the JMX exporter."""

    heap = "512M"

    def __init__(self, directory: Path, *, settings: dict[str, str], libraries: str) -> None:
        port = port_below_client_ports()
        super().__init__(directory, settings=settings, port=port, libraries=libraries)
        self._agents_port = port + 2

    @property
    def metrics_port(self) -> int:
        """The port of the JMX exporter."""
        return self._agents_port

    def command(self) -> list[str]:
        java, *words = super().command()
        return [java, f"-javaagent:{agent()}=127.0.0.1:{self.metrics_port}:{RULES}", *words]
