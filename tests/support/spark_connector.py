"""The jars of Spark's stock Kafka connector, fetched once by Maven and compared with the checksums that stand here."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.server import REPOSITORY

SPARK_VERSION: Final = "4.2.0"
DIRECTORY: Final = REPOSITORY / ".spark" / SPARK_VERSION
PROJECT: Final = Path(__file__).with_name("spark-connector.pom.xml")

_SHA256: Final = dict(
    line.split()
    for line in """
commons-pool2-2.13.1.jar                       f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f
kafka-clients-3.9.2.jar                        014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8
spark-sql-kafka-0-10_2.13-4.2.0.jar            64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705
spark-token-provider-kafka-0-10_2.13-4.0.0.jar f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767
""".strip().splitlines()
)


class NoConnector(Exception):
    """The connector cannot be had here; the sentence says why, and what would bring it."""


def jars() -> list[Path]:
    """The jars: from the directory that `OTTLA_TEST_SPARK_JARS` names, or from one that Maven fills. Raises
    `NoConnector`."""
    directory = Path(os.environ.get("OTTLA_TEST_SPARK_JARS", DIRECTORY))
    if directory == DIRECTORY and not directory.exists():
        _fetch()
    for name, expected in _SHA256.items():
        path = directory / name
        if not path.exists():
            raise NoConnector(f"there is no {path}")
        if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != expected:
            raise NoConnector(f"{path} has the SHA-256 {found}, expected {expected}: remove it")
    return [directory / name for name in _SHA256]


def _fetch() -> None:
    if shutil.which("mvn") is None:
        raise NoConnector(
            "there is no 'mvn' on the path: install Maven, or name a directory with the jars by OTTLA_TEST_SPARK_JARS"
        )
    half = DIRECTORY.with_suffix(".part")
    shutil.rmtree(half, ignore_errors=True)
    command = ["mvn", "-B", "-q", "--strict-checksums", "-f", str(PROJECT)]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={half}"]
    sys.stderr.write(f"Fetching Spark's Kafka connector {SPARK_VERSION} into {DIRECTORY} ...\n")
    done = subprocess.run(command, check=False, stdout=sys.stderr)
    if done.returncode:
        raise NoConnector(f"Maven ended with exit code {done.returncode}; what it said stands above")
    half.rename(DIRECTORY)
