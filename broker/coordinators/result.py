"""CoordinatorResult: the records that a step of a shard wants written, and the answer once they are."""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from protocol.errors import ErrorCode

Record = TypeVar("Record")

Told = Callable[[ErrorCode], None]
"""Called once: with NONE when the records are acknowledged and replayed, else with the client's error code."""


class CoordinatorResult(NamedTuple, Generic[Record]):
    """Records to be written in one batch. They change no state before they are acknowledged: then each record is given
    to ``replay``, in the order of the log, and `then` gives the caller's answer. If the batch cannot be written, none
    of its records is replayed."""

    records: Sequence[Record]
    then: Told
