"""What a step of a coordinator's state machine wants written, and what follows."""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from protocol.errors import ErrorCode

Record = TypeVar("Record")

Told = Callable[[ErrorCode], None]
"""Called once: with NONE when the records stand and have been replayed, else with what to tell the client."""


class CoordinatorResult(NamedTuple, Generic[Record]):
    """Records to be written in one batch. They change nothing before they stand: then each is given to ``replay``, in
    the order of the log, and `then` gives the answer that belongs to them. Where they cannot be written, nothing of
    them is replayed."""

    records: Sequence[Record]
    then: Told
