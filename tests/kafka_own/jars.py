"""The jars of Apache Kafka's own tests, and the adapter that lets them start broker processes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dev.kafka_jars import BEFORE
from dev.maven import NoJars, fetch, one_at_a_time
from dev.repository import REPOSITORY

VERSION: Final = BEFORE
"""The newest Kafka whose tests are published."""

HERE: Final = Path(__file__).resolve().parent
CACHE: Final = REPOSITORY / ".kafka" / "own-tests"
NAMED_BY: Final = "OTTLA_TEST_KAFKA_OWN_TESTS"
"""The environment variable that names a directory with the jars."""

SUITES: Final = ("kafka-clients-integration-tests", "kafka_2.13", "kafka-tools", "kafka-streams-integration-tests")
"""The artifacts whose tests are run."""


def libraries() -> Path:
    """The directory with the tests and all that they need. Raises `NoJars`."""
    for program in ("java", "javac"):
        if shutil.which(program) is None:
            raise NoJars(f"there is no '{program}' on the path: install a JDK of version 17 or newer")
    if named := os.environ.get(NAMED_BY):
        return Path(named)
    directory = CACHE / VERSION
    if not directory.exists():
        fetch(HERE / "jars.pom.xml", directory, f"-Dkafka.version={VERSION}", instead=NAMED_BY)
    return directory


def test_classes(libraries: Path) -> Iterator[str]:
    """The names of all classes of the suites, without those inside of others."""
    for suite in SUITES:
        with zipfile.ZipFile(libraries / f"{suite}-{VERSION}-test.jar") as jar:
            for name in jar.namelist():
                if name.endswith(".class") and "$" not in name:
                    yield name.removesuffix(".class").replace("/", ".")


def adapter(libraries: Path) -> Path:
    """The directory with the adapter's classes, compiled when its sources have changed."""
    files = sorted(file for file in (HERE / "java").rglob("*") if file.is_file())
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    directory = CACHE / f"adapter-{digest}"
    with one_at_a_time(CACHE):
        if not directory.exists():
            half = directory.with_suffix(".part")
            shutil.rmtree(half, ignore_errors=True)
            shutil.copytree(HERE / "java", half, ignore=shutil.ignore_patterns("*.java"))
            sources = [file for file in files if file.suffix == ".java"]
            subprocess.run(["javac", "-nowarn", "-d", half, "-cp", f"{libraries}/*", *sources], check=True)
            half.rename(directory)
    return directory
