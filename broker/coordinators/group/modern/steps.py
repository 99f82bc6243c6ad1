"""Step: what a request to a group of the newer protocols leads to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from broker.coordinators.group.records import GroupResult
from broker.coordinators.write_errors import client_error_of
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord

Aftermath: TypeAlias = Callable[[bool], None]
"""What is to be done once the records are replayed (True) or have failed (False)."""


class Step(NamedTuple):
    """The records of a request, and what follows from them."""

    records: list[GroupRecord]
    aftermath: Sequence[Aftermath] = ()

    def result(self, answer: Callable[[ErrorCode], None]) -> GroupResult | None:
        """What is to be written. ``answer`` gets NONE, or the client's error of a failed write; at once, if there is
        nothing to write."""

        def then(error: ErrorCode) -> None:
            for after in self.aftermath:
                after(error is ErrorCode.NONE)
            answer(client_error_of(error))

        if self.records:
            return GroupResult(self.records, then)
        then(ErrorCode.NONE)
        return None


def nobody(_: ErrorCode) -> None:
    """Nobody has asked."""
