"""What became of Kafka's tests, kept in a file so that a run goes on where another has stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PASSED = "passed"
FAILED = "failed"
LEFT_OUT = "left out"


class Result(NamedTuple):
    """What became of a test."""

    class_name: str
    test: str
    outcome: str
    milliseconds: int
    reason: str


def has_failed(result: Result) -> bool:
    """Whether a test has failed, under whichever controller."""
    return result.outcome.startswith(FAILED)


def of_class(class_name: str, path: Path) -> list[Result]:
    """The results that the adapter has written for a class."""
    rows = [line.split("\t") for line in path.read_text(errors="replace").splitlines()] if path.exists() else []
    return [Result(class_name, test, outcome, int(time), reason) for test, outcome, time, reason in rows]


class Record:
    """The file of results. A class stands in it once it was run to its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.results: dict[str, list[Result]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                class_name, test, outcome, time, reason = line.split("\t")
                self._of(class_name).append(Result(class_name, test, outcome, int(time), reason))

    def replace(self, class_name: str, results: Iterable[Result]) -> None:
        """Keep the results of a class instead of earlier ones."""
        self.results[class_name] = list(results)
        lines = ("\t".join(map(str, result)) + "\n" for each in self.results.values() for result in each)
        half = self._path.with_suffix(".part")
        half.write_text("".join(lines))
        half.replace(self._path)

    def _of(self, class_name: str) -> list[Result]:
        return self.results.setdefault(class_name, [])


def summary(results: Iterable[Result]) -> str:
    """Totals, the reasons of what was left out, and the failures."""
    by_outcome: dict[str, list[Result]] = {PASSED: [], FAILED: [], LEFT_OUT: []}
    under_kafkas = 0
    for result in results:
        outcome, under, _ = result.outcome.partition(" under ")
        by_outcome[outcome].append(result)
        under_kafkas += bool(under) and outcome == PASSED
    reasons = Counter(result.reason for result in by_outcome[LEFT_OUT])
    failures = [f"  {each.class_name}#{each.test}: {each.reason[:300]}" for each in by_outcome[FAILED]]
    return "\n".join(
        [
            *(["Failed:", *failures] if failures else []),
            *(["Left out:"] if reasons else []),
            *(f"{count:5}  {reason}" for reason, count in reasons.most_common()),
            f"{under_kafkas} of those that passed had Kafka's controllers; the others the controller of an Ottla.",
            f"{len(by_outcome[PASSED])} passed, {len(by_outcome[FAILED])} failed, {len(by_outcome[LEFT_OUT])} skipped",
        ]
    )
