"""CoordinatorResult: the records that a step of a shard wants written, and the answer once they are."""

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from protocol.errors import ErrorCode

Record = TypeVar("Record")
Outcome = TypeVar("Outcome")

Completion = Callable[[ErrorCode], None]
"""Called once: with NONE after the records are acknowledged and replayed, else with the error of the failed write.

NOT_COORDINATOR: the shard was unloaded meanwhile. REQUEST_TIMED_OUT: the records are in the log and not acknowledged in
time. They may yet be acknowledged and replayed, and the completion is not told of it. Only a result without
`CoordinatorResult.late` gets it.
"""


def once(then: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
    """``then`` for a request that may be answered before the outcome of its write is known: only the first call
    counts."""
    is_called = False

    def call(outcome: Outcome) -> None:
        nonlocal is_called
        if not is_called:
            is_called = True
            then(outcome)

    return call


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer: an older epoch of the same producer id is fenced."""

    producer_id: int
    producer_epoch: int


FIRST_EPOCH: Final = 0
"""The epoch of a new producer id."""


class CoordinatorResult(NamedTuple, Generic[Record]):
    """Records to be written in one batch. They change no state before they are acknowledged: then each record is given
    to ``replay``, in the order of the log, and `then` gives the caller's answer. If the batch cannot be written, none
    of its records is replayed."""

    records: Sequence[Record]
    then: Completion
    transaction: ProducerIdAndEpoch | None = None
    """The producer in whose open transaction the records are written: they wait for the marker that ends it."""
    late: Callable[[], None] | None = None
    """Called each time that the records have waited for their acknowledgement as long as a client waits. `then` is
    called once it is known whether they are acknowledged; of a result without ``late``, it gets REQUEST_TIMED_OUT."""
