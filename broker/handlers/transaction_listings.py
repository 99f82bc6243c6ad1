"""DescribeTransactions and ListTransactions (API keys 65 and 66; KIP-664, KIP-994, KIP-1152)."""

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import compress
from typing import Final

from broker.coordinators.transaction.transaction import STATE_NAMES, Transaction
from broker.coordinators.transaction_coordinator import Transactions
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    Fault,
    InvalidRegularExpression,
    InvalidRequest,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    error_code_of,
)
from broker.runtime.clock import Clock
from broker.runtime.linear_regex import InvalidPattern, LinearRegex
from broker.runtime.worker_thread import WorkerThread
from protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

log = logging.getLogger(__name__)

CHARACTERS_A_JOB: Final = 1 << 16
"""Characters of ids that are matched in one job of the thread: other jobs wait for no more than that."""

_STATES: Final = frozenset(STATE_NAMES.values())

Described = DescribeTransactionsResponse.TransactionState
Listed = ListTransactionsResponse.TransactionState


class TransactionListingsHandler:
    """Reads the state of transactional ids."""

    def __init__(self, transactions: Transactions, clock: Clock, worker: WorkerThread) -> None:
        """``worker`` matches patterns: a pattern with much to try takes its time."""
        self._transactions = transactions
        self._clock = clock
        self._worker = worker

    def describe_transactions(
        self, request: DescribeTransactionsRequest, context: RequestContext
    ) -> DescribeTransactionsResponse:
        """Describe each id, or say why that cannot be done."""
        return DescribeTransactionsResponse(
            transaction_states=[self._describe(each, context) for each in request.transactional_ids]
        )

    def _describe(self, transactional_id: str, context: RequestContext) -> Described:
        try:
            if not transactional_id:
                raise InvalidRequest("a transactional id is not empty")
            if not context.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
                raise TransactionalIdAuthorizationFailed(f"{context.session.principal} may not see {transactional_id}")
            found = self._transactions.of(transactional_id).shard.describe(transactional_id)
            if found is None:
                raise TransactionalIdNotFound(f"no producer has the transactional id {transactional_id!r}")
        except Fault as fault:
            return Described(
                error_code=fault.code,
                transactional_id=transactional_id,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=0,
                producer_epoch=0,
                topics=[],
            )
        topics: dict[str, list[int]] = {}
        for topic, partition in found.partitions:
            if context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic):
                topics.setdefault(topic, []).append(partition)
        return Described(
            transactional_id=transactional_id,
            transaction_state=found.state,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.started_ms,
            producer_id=found.producer.producer_id,
            producer_epoch=found.producer.producer_epoch,
            topics=[Described.Topic(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
        )

    def list_transactions(
        self, request: ListTransactionsRequest, context: RequestContext
    ) -> ListTransactionsResponse | None:
        """List the ids that every filter of the request lets through, and the filters' names that are no state.

        Raises Fault while partitions are loading. With a pattern the answer comes later.
        """
        states = frozenset(request.state_filters)
        producer_ids = frozenset(request.producer_id_filters)
        now_ms = self._clock.now_ms()
        found = [
            Listed(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=STATE_NAMES[transaction.status],
            )
            for coordinator in self._transactions.all()
            for transaction in coordinator.shard.image.by_id.values()
            if _is_wanted(transaction, states, producer_ids, now_ms, request.duration_filter)
            and context.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
        ]
        unknown = dict.fromkeys(state for state in request.state_filters if state not in _STATES)
        answer = ListTransactionsResponse(unknown_state_filters=list(unknown), transaction_states=found)
        pattern = request.transactional_id_pattern
        if not pattern:
            return answer
        answer.transaction_states = []

        def refuse(error: Exception) -> None:
            log.info("Refused ListTransactions of %s: %s", context.peer, error)
            context.refuse(request, error_code_of(error), str(error))

        def compiled(regex: LinearRegex) -> None:
            self._match(regex, deque(found), answer, context.respond, refuse)

        self._worker.submit(partial(_compile, pattern), compiled, refuse)
        return None

    def _match(
        self,
        regex: LinearRegex,
        left: deque[Listed],
        answer: ListTransactionsResponse,
        respond: Callable[[ListTransactionsResponse], None],
        refuse: Callable[[Exception], None],
    ) -> None:
        """Add to the answer what the pattern matches of ``left``, job by job, and respond."""
        if not left:
            respond(answer)
            return
        try:
            self._transactions.all()
        except Fault as fault:
            # A broker that stops begins no more jobs.
            refuse(fault)
            return
        taken: list[Listed] = []
        characters = 0
        while left and characters < CHARACTERS_A_JOB:
            taken.append(left.popleft())
            characters += len(taken[-1].transactional_id)

        def matched(are_matches: Sequence[bool]) -> None:
            answer.transaction_states.extend(compress(taken, are_matches))
            self._match(regex, left, answer, respond, refuse)

        ids = [state.transactional_id for state in taken]
        self._worker.submit(lambda: [regex.matches(transactional_id) for transactional_id in ids], matched, refuse)


def _is_wanted(
    transaction: Transaction,
    states: Collection[str],
    producer_ids: Collection[int],
    now_ms: int,
    least_duration_ms: int,
) -> bool:
    """Whether the filters let an id through; an id without a transaction has lasted longer than any filter asks for."""
    return (
        (not states or STATE_NAMES[transaction.status] in states)
        and (not producer_ids or transaction.producer_id in producer_ids)
        and (least_duration_ms < 0 or now_ms - transaction.started_ms > least_duration_ms)
    )


def _compile(pattern: str) -> LinearRegex:
    """Raises `InvalidRegularExpression`."""
    try:
        return LinearRegex(pattern)
    except InvalidPattern as error:
        raise InvalidRegularExpression(str(error)) from None
