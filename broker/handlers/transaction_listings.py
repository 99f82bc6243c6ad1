"""DescribeTransactions and ListTransactions (API keys 65 and 66; KIP-664, KIP-994, KIP-1152)."""

import re
from collections.abc import Collection
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
)
from broker.runtime.clock import Clock
from protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

MOST_PATTERN_CHARACTERS: Final = 1_000

_STATES: Final = frozenset(STATE_NAMES.values())

_QUOTED: Final = re.compile(r"\\Q(?P<text>.*?)(?:\\E|\Z)", re.DOTALL)

Described = DescribeTransactionsResponse.TransactionState


class TransactionListingsHandler:
    """Reads the state of transactional ids."""

    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

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

    def list_transactions(self, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
        """List the ids that every filter of the request lets through, and the filters' names that are no state.

        Raises `InvalidRegularExpression`, and Fault while partitions are loading.
        """
        pattern = _compiled(request.transactional_id_pattern or "")
        states = frozenset(request.state_filters)
        producer_ids = frozenset(request.producer_id_filters)
        now_ms = self._clock.now_ms()
        found = [
            ListTransactionsResponse.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=STATE_NAMES[transaction.status],
            )
            for coordinator in self._transactions.all()
            for transaction in coordinator.shard.image.by_id.values()
            if _is_wanted(transaction, states, producer_ids, now_ms, request.duration_filter)
            and (pattern is None or pattern.fullmatch(transaction.transactional_id))
            and context.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
        ]
        unknown = dict.fromkeys(state for state in request.state_filters if state not in _STATES)
        return ListTransactionsResponse(unknown_state_filters=list(unknown), transaction_states=found)


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


def _compiled(pattern: str) -> re.Pattern[str] | None:
    """The pattern; None if every id matches. Raises `InvalidRegularExpression`."""
    if not pattern:
        return None
    if len(pattern) > MOST_PATTERN_CHARACTERS:
        raise InvalidRegularExpression(f"a pattern of {len(pattern)} characters; at most {MOST_PATTERN_CHARACTERS}")
    try:
        return re.compile(_as_python(pattern))
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidRegularExpression(f"{pattern!r}: {error}") from None


def _as_python(pattern: str) -> str:
    """The pattern in Python's spelling: Java names groups and quotes text in another way."""
    quoted = _QUOTED.sub(lambda match: re.escape(match["text"]), pattern)
    return quoted.replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!")
