"""What became of Kafka's tests, kept in a file so that a run goes on where another has stopped.

`outcomes.tsv` beside this module has a line for each class of which no test has failed: how many passed and were
skipped, and our commit on which they ran. It is part of the repository, so that a run may go on where another machine's
has stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

OUTCOMES: Final = Path(__file__).resolve().parent / "outcomes.tsv"
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


class Outcome(NamedTuple):
    """How many tests of a class passed and were skipped, none failed, and on which commit of ours."""

    class_name: str
    passed: int
    skipped: int
    commit: str


def outcomes(path: Path = OUTCOMES) -> dict[str, Outcome]:
    """The last outcome of each class that was run, by the classes' names."""
    rows = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
    return {name: Outcome(name, int(passed), int(skipped), on) for name, passed, skipped, on in rows}


def keep_outcome(found: Iterable[Result], class_name: str, commit: str, path: Path = OUTCOMES) -> None:
    """Write the outcome of a class in place of its earlier one; a class with a failure has none.

    The lines are in the order of the names.
    """
    kinds = Counter(result.outcome.partition(" under ")[0] for result in found)
    kept = outcomes(path)
    kept.pop(class_name, None)
    if not kinds[FAILED]:
        kept[class_name] = Outcome(class_name, kinds[PASSED], kinds[LEFT_OUT], commit)
    half = path.with_suffix(".part")
    half.write_text("".join("\t".join(map(str, kept[name])) + "\n" for name in sorted(kept)))
    half.replace(path)


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
