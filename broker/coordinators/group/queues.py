"""GroupQueues: the requests that wait while membership records of their group are in flight.

A state machine decides on the replayed state, and a record that is being written is not in it yet. So a request that
may write membership records waits while records of its group are in flight, and is decided once they are replayed or
have failed: on one node in the same turn of the loop or in the next.

    alone       the usual way: nothing of the group is in flight while the request is decided, and nothing else is
                written until its records are replayed
    in company  the rebalances of classic groups: several of their records may be in flight, since a new round
                supersedes the round that wrote a record (`rebalance`). They wait only for records written alone.

Offset commits and reads do not wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.coordinators.group.records import GroupResult
from broker.coordinators.result import once
from broker.coordinators.write_errors import client_error_of
from protocol.errors import ErrorCode

MOST_WAITING: Final = 1_000
"""How many requests of a group may wait. A further request is answered with COORDINATOR_NOT_AVAILABLE, after which
clients try again."""

Decision = Callable[[], GroupResult | None]
"""Looks at the state of now and says what is to be written. None: nothing, and the request is answered or parked."""
Refusal = Callable[[ErrorCode], None]
"""Answers the request with an error instead of its decision."""


def always() -> bool:
    """The request is decided alone, whatever has become of its group meanwhile."""
    return True


class _Waiting(NamedTuple):
    decision: Decision
    refusal: Refusal | None
    """None for an alarm's decision, which waits as long as it has to."""
    alone: Callable[[], bool]


@dataclass(slots=True)
class _Queue:
    """Exists while something of the group is in flight."""

    in_flight: int = 0
    is_alone: bool = False
    """What is in flight was decided alone."""
    waiting: deque[_Waiting] = field(default_factory=deque)
    is_draining: bool = False
    """Waiting requests are being decided. A write that fails at once must not begin that again inside itself."""

    def admits(self, *, alone: bool) -> bool:
        return self.in_flight == 0 or not (alone or self.is_alone)


class GroupQueues:
    """The queues of the groups of one partition."""

    def __init__(self, submit: Callable[[GroupResult], None]) -> None:
        """``submit`` writes a result."""
        self._submit = submit
        self._queues: dict[str, _Queue] = {}

    def is_busy(self, group_id: str) -> bool:
        """Whether records of the group are in flight."""
        return group_id in self._queues

    def count_waiting(self, group_id: str) -> int:
        """How many requests and alarms wait until records of the group are replayed."""
        queue = self._queues.get(group_id)
        return 0 if queue is None else len(queue.waiting)

    def decide(
        self, group_id: str, decision: Decision, refusal: Refusal, *, alone: Callable[[], bool] = always
    ) -> GroupResult | None:
        """Decide a request as soon as the group's queue allows it. Returns what is to be written now, if anything.

        ``refusal`` is called instead where too many requests wait, where what is in flight takes too long, and when
        the partition is unloaded. ``alone`` is asked right before the decision.
        """
        return self._decide(group_id, _Waiting(decision, refusal, alone))

    def decide_unasked(
        self,
        group_id: str,
        decision: Decision,
        *,
        refusal: Refusal | None = None,
        alone: Callable[[], bool] = always,
    ) -> None:
        """The same for a decision that no request has asked for now, such as an alarm's. Its records are submitted.
        Without a ``refusal`` the decision waits as long as it has to."""
        result = self._decide(group_id, _Waiting(decision, refusal, alone))
        if result is not None:
            self._submit(result)

    def _decide(self, group_id: str, asked: _Waiting) -> GroupResult | None:
        queue = self._queues.get(group_id)
        alone = asked.alone()
        if queue is None or (not queue.waiting and not queue.is_draining and queue.admits(alone=alone)):
            return self.watched(group_id, asked.decision(), alone=alone)
        if asked.refusal is not None and len(queue.waiting) >= MOST_WAITING:
            asked.refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            queue.waiting.append(asked)
        return None

    def submit(self, group_id: str, result: GroupResult | None) -> None:
        """Write what follows from other records of the group, in company."""
        watched = self.watched(group_id, result, alone=False)
        if watched is not None:
            self._submit(watched)

    def watched(self, group_id: str, result: GroupResult | None, *, alone: bool) -> GroupResult | None:
        """The result with the group's queue closed until it is replayed or has failed."""
        return None if result is None else self.watched_of_all((group_id,), result, alone=alone)

    def watched_of_all(self, group_ids: Iterable[str], result: GroupResult, *, alone: bool) -> GroupResult:
        """The same for a result with records of several groups.

        The queues stay closed while the records are late. ``then`` of a result without ``late`` gets REQUEST_TIMED_OUT
        when they are, and is not told of the outcome.
        """
        if not result.records:
            return result
        closed = tuple(group_ids)
        for group_id in closed:
            queue = self._queues.setdefault(group_id, _Queue())
            queue.in_flight += 1
            queue.is_alone = queue.is_alone or alone
        answer = once(result.then)

        def then(error: ErrorCode) -> None:
            answer(error)
            for group_id in closed:
                self._settled(group_id)

        def late() -> None:
            if result.late is not None:
                result.late()
            else:
                answer(ErrorCode.REQUEST_TIMED_OUT)
            for group_id in closed:
                self._refuse_waiting(group_id, client_error_of(ErrorCode.REQUEST_TIMED_OUT))

        return result._replace(then=then, late=late)

    def unload(self, code: ErrorCode) -> None:
        """The shard gets no more requests: those that wait are answered with ``code``."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            waiting, queue.waiting = queue.waiting, deque()
            for one in waiting:
                if one.refusal is not None:
                    one.refusal(code)

    def _settled(self, group_id: str) -> None:
        queue = self._queues.get(group_id)
        if queue is None:
            return
        queue.in_flight -= 1
        if queue.in_flight == 0:
            queue.is_alone = False
        if not queue.is_draining:
            queue.is_draining = True
            self._drain(group_id, queue)
            queue.is_draining = False
        if queue.in_flight == 0 and not queue.waiting and self._queues.get(group_id) is queue:
            del self._queues[group_id]

    def _drain(self, group_id: str, queue: _Queue) -> None:
        while queue.waiting and queue.admits(alone=(alone := queue.waiting[0].alone())):
            result = self.watched(group_id, queue.waiting.popleft().decision(), alone=alone)
            if result is not None:
                self._submit(result)

    def _refuse_waiting(self, group_id: str, code: ErrorCode) -> None:
        queue = self._queues.get(group_id)
        if queue is None:
            return
        waiting, queue.waiting = queue.waiting, deque()
        queue.waiting.extend(one for one in waiting if one.refusal is None)
        for one in waiting:
            if one.refusal is not None:
                one.refusal(code)
