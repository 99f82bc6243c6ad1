"""The jars of Delta Lake for Spark, fetched once by Maven and checked against the checksums in this file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from dev.maven import checked, fetch
from dev.repository import REPOSITORY

DELTA_VERSION: Final = "4.4.0"
DIRECTORY: Final = REPOSITORY / ".spark" / f"delta-{DELTA_VERSION}"
PROJECT: Final = Path(__file__).with_name("spark-delta.pom.xml")

_SHA256: Final = {
    "delta-spark_4.2_2.13-4.4.0.jar": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    "delta-storage-4.4.0.jar": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
}


def jars() -> list[Path]:
    """The jars: from the directory that `OTTLA_TEST_DELTA_JARS` names, or one that Maven fills. Raises `NoJars`."""
    directory = Path(os.environ.get("OTTLA_TEST_DELTA_JARS", DIRECTORY))
    if directory == DIRECTORY and not directory.exists():
        fetch(PROJECT, DIRECTORY, instead="OTTLA_TEST_DELTA_JARS")
    return checked(directory, _SHA256)
