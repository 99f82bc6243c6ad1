"""Step: what a request to a group of the newer protocols leads to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from broker.coordinators.group.records import GroupResult
from broker.coordinators.result import once
from broker.coordinators.write_errors import client_error_of
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord

OnWritten: TypeAlias = Callable[[bool], None]
"""What is to be done once the records are replayed (True) or have failed (False).

It is called with the outcome. If that is not known in time, the client has been answered with an error before, and the
records may be replayed all the same: what depends on what the client knows is done with its answer.
"""


class Step(NamedTuple):
    """The records of a request, and what follows from them."""

    records: list[GroupRecord]
    on_written: Sequence[OnWritten] = ()

    def result(self, answer: Callable[[ErrorCode], None]) -> GroupResult | None:
        """What is to be written. ``answer`` gets NONE, or the client's error of a failed or late write; at once, if
        there is nothing to write."""
        if not self.records:
            for after in self.on_written:
                after(True)
            answer(ErrorCode.NONE)
            return None
        answer_once = once(answer)

        def then(error: ErrorCode) -> None:
            for after in self.on_written:
                after(error is ErrorCode.NONE)
            answer_once(client_error_of(error))

        return GroupResult(self.records, then, late=partial(answer_once, client_error_of(ErrorCode.REQUEST_TIMED_OUT)))


def nobody(_: ErrorCode) -> None:
    """Nobody has asked."""
