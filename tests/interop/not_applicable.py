"""A pytest plugin for suites that are not ours: what does not apply to us must fail there, or be taken off the list.

The list (`--not-applicable=FILE`) has a test's id or a pattern of ids, a tab, `until` or `because`, a tab, and a text:
the subject that will make it work, or the sentence in Kafka's behaviour that makes it right.
What came out is written to `--outcomes=FILE`, a line of JSON for each test.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

# Long enough for what would work, short enough for a client that waits for an answer it will not get.
TIMEOUT_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the list."""

    pattern: str
    kind: str
    text: str

    @property
    def reason(self) -> str:
        return f"until there are: {self.text}" if self.kind == "until" else self.text

    def covers(self, test: str) -> bool:
        return test == self.pattern or fnmatch.fnmatchcase(test, self.pattern)


def read_list(path: Path) -> list[Entry]:
    """The entries of a list; empty lines and those that begin with # are for people. Raises ValueError."""
    entries = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match line.split("\t"):
            case [pattern, "until" | "because" as kind, text] if text.strip():
                entries.append(Entry(pattern=pattern, kind=kind, text=text.strip()))
            case _:
                raise ValueError(f"{path.name}:{number}: expected test, 'until' or 'because', reason; found {line!r}")
    return entries


def entry_for(test: str, entries: Iterable[Entry]) -> Entry | None:
    return next((entry for entry in entries if entry.covers(test)), None)


class OutcomeFile:
    """Writes down how each test ended, while the run goes on."""

    def __init__(self, path: Path, entries: Iterable[Entry]) -> None:
        self.path = path
        self.entries = entries

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and report.when != "call":
            return
        entry = entry_for(report.nodeid, self.entries)
        if report.skipped and report.when != "teardown" and entry is not None:
            outcome, reason = "not applicable", entry.reason
        elif report.skipped:
            outcome, reason = "failed", "it skips itself, and is not on the list"
        else:
            outcome, reason = report.outcome, _first_line(report)
        line = json.dumps({"test": report.nodeid, "outcome": outcome, "reason": reason})
        with self.path.open("a") as file:
            file.write(f"{line}\n")


def _first_line(report: pytest.TestReport) -> str:
    """What went wrong, in one line; nothing if nothing did."""
    crash = getattr(report.longrepr, "reprcrash", None)
    said = report.longreprtext if crash is None else crash.message
    return said.strip().partition("\n")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--not-applicable", type=Path, help="the list of tests that are expected to fail")
    parser.addoption("--outcomes", type=Path, help="the file for the outcomes")
    parser.addoption("--may-pass", action="store_true", help="a listed test may pass, and has the time it takes")


def pytest_configure(config: pytest.Config) -> None:
    entries = read_list(config.getoption("--not-applicable"))
    config.pluginmanager.register(OutcomeFile(config.getoption("--outcomes"), entries))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    entries = read_list(config.getoption("--not-applicable"))
    may_pass = config.getoption("--may-pass")
    for item in items:
        if (entry := entry_for(item.nodeid, entries)) is not None:
            item.add_marker(pytest.mark.xfail(strict=not may_pass, reason=entry.reason))
            if not may_pass:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S, method="signal"))
    unused = [entry.pattern for entry in entries if not any(entry.covers(item.nodeid) for item in items)]
    if unused:
        raise pytest.UsageError(f"listed as not applicable, but no such test: {', '.join(unused)}")
