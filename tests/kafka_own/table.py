"""The table of Kafka's test classes: which are run, and why the others are not.

Each line of `classes.tsv` has a class, or a class, a '#' and one of its tests; what is done with it; and the reason:

    org.apache.kafka.clients.admin.AdminFenceProducersTest	run in CI
    org.apache.kafka.clients.admin.DeleteTopicTest	run
    org.apache.kafka.clients.admin.DeleteTopicTest#testDeleteTopicWithCleaner	left out	reaches into the JVM
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

TABLE: Final = Path(__file__).resolve().parent / "classes.tsv"


class Use(Enum):
    """What is done with a class or a test."""

    RUN = "run"
    RUN_IN_CI = "run in CI"
    RUN_UNDER_KAFKAS_CONTROLLERS = "run under Kafka's controllers"
    LEFT_OUT = "left out"


class Entry(NamedTuple):
    """A line of the table."""

    name: str
    use: Use
    reason: str

    @property
    def is_class(self) -> bool:
        return "#" not in self.name


def read(path: Path = TABLE) -> list[Entry]:
    """All lines of the table, as they stand there."""
    with path.open(newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Entry(name, Use(use), *(rest or [""])) for name, use, *rest in rows]


def exceptions(entries: list[Entry], class_name: str) -> Mapping[str, str]:
    """Why tests of a class are not run under Ottla's own controller, by their names; "class": all of them."""
    found: dict[str, str] = {}
    for entry in entries:
        name, _, test = entry.name.partition("#")
        if name == class_name and entry.use in (Use.LEFT_OUT, Use.RUN_UNDER_KAFKAS_CONTROLLERS):
            found[test or "class"] = entry.reason or entry.use.value
    return found


def left_out_classes(entries: list[Entry]) -> str:
    """The reasons for which classes are not run, and how many classes each."""
    reasons = Counter(entry.reason for entry in entries if entry.is_class and entry.use is Use.LEFT_OUT)
    return "\n".join(
        ["Classes that are not run:", *(f"{count:5}  {reason}" for reason, count in reasons.most_common())]
    )
