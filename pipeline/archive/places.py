"""The layout of an archive: the paths of its files and the meaning of their names (drawn in
docs/decisions/archive.md)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

BOOKS: Final = "_ottla"
"""The archive's own directory. No name below it ends with `.parquet`: some readers read all Parquet files below a
directory."""
MANIFEST: Final = f"{BOOKS}/manifest.json"
PLAN: Final = f"{BOOKS}/plan.json"
COMPACTION: Final = f"{BOOKS}/compaction.json"
LOCK: Final = f"{BOOKS}/lock"
ARCHIVER: Final = f"{BOOKS}/archiver"
BATCHES: Final = f"{BOOKS}/batches"
DELTA_TABLE: Final = "_delta"
"""The directory of the Delta table, if the archive is kept as a Delta table."""
DELTA_LOG: Final = f"{DELTA_TABLE}/_delta_log"

TOPIC: Final = "topic"
DATE: Final = "date"
PARTITIONINGS: Final = ((TOPIC, DATE), (TOPIC,))
"""The columns by which rows may be put into directories."""

_ROWS_NAME: Final = re.compile(r"part-(\d+)-(\d+)-(\d+)\.parquet")
_RUN_NAME: Final = re.compile(r"run-(\d+)\.(\d+)")


class Stretch(NamedTuple):
    """A range of offsets of one partition, without `until_offset`."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.from_offset} to {self.until_offset}"

    @property
    def stem(self) -> str:
        """The name of the range's files, without suffix."""
        return f"part-{self.partition}-{self.from_offset}-{self.until_offset}"


def topic_directory(topic: str) -> str:
    """The directory of a topic's rows."""
    return f"{TOPIC}={topic}"


def rows_path(stretch: Stretch, date: str | None) -> str:
    """The path of the file with the rows of these offsets and this date; None if the archive has no directories by
    date."""
    directory = topic_directory(stretch.topic) + ("" if date is None else f"/{DATE}={date}")
    return f"{directory}/{stretch.stem}.parquet"


def batches_path(stretch: Stretch) -> str:
    """The path of the file with the batches of these offsets."""
    return f"{BATCHES}/{topic_directory(stretch.topic)}/{stretch.stem}.batches"


def stretch_of(topic: str, name: str) -> Stretch | None:
    """The range that a file name of rows stands for; None if it is no such name."""
    found = _ROWS_NAME.fullmatch(name)
    return None if found is None else Stretch(topic, *map(int, found.groups()))


def run_name(plan: int, attempt: int) -> str:
    """The path of the directory in which a run's attempt works."""
    return f"{BOOKS}/run-{plan}.{attempt}"


def runs(dest: Path) -> list[tuple[int, int]]:
    """The plan and attempt numbers of all run directories."""
    names = (_RUN_NAME.fullmatch(entry.name) for entry in (dest / BOOKS).iterdir())
    return sorted((int(found[1]), int(found[2])) for found in names if found is not None)


def files_with_rows(dest: Path) -> Iterator[str]:
    """The paths, relative to the archive and sorted, of all files that a reader of the directory takes for files with
    rows."""
    for path in sorted(dest.rglob("*.parquet")):
        if path.parent != dest / DELTA_LOG:
            yield path.relative_to(dest).as_posix()
