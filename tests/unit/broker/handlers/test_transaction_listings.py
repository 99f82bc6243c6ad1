"""DescribeTransactions and ListTransactions through the codec."""

from collections import deque
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from broker.handlers import transaction_listings
from broker.handlers.transaction_listings import CHARACTERS_A_JOB, TransactionListingsHandler
from broker.request.context import RequestContext
from broker.runtime.worker_thread import WorkerThread
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from tests.support.broker import InProcessBroker
from tests.unit.broker.handlers.transactional_client import TransactionalClient, with_coordinators


@pytest.fixture
def three(broker: InProcessBroker) -> dict[str, TransactionalClient]:
    """Three producers: ``empty`` has had no transaction, ``open`` has one, ``done`` has committed one."""
    with_coordinators(broker)
    broker.create_topic("orders", partitions=2)
    clients = {name: TransactionalClient(broker, name).begun() for name in ("empty", "open", "done")}
    for name in ("open", "done"):
        assert clients[name].add(3, ("orders", [1, 0])) == [E.NONE, E.NONE]
    assert clients["done"].end(4, commit=True) is E.NONE
    broker.wait_until(lambda: described(broker, "done")[0].transaction_state == "CompleteCommit")
    return clients


def described(broker: InProcessBroker, *transactional_ids: str) -> list[Any]:
    answer = broker.ask(DescribeTransactionsRequest(transactional_ids=list(transactional_ids)), 0)
    states: list[Any] = answer.transaction_states
    return states


def listed(broker: InProcessBroker, version: int = 2, **filters: Any) -> list[str]:
    request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})
    answer = broker.ask(request, version)
    assert answer.error_code == E.NONE
    return sorted(state.transactional_id for state in answer.transaction_states)


@serves(DescribeTransactionsRequest, versions=[0])
def test_an_id_is_described_with_its_open_transaction(
    broker: InProcessBroker, three: dict[str, TransactionalClient]
) -> None:
    [state] = described(broker, "open")
    client = three["open"]
    assert (state.error_code, state.transaction_state) == (E.NONE, "Ongoing")
    assert (state.producer_id, state.producer_epoch) == (client.producer_id, client.producer_epoch)
    assert (state.transaction_timeout_ms, state.transaction_start_time_ms) == (60_000, broker.clock.now_ms())
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("orders", [0, 1])]
    empty, done = described(broker, "empty", "done")
    assert (empty.transaction_state, empty.transaction_start_time_ms, empty.topics) == ("Empty", -1, [])
    assert (done.transaction_state, done.topics) == ("CompleteCommit", [])


@serves(DescribeTransactionsRequest, E.NOT_COORDINATOR, E.INVALID_REQUEST, E.TRANSACTIONAL_ID_NOT_FOUND, versions=[0])
def test_ids_that_cannot_be_described(broker: InProcessBroker) -> None:
    assert [state.error_code for state in described(broker, "shop", "")] == [E.NOT_COORDINATOR, E.INVALID_REQUEST]
    with_coordinators(broker)
    [state] = described(broker, "shop")
    assert (state.error_code, state.transaction_state) == (E.TRANSACTIONAL_ID_NOT_FOUND, "")


@serves(ListTransactionsRequest)
@every_version(ListTransactionsRequest)
def test_ids_are_listed_by_state_and_producer(
    broker: InProcessBroker, three: dict[str, TransactionalClient], version: int
) -> None:
    assert listed(broker, version) == ["done", "empty", "open"]
    assert listed(broker, version, state_filters=["Ongoing", "Empty"]) == ["empty", "open"]
    assert listed(broker, version, producer_id_filters=[three["done"].producer_id, 999]) == ["done"]
    assert listed(broker, version, state_filters=["Empty"], producer_id_filters=[three["done"].producer_id]) == []


def test_states_that_there_are_not_are_named(broker: InProcessBroker, three: dict[str, TransactionalClient]) -> None:
    request = ListTransactionsRequest(
        state_filters=["Ongoing", "ongoing", "Strange", "Strange"], producer_id_filters=[]
    )
    answer = broker.ask(request, 0)
    assert [state.transactional_id for state in answer.transaction_states] == ["open"]
    assert answer.unknown_state_filters == ["ongoing", "Strange"]


@every_version(ListTransactionsRequest, since=1)
def test_ids_are_listed_by_the_duration_of_their_transactions(
    broker: InProcessBroker, three: dict[str, TransactionalClient], version: int
) -> None:
    broker.advance(5_000)
    assert listed(broker, version, duration_filter=4_000) == ["done", "empty", "open"]
    assert listed(broker, version, duration_filter=6_000) == ["empty"], "it has no start, so any duration is over"


def test_ids_are_listed_by_a_pattern(broker: InProcessBroker, three: dict[str, TransactionalClient]) -> None:
    for pattern in ("op.*", r"\Qopen\E", "(?<name>open)", "(?i)OPEN"):
        assert listed(broker, transactional_id_pattern=pattern) == ["open"]
    assert listed(broker, transactional_id_pattern="") == ["done", "empty", "open"]
    assert listed(broker, transactional_id_pattern="op") == [], "the whole id must match"


def test_a_pattern_is_compiled_and_matched_in_a_thread_in_jobs(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_coordinators(broker)
    ids = [f"{number}-{'x' * (CHARACTERS_A_JOB // 3)}" for number in range(7)]
    for transactional_id in ids:
        TransactionalClient(broker, transactional_id).begun()
    submitted: list[str] = []
    submit = WorkerThread.submit

    def watched(worker: WorkerThread, *order: Any) -> None:
        submitted.append(worker._name)
        submit(worker, *order)

    monkeypatch.setattr(WorkerThread, "submit", watched)
    assert listed(broker, transactional_id_pattern="[0-5]-x*") == ids[:6]
    assert submitted == ["housekeeper"] * 4, "the pattern, and three jobs of up to three ids each"


class HeldWorker:
    """A `WorkerThread` whose jobs run when the test says so."""

    def __init__(self) -> None:
        self.orders: deque[tuple[Callable[[], Any], Callable[[Any], None], Callable[[Exception], None]]] = deque()

    def submit(self, *order: Any) -> None:
        self.orders.append(order)  # type: ignore[arg-type]

    def work(self) -> None:
        job, done, _ = self.orders.popleft()
        done(job())


def test_a_broker_that_stops_begins_no_more_jobs(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_listings, "CHARACTERS_A_JOB", 1)
    with_coordinators(broker)
    for transactional_id in ("a", "b", "c"):
        TransactionalClient(broker, transactional_id).begun()
    coordinator = broker.server.components.transaction_coordinator
    worker = HeldWorker()
    handler = TransactionListingsHandler(coordinator.transactions, broker.clock, worker)  # type: ignore[arg-type]
    context = Mock(RequestContext)
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=".")
    assert handler.list_transactions(request, context) is None
    worker.work()
    worker.work()
    coordinator.stop()
    worker.work()
    assert not worker.orders, "the third id is not matched"
    context.respond.assert_not_called()
    context.refuse.assert_called_once_with(request, E.COORDINATOR_NOT_AVAILABLE, "this node stops")


def test_a_pattern_that_could_be_tried_in_many_ways_costs_no_more_than_another(broker: InProcessBroker) -> None:
    """Trying all ways in which this pattern may split 10,000 letters would not end."""
    with_coordinators(broker)
    TransactionalClient(broker, "a" * 10_000 + "!").begun()
    assert listed(broker, transactional_id_pattern="(a+)+$") == []
    assert listed(broker, transactional_id_pattern="(a+)+!") == ["a" * 10_000 + "!"]


@serves(ListTransactionsRequest, E.INVALID_REGULAR_EXPRESSION, versions=[2])
@pytest.mark.parametrize("pattern", ["(shop", "*", "[z-a]", "(?=shop)", r"(a)\1", "(" * 30_000])
def test_a_pattern_must_be_a_regular_expression(broker: InProcessBroker, pattern: str) -> None:
    with_coordinators(broker)
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
    assert broker.ask(request, 2).error_code == E.INVALID_REGULAR_EXPRESSION
