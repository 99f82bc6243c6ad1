"""A plain fetch that has found nothing: it waits for one of its partitions to change."""

import logging
from collections.abc import Callable
from typing import Protocol

from broker.fetch.fast_read import Outcome
from broker.request.context import RequestContext
from broker.runtime.purgatory import DelayedOperation
from protocol.fetch_layout import PlainFetch

log = logging.getLogger(__name__)


class SlowPath(Protocol):
    """Answers any Fetch request, from its bytes."""

    def answer_at_once(self, frame: memoryview, position: int, context: RequestContext) -> None:
        """Answer a request that has waited, whose body begins at ``position``, with what there is."""

    def answer_failure(self, frame: memoryview, position: int, context: RequestContext) -> None:
        """Answer a request that has waited, whose body begins at ``position``, with UNKNOWN_SERVER_ERROR."""


Attempt = Callable[[PlainFetch], Outcome]
"""Answers a request if there is enough, or if it will not wait."""


class WaitingFetch(DelayedOperation):
    """It has just been tried. What is not plain when it is tried again, the general way answers at once."""

    __slots__ = ("_attempt", "_context", "_frame", "_outcome", "_position", "_request", "_slow_path")

    def __init__(
        self,
        request: PlainFetch,
        attempt: Attempt,
        frame: memoryview,
        position: int,
        context: RequestContext,
        slow_path: SlowPath,
    ) -> None:
        super().__init__()
        self._request = request
        self._attempt = attempt
        self._frame = frame
        """A copy of its own: what it came in serves other requests."""
        self._position = position
        self._context = context
        self._slow_path = slow_path
        self._outcome = Outcome.TOO_LITTLE

    def try_complete(self) -> bool:
        """Complete once a partition has records, or something that is not plain."""
        self._outcome = self._attempt(self._request)
        return self._outcome is not Outcome.TOO_LITTLE and self.complete()

    def on_complete(self) -> None:
        """Answer, if that has not been done."""
        if self._outcome is Outcome.TOO_LITTLE:
            self._outcome = self._attempt(self._request._replace(max_wait_ms=0))
        if self._outcome is Outcome.NOT_PLAIN:
            self._slow_path.answer_at_once(self._frame, self._position, self._context)
        self._let_go()

    def on_failure(self, error: Exception) -> None:
        """Answer with the error: whoever appended what it waited for must not suffer."""
        log.error("a waiting fetch failed: %s", error, exc_info=error)
        if not self._context.slot.is_filled:
            self._slow_path.answer_failure(self._frame, self._position, self._context)
        self._let_go()

    def _let_go(self) -> None:
        """A client without a session names a thousand partitions in each request."""
        del self._attempt, self._frame
