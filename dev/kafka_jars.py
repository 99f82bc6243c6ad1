"""Apache Kafka's jars, fetched once by Maven: `python -m dev.kafka_jars` prints the directory they are in."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from dev.maven import NoJars, fetch
from dev.repository import REPOSITORY

NEWEST: Final = "4.4.0"
BEFORE: Final = "4.3.1"
OLDEST: Final = "4.0.0"
"""The first version of Kafka's own line 4: that it opens a directory of its levels is tested."""

KAFKA_VERSION: Final = os.environ.get("OTTLA_TEST_KAFKA_VERSION", NEWEST)
"""The version of Kafka that this broker is compared with: answers, settings, tools and speed."""

DIRECTORY_VERSIONS: Final = (BEFORE, NEWEST)
"""The Kafka versions with which the tests exchange data directories."""

PROJECT: Final = Path(__file__).with_name("kafka-jars.pom.xml")


class NoKafka(Exception):
    """Apache Kafka cannot be had here; the message says why, and what would help."""


def libraries(version: str = KAFKA_VERSION, *, fetching: bool = True) -> Path:
    """The directory with the jars of a version: `OTTLA_TEST_KAFKA_LIBS` if that has them, or a directory that Maven
    fills unless ``fetching`` is false. Raises `NoKafka`."""
    if shutil.which("java") is None:
        raise NoKafka("there is no 'java' on the path: install a Java runtime of version 17 or newer")
    named = os.environ.get("OTTLA_TEST_KAFKA_LIBS")
    if named and (Path(named) / f"kafka-clients-{version}.jar").exists():
        return Path(named)
    if named and version == KAFKA_VERSION:
        raise NoKafka(
            f"OTTLA_TEST_KAFKA_LIBS is {named}, where there is no kafka-clients-{version}.jar; "
            "OTTLA_TEST_KAFKA_VERSION says which version is wanted"
        )
    directory = REPOSITORY / ".kafka" / version
    if not directory.exists():
        if not fetching:
            raise NoKafka(f"{directory} is not there, nor does OTTLA_TEST_KAFKA_LIBS name the jars of {version}")
        try:
            fetch(PROJECT, directory, f"-Dkafka.version={version}", instead="OTTLA_TEST_KAFKA_LIBS")
        except NoJars as reason:
            raise NoKafka(str(reason)) from None
    return directory


def release_of(directory: Path | str) -> str:
    """The release of the Kafka whose jars a directory has, such as 4.3."""
    (release,) = {path.name.split("-")[2].rpartition(".")[0] for path in Path(directory).glob("kafka-metadata-*.jar")}
    return release


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{libraries()}\n")
    except NoKafka as reason:
        raise SystemExit(f"Skipped: {reason}.") from None
