"""A plain fetch whose partitions are all quiet: it waits for one of them to change."""

import logging
from typing import Protocol

from broker.handlers.fetch import FetchHandler
from broker.handlers.plain_reading import Outcome
from broker.handlers.quiet_partitions import QuietPartitions
from broker.purgatory import DelayedOperation
from broker.request.context import RequestContext

log = logging.getLogger(__name__)


class Attempt(Protocol):
    """Answers if there is enough; with ``is_last`` in any case that is plain."""

    def __call__(self, *, is_last: bool) -> Outcome: ...


class WaitingFetch(DelayedOperation):
    """It waits under its connection's `QuietPartitions`, not under its partitions, which may be thousands."""

    __slots__ = ("_attempt", "_changes", "_context", "_frame", "_general", "_outcome", "_position", "_quiet")

    def __init__(
        self,
        frame: memoryview,
        position: int,
        context: RequestContext,
        quiet: QuietPartitions,
        attempt: Attempt,
        general: FetchHandler,
    ) -> None:
        super().__init__()
        self._frame = frame
        """A copy of its own: what it came in serves other requests."""
        self._position = position
        self._context = context
        self._general = general
        self._quiet = quiet
        self._changes = quiet.changes
        self._attempt = attempt
        self._outcome = Outcome.TOO_LITTLE

    def try_complete(self) -> bool:
        """Complete once a partition has records, or something that is not plain."""
        if self._changes == self._quiet.changes:
            return False
        self._changes = self._quiet.changes
        self._outcome = self._attempt(is_last=False)
        return self._outcome is not Outcome.TOO_LITTLE and self.complete()

    def on_complete(self) -> None:
        """Answer, if that has not been done: what is not plain is told at once, as by the general way."""
        if self._outcome is Outcome.TOO_LITTLE:
            self._outcome = self._attempt(is_last=True)
        if self._outcome is Outcome.NOT_PLAIN:
            self._general.answer_at_once(self._frame, self._position, self._context)
        self._let_go()

    def on_failure(self, error: Exception) -> None:
        """Answer with the error: whoever appended what it waited for must not suffer."""
        log.error("a waiting fetch failed: %s", error, exc_info=error)
        if not self._context.slot.is_filled:
            self._general.answer_failure(self._frame, self._position, self._context)
        self._let_go()

    def _let_go(self) -> None:
        """A client without a session names a thousand partitions in each request."""
        del self._attempt, self._frame
