"""RegexWorker: regular expressions of groups are matched with the names of topics in a worker thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.runtime.linear_regex import InvalidPattern, LinearRegex
from broker.runtime.worker_thread import WorkerThread

log = logging.getLogger(__name__)

CHARACTERS_A_JOB: Final = 1 << 16
"""Characters of names that are matched in one job of the thread: other jobs wait for no more than that."""

Then = Callable[[Mapping[str, frozenset[str]] | None], None]


class RegexWorker:
    """Implements `broker.coordinators.group.modern.kinds.Resolve`, job by job."""

    def __init__(self, worker: WorkerThread) -> None:
        self._worker = worker

    def __call__(self, regexes: Sequence[str], names: Sequence[str], then: Then) -> None:
        """Give ``then`` the names that each expression matches, on the loop; None if the thread has failed."""
        found: dict[str, set[str]] = {regex: set() for regex in regexes}
        jobs = [(regex, part) for regex in regexes for part in _parts(names)]
        self._next(jobs[::-1], found, then)

    def _next(self, jobs: list[tuple[str, Sequence[str]]], found: dict[str, set[str]], then: Then) -> None:
        if not jobs:
            then({regex: frozenset(topics) for regex, topics in found.items()})
            return
        regex, names = jobs.pop()

        def matched(topics: list[str]) -> None:
            found[regex].update(topics)
            self._next(jobs, found, then)

        def failed(error: Exception) -> None:
            log.error("Regular expressions of a group could not be resolved: %s", error)
            then(None)

        self._worker.submit(lambda: _matches(regex, names), matched, failed)


def _matches(regex: str, names: Sequence[str]) -> list[str]:
    try:
        compiled = LinearRegex(regex)
    except InvalidPattern:
        # Written by a Kafka, whose expressions differ in a few places (docs/decisions/regular-expressions.md).
        return []
    return [name for name in names if compiled.matches(name)]


def _parts(names: Sequence[str]) -> list[Sequence[str]]:
    parts, first, characters = [], 0, 0
    for place, name in enumerate(names):
        characters += len(name)
        if characters >= CHARACTERS_A_JOB:
            parts.append(names[first : place + 1])
            first, characters = place + 1, 0
    parts.append(names[first:])
    return parts
