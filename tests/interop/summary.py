"""The table at the end of the run: what each foreign program did, and what does not apply to us and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

OUTCOMES = ("passed", "failed", "not applicable", "skipped")


@dataclass(slots=True)
class Summary:
    """Outcomes counted by suite, and the reasons for all that neither passed nor failed."""

    counts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    reasons: defaultdict[tuple[str, str, str], list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, suite: str, test: str, outcome: str, reason: str = "") -> None:
        """Count one test. `outcome` is one of OUTCOMES; all but the first two have a reason."""
        assert outcome in OUTCOMES, f"outcome '{outcome}' of {test} is none of {OUTCOMES}"
        self.counts[suite][outcome] += 1
        if reason:
            self.reasons[suite, outcome, reason].append(test)

    def add_report(self, report: pytest.TestReport) -> None:
        """Count one of our own tests, its set-up if that decided, its call otherwise; and what it has run of others."""
        decided = report.when == "call" or (report.when == "setup" and not report.passed)
        if not decided:
            return
        for name, outcome in report.user_properties:
            if name == OUTCOME:
                self.add(*outcome)
        file, _, test = report.nodeid.partition("::")
        suite = Path(file).stem.removeprefix("test_").replace("_", " ")
        if report.skipped and hasattr(report, "wasxfail"):
            self.add(suite, test, "not applicable", report.wasxfail)
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.add(suite, test, "skipped", reason.removeprefix("Skipped: "))
        else:
            self.add(suite, test, "passed" if report.passed else "failed")

    def as_markdown(self) -> str:
        lines = ["", "| suite | " + " | ".join(OUTCOMES) + " |", "|---" * (len(OUTCOMES) + 1) + "|"]
        for suite, counted in sorted(self.counts.items()):
            lines.append(f"| {suite} | " + " | ".join(str(counted[outcome]) for outcome in OUTCOMES) + " |")
        if self.reasons:
            lines += ["", "| suite | tests | | because |", "|---|---|---|---|"]
        for (suite, outcome, reason), tests in sorted(self.reasons.items()):
            named = ", ".join(f"`{test}`" for test in tests) if outcome == "not applicable" else str(len(tests))
            lines.append(f"| {suite} | {named} | {outcome} | {reason} |")
        return "\n".join(lines) + "\n"


OUTCOME = "outcome"
"""The user property of a test that runs a suite of others: the arguments of `Summary.add`, for each of their tests."""

SUMMARY = pytest.StashKey[Summary]()
