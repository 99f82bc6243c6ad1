"""Apache Kafka's jars, fetched once by Maven: `python -m dev.kafka_jars` prints the directory they are in."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from dev.broker_process import REPOSITORY
from dev.maven import NoJars, fetch

KAFKA_VERSION = "4.3.1"
DIRECTORY = REPOSITORY / ".kafka" / KAFKA_VERSION
PROJECT = Path(__file__).with_name("kafka-jars.pom.xml")


class NoKafka(Exception):
    """Apache Kafka cannot be had here; the sentence says why, and what would bring it."""


def libraries() -> Path:
    """The directory with the jars: what `OTTLA_TEST_KAFKA_LIBS` names, or one that Maven fills. Raises `NoKafka`."""
    if shutil.which("java") is None:
        raise NoKafka("there is no 'java' on the path: install a Java runtime of version 17 or newer")
    if named := os.environ.get("OTTLA_TEST_KAFKA_LIBS"):
        return Path(named)
    if not DIRECTORY.exists():
        try:
            fetch(PROJECT, DIRECTORY, f"-Dkafka.version={KAFKA_VERSION}", instead="OTTLA_TEST_KAFKA_LIBS")
        except NoJars as reason:
            raise NoKafka(str(reason)) from None
    return DIRECTORY


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{libraries()}\n")
    except NoKafka as reason:
        raise SystemExit(f"Skipped: {reason}.") from None
