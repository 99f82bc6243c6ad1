"""A writable SPARK_HOME for Spark's own programs, which leave files behind."""

from __future__ import annotations

from pathlib import Path


def linked_home(place: Path, pyspark: Path) -> Path:
    """A directory that stands for an installed pyspark as SPARK_HOME, in which a cluster on this machine may write its
    directory `work`."""
    place.mkdir(parents=True)
    for entry in pyspark.iterdir():
        (place / entry.name).symlink_to(entry)
    return place
