"""The broker's own lines about its groups: when a rebalance was over."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from tests.crash.promises import Promise, require

A_TURN: Final = timedelta(milliseconds=1_000)
"""More than a turn of the loop takes on a machine that is busy with other things, less than any timer of a group."""

_LINE: Final = re.compile(r"^(?P<time>\S+)Z INFO broker\.(coordinators|request)\.\w+: (?P<text>.*)$", re.MULTILINE)
_FORMED: Final = re.compile(r"^Group .* forms generation .*, (?P<waited_ms>\d+) ms after the last of them has joined$")
_GONE: Final = re.compile(r"^Member .* is removed: |^and \d+ more like it .*: Member .* is removed: ")
_LINES_OF_A_KIND: Final = 10
"""So many removals are told in 10 s; then one may have been kept back."""


def check_that_no_rebalance_waits(log: Path) -> int:
    """Each generation was formed in the turn in which the last member joined, or the last one that had not joined
    again went. Returns how many the log tells of."""
    removals: list[datetime] = []
    formed = 0
    for line in _LINE.finditer(log.read_text(errors="replace")):
        at = datetime.fromisoformat(line["time"])
        if _GONE.match(line["text"]):
            removals.append(at)
        elif found := _FORMED.match(line["text"]):
            formed += 1
            recent = [before for before in removals if at - before < timedelta(seconds=10)]
            require(
                timedelta(milliseconds=int(found["waited_ms"])) <= A_TURN
                or len(recent) >= _LINES_OF_A_KIND
                or at - removals[-1] <= A_TURN,
                Promise.GROUP_REBALANCES,
                line[0],
            )
    return formed
