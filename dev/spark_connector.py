"""The jars of Spark's stock Kafka connector, fetched once by Maven and checked against the checksums in this file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from dev.maven import checked, fetch
from dev.repository import REPOSITORY

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


def jars() -> list[Path]:
    """The jars: from the directory that `OTTLA_TEST_SPARK_JARS` names, or one that Maven fills. Raises `NoJars`."""
    directory = Path(os.environ.get("OTTLA_TEST_SPARK_JARS", DIRECTORY))
    if directory == DIRECTORY and not directory.exists():
        fetch(PROJECT, DIRECTORY, instead="OTTLA_TEST_SPARK_JARS")
    return checked(directory, _SHA256)
