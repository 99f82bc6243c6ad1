"""The table of calls: a path, what it takes, what it does."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

Answer = dict[str, Any]
"""What a call answers, as JSON."""

READS: Final = "GET"
CHANGES: Final = "POST"


class CannotDo(Exception):
    """A call whose arguments are right, and that is not possible now: 409 with this sentence."""


class NotInTime(Exception):
    """What was waited for has not come by its deadline: 408 with this sentence and what is there instead."""

    def __init__(self, sentence: str, found: Answer) -> None:
        super().__init__(sentence)
        self.found = found


@dataclasses.dataclass(frozen=True)
class Nothing:
    """The arguments of a call that takes none."""


class Call(NamedTuple):
    """One call of the control listener."""

    method: str
    path: str
    summary: str
    arguments: type
    run: Callable[[Any], Awaitable[Answer]]
