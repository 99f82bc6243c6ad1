"""A fetch of the fast path that has found no records: it waits for one of its partitions to change."""

import logging
from collections.abc import Callable
from typing import Protocol

from broker.fetch.fast_read import MUST_WAIT, SLOW_PATH, Outcome
from broker.fetch.read_rules import FetchRequirements
from broker.request.context import RequestContext
from broker.runtime.purgatory import DelayedOperation

log = logging.getLogger(__name__)


class SlowPath(Protocol):
    """Answers any Fetch request, from its bytes."""

    def answer_at_once(self, frame: memoryview, position: int, context: RequestContext) -> None:
        """Answer a request that has waited, whose body begins at ``position``, with what there is."""

    def answer_failure(self, frame: memoryview, position: int, context: RequestContext) -> None:
        """Answer a request that has waited, whose body begins at ``position``, with UNKNOWN_SERVER_ERROR."""


Attempt = Callable[[FetchRequirements], Outcome]
"""Answers a request if there is enough for its requirements."""


class WaitingFetch(DelayedOperation):
    """A request that the fast path tries again at every event. If the slow path must answer then, it does at once."""

    __slots__ = ("_attempt", "_context", "_frame", "_outcome", "_position", "_requirements", "_slow_path")

    def __init__(
        self,
        requirements: FetchRequirements,
        attempt: Attempt,
        frame: memoryview,
        position: int,
        context: RequestContext,
        slow_path: SlowPath,
    ) -> None:
        super().__init__()
        self._requirements = requirements
        self._attempt = attempt
        self._frame = frame
        """A copy of the request: the buffer that it came in serves other requests."""
        self._position = position
        self._context = context
        self._slow_path = slow_path
        self._outcome = MUST_WAIT

    def try_complete(self) -> bool:
        """Complete once a partition has records, or something that only the slow path can answer."""
        self._outcome = self._attempt(self._requirements)
        return self._outcome is not MUST_WAIT and self.complete()

    def on_complete(self) -> None:
        """Answer, if `try_complete` has not."""
        if self._outcome is MUST_WAIT:
            self._outcome = self._attempt(self._requirements.without_wait())
        if self._outcome is SLOW_PATH:
            self._slow_path.answer_at_once(self._frame, self._position, self._context)
        self._let_go()

    def on_failure(self, error: Exception) -> None:
        """Answer with the error: raised again, it would reach the append that the fetch has waited for."""
        log.error("a waiting fetch failed: %s", error, exc_info=error)
        if not self._context.slot.is_filled:
            self._slow_path.answer_failure(self._frame, self._position, self._context)
        self._let_go()

    def _let_go(self) -> None:
        """Free what is large: a client without a session may name a thousand partitions in each request."""
        del self._attempt, self._frame
