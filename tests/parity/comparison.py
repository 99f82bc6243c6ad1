"""Two outcomes of one step, compared field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

ABSENT = "(default or absent)"
"""Stands where one side has a field, an entry or a step that the other lacks."""

CLOSED = "the connection is closed"
SILENCE = "nothing comes, nor does an answer to what is asked next"


def matches(path: str, pattern: str) -> bool:
    """Whether a path is meant by a pattern in which `*` stands for anything."""
    return fnmatchcase(path, pattern.replace("[", "[[]"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field in which we differ from Kafka."""

    api: str
    step: str
    version: str
    path: str
    kafka: Any
    ours: Any

    def __str__(self) -> str:
        where = f"{self.api}, {self.step}: {self.path or 'the answer'}"
        return f"{where}: Kafka {self.kafka!r}, we {self.ours!r}"


def differing_fields(kafka: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every (path, Kafka's value, our value) that is not equal."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in kafka.keys() | ours.keys():
            below = f"{path}.{key}" if path else key
            yield from differing_fields(kafka.get(key, ABSENT), ours.get(key, ABSENT), below)
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for index, (left, right) in enumerate(zip(kafka, ours, strict=True)):
            yield from differing_fields(left, right, f"{path}[{index}]")
    elif kafka != ours:
        yield path, kafka, ours
