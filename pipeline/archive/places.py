"""The layout of an archive: paths of its files, and what their names mean (drawn in docs/decisions/archive.md)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

BOOKS: Final = "_ottla"
"""What the archive keeps for itself. Nothing below it ends with `.parquet`: there are readers that look everywhere."""
MANIFEST: Final = f"{BOOKS}/manifest.json"
PLAN: Final = f"{BOOKS}/plan.json"
COMPACTION: Final = f"{BOOKS}/compaction.json"
LOCK: Final = f"{BOOKS}/lock"
ARCHIVER: Final = f"{BOOKS}/archiver"
BATCHES: Final = f"{BOOKS}/batches"
DELTA_TABLE: Final = "_delta"
"""The archive as a Delta table, where it is kept as one."""
DELTA_LOG: Final = f"{DELTA_TABLE}/_delta_log"

TOPIC: Final = "topic"
DATE: Final = "date"
PARTITIONINGS: Final = ((TOPIC, DATE), (TOPIC,))
"""By what rows may be put into directories."""

_ROWS_NAME: Final = re.compile(r"part-(\d+)-(\d+)-(\d+)\.parquet")
_RUN_NAME: Final = re.compile(r"run-(\d+)\.(\d+)")


class Stretch(NamedTuple):
    """Offsets of one partition, `until_offset` not among them."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.from_offset} to {self.until_offset}"

    @property
    def stem(self) -> str:
        """What its files are called, without what they end with."""
        return f"part-{self.partition}-{self.from_offset}-{self.until_offset}"


def topic_directory(topic: str) -> str:
    """The directory of a topic's rows."""
    return f"{TOPIC}={topic}"


def rows_path(stretch: Stretch, date: str | None) -> str:
    """Where the rows of these offsets and this date lie; None where dates have no directories."""
    directory = topic_directory(stretch.topic) + ("" if date is None else f"/{DATE}={date}")
    return f"{directory}/{stretch.stem}.parquet"


def batches_path(stretch: Stretch) -> str:
    """Where the batches of these offsets lie."""
    return f"{BATCHES}/{topic_directory(stretch.topic)}/{stretch.stem}.batches"


def stretch_of(topic: str, name: str) -> Stretch | None:
    """What the name of a file with rows says; None if it is none."""
    found = _ROWS_NAME.fullmatch(name)
    return None if found is None else Stretch(topic, *map(int, found.groups()))


def run_name(plan: int, attempt: int) -> str:
    """The directory in which a run works."""
    return f"{BOOKS}/run-{plan}.{attempt}"


def runs(dest: Path) -> list[tuple[int, int]]:
    """The runs whose directories are there: plan and attempt."""
    names = (_RUN_NAME.fullmatch(entry.name) for entry in (dest / BOOKS).iterdir())
    return sorted((int(found[1]), int(found[2])) for found in names if found is not None)


def files_with_rows(dest: Path) -> Iterator[str]:
    """Every file that a reader of the directory would take for one with rows, relative to it, sorted."""
    for path in sorted(dest.rglob("*.parquet")):
        if path.parent != dest / DELTA_LOG:
            yield path.relative_to(dest).as_posix()
