"""Metrics of transactions: ids by state, ends, markers, verified partitions, and transactions that hang."""

from pathlib import Path

import pytest

from broker.replication.partition import Partition
from protocol.errors import ErrorCode as E
from protocol.messages.transactions import WriteTxnMarkersRequest
from storage.errors import DiskFull
from tests.support.broker import InProcessBroker, running_broker
from tests.support.leadership import OTHER, OURS, hand_over
from tests.support.metrics import now, scrape, shown, up
from tests.unit.broker.handlers.transactional_client import STATE, TransactionalClient, with_coordinators

MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
COORDINATOR = "kafka_server_transaction_coordinator_metrics"
VERIFIED = "kafka_server_addpartitionstotxnmanager"
LATE = "kafka_server_replicamanager_partitionswithlatetransactionscount"
OLDEST = "ottla_transaction_oldest_open_seconds"

MAX_TIMEOUT_MS = 900_000
LATE_AFTER_MS = MAX_TIMEOUT_MS + 300_000
VERIFIES, ADDS = 9, 12
"""Versions of Produce: whose partitions are verified, and which adds its partition."""


def ids(state: str) -> str:
    return f'ottla_transactional_ids{{state="{state}"}}'


def ended(outcome: str) -> str:
    return f'ottla_transactions_ended_total{{outcome="{outcome}"}}'


@pytest.fixture
def client(broker: InProcessBroker) -> TransactionalClient:
    """A producer with an identity, and two partitions that it may write to."""
    broker.create_topic("orders", partitions=2)
    with_coordinators(broker)
    return TransactionalClient(broker).begun()


# Transactions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("commit", "outcome", "state"), [(True, "committed", "CompleteCommit"), (False, "aborted", "CompleteAbort")]
)
def test_a_transaction_is_told_of_until_it_has_ended(
    broker: InProcessBroker, client: TransactionalClient, commit: bool, outcome: str, state: str
) -> None:
    with shown(broker, {ids("Empty"): now(0), ids("Ongoing"): now(1)}):
        assert client.add(3, ("orders", [0])) == [E.NONE]
    with shown(broker, {ids("Ongoing"): now(0), ids(state): now(1), ended(outcome): up(1)}):
        assert client.end(3, commit=commit) is E.NONE
        broker.settle()


def test_the_age_of_the_oldest_open_transaction_is_told(broker: InProcessBroker, client: TransactionalClient) -> None:
    assert scrape(broker)[OLDEST] == 0
    assert client.add(3, ("orders", [0])) == [E.NONE]
    broker.advance(7_000)
    second = TransactionalClient(broker, "second").begun()
    assert second.add(3, ("orders", [1])) == [E.NONE]
    broker.advance(1_500)
    assert scrape(broker)[OLDEST] == 8.5
    assert client.end(3, commit=True) is E.NONE
    assert scrape(broker)[OLDEST] == 1.5


def test_transactions_that_time_out_are_counted(broker: InProcessBroker, client: TransactionalClient) -> None:
    assert client.add(3, ("orders", [0])) == [E.NONE]
    with shown(broker, {"ottla_transactions_timed_out_total": up(1), ended("aborted"): up(1), ids("Ongoing"): now(0)}):
        broker.advance(70_000)
        broker.settle()


@pytest.mark.settings(transactional_id_expiration_ms=3_600_000)
def test_ids_that_expire_are_counted(broker: InProcessBroker, client: TransactionalClient) -> None:
    with shown(broker, {"ottla_transactional_ids_expired_total": up(1), ids("Empty"): now(0)}):
        broker.advance(2 * 3_600_000)
        broker.settle()


def test_ids_that_another_node_coordinates_are_not_told_of(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    with shown(broker, {ids("Empty"): now(0)}):
        hand_over(broker, STATE, OTHER)


def test_before_a_producer_has_asked_for_a_coordinator_there_are_no_transactions(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        page = scrape(broker)
    assert page[ids("Ongoing")] == page[OLDEST] == 0
    assert page[f"{COORDINATOR}_partition_load_time_max"] == 0


# Their markers --------------------------------------------------------------------------------------------------------


def test_markers_that_wait_for_a_leader_are_told_of(broker: InProcessBroker, client: TransactionalClient) -> None:
    assert client.add(3, ("orders", [0])) == [E.NONE]
    assert client.add(3, ("orders", [1])) == [E.NONE]
    hand_over(broker, "orders", OTHER)
    with shown(broker, {f"{MARKERS}_unknowndestinationqueuesize": now(1), ids("PrepareCommit"): now(1)}):
        assert client.end(3, commit=True) is E.NONE
        broker.settle()
    broker.advance(1_000)
    assert scrape(broker)[f"{MARKERS}_unknowndestinationqueuesize"] == 1
    hand_over(broker, "orders", OURS)
    with shown(broker, {f"{MARKERS}_unknowndestinationqueuesize": now(0), ids("CompleteCommit"): now(1)}):
        broker.advance(1_000)


def test_markers_that_another_coordinator_writes_do_not_wait_here(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    assert client.add(3, ("orders", [0])) == [E.NONE]
    hand_over(broker, "orders", OTHER)
    assert client.end(3, commit=True) is E.NONE
    with shown(broker, {f"{MARKERS}_unknowndestinationqueuesize": now(0)}):
        hand_over(broker, STATE, OTHER)


def test_transactions_whose_last_record_could_not_be_written_are_told_of(
    broker: InProcessBroker, client: TransactionalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.add(3, ("orders", [0])) == [E.NONE]
    hand_over(broker, "orders", OTHER)  # the markers wait while the disk fills up
    assert client.end(3, commit=True) is E.NONE
    hand_over(broker, "orders", OURS)
    check = Partition.check_append

    def full(partition: Partition, *, by_all: bool) -> None:
        if partition.topic_partition.topic == STATE:
            raise DiskFull("no space left on device")
        check(partition, by_all=by_all)

    with monkeypatch.context() as disk:
        disk.setattr(Partition, "check_append", full)
        with shown(broker, {f"{MARKERS}_logappendretryqueuesize": now(1)}):
            broker.advance(500)
    with shown(broker, {f"{MARKERS}_logappendretryqueuesize": now(0), ended("committed"): up(1)}):
        broker.advance(1_000)


# What leaders of partitions ask ---------------------------------------------------------------------------------------


def test_partitions_that_are_verified_are_counted_and_those_that_are_not_in_the_transaction(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    with shown(
        broker, {f"{VERIFIED}_verificationtimems_count": up(1), f"{VERIFIED}_verificationfailurerate_count": up(1)}
    ):
        assert client.produce(VERIFIES).error_code == E.INVALID_TXN_STATE
    assert client.add(3, ("orders", [0])) == [E.NONE]
    failed = scrape(broker)[f"{VERIFIED}_verificationfailurerate_count"]
    with shown(broker, {f"{VERIFIED}_verificationtimems_count": up(1)}):
        assert client.produce(VERIFIES).error_code == E.NONE
    assert client.produce(VERIFIES).error_code == E.NONE  # its transaction is open there: nothing is asked
    page = scrape(broker)
    assert page[f"{VERIFIED}_verificationtimems_count"] == 2
    assert page[f"{VERIFIED}_verificationfailurerate_count"] == failed


def test_a_batch_whose_partition_is_not_in_the_transaction_is_no_traffic_of_the_topic(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    produces = 'kafka_server_brokertopicmetrics_totalproducerequests_total{topic="orders"}'
    assert client.produce(VERIFIES).error_code == E.INVALID_TXN_STATE
    assert scrape(broker)[produces] == 0
    assert client.add(3, ("orders", [0])) == [E.NONE]
    with shown(broker, {produces: up(1)}):
        assert client.produce(VERIFIES).error_code == E.NONE


def test_partitions_that_are_added_are_counted_too(broker: InProcessBroker, client: TransactionalClient) -> None:
    with shown(broker, {f"{VERIFIED}_verificationtimems_count": up(1), ids("Ongoing"): now(1)}):
        assert client.produce(ADDS).error_code == E.NONE
    assert scrape(broker)[f"{VERIFIED}_verificationfailurerate_count"] == 0


def test_a_coordinator_that_is_elsewhere_has_verified_nothing(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    hand_over(broker, STATE, OTHER)
    for version in (VERIFIES, ADDS):
        with shown(broker, {f"{VERIFIED}_verificationfailurerate_count": up(1)}):
            assert client.produce(version).error_code == E.NOT_ENOUGH_REPLICAS


@pytest.mark.settings(add_partitions_to_txn_retry_backoff_max_ms=400)
def test_how_long_the_answer_takes_is_told_for_some_minutes(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    assert client.add(3, ("orders", [0])) == [E.NONE]
    hand_over(broker, "orders", OTHER)
    assert client.end(5, commit=True) is E.NONE  # the marker cannot be written, so the id does not settle
    slowest = f'{VERIFIED}_verificationtimems{{quantile="0.999"}}'
    verifier = broker.server.components.transaction_coordinator
    answers: list[object] = []
    with shown(broker, {slowest: up(), f"{VERIFIED}_verificationfailurerate_count": up(1)}):
        partition = broker.server.components.replicas.partition("orders", 1).topic_partition
        verifier.add("shop", client.producer_id, client.producer_epoch, [partition], answers.append)
        assert not answers
        broker.advance(400)
    assert answers == [[E.CONCURRENT_TRANSACTIONS]]
    assert scrape(broker)[slowest] == pytest.approx(400, rel=0.13)
    broker.advance(60_000)
    broker.advance(60_000)
    assert scrape(broker)[slowest] == 0
    assert scrape(broker)[f"{VERIFIED}_verificationtimems_count"] == 1


# The partitions that hold them ----------------------------------------------------------------------------------------


def test_how_long_loading_takes_is_told(broker: InProcessBroker, client: TransactionalClient) -> None:
    times = broker.server.components.transaction_coordinator.transactions.load_times
    assert sum(times.recent()) == 1
    broker.advance(60_000)
    broker.advance(60_000)  # what came with the topic is forgotten
    times.record(1_000)
    times.record(7_000)
    page = scrape(broker)
    assert page[f"{COORDINATOR}_partition_load_time_max"] == pytest.approx(7, rel=0.13)
    assert page[f"{COORDINATOR}_partition_load_time_avg"] == pytest.approx(4, rel=0.13)


# Transactions that hang -----------------------------------------------------------------------------------------------


@pytest.mark.settings(transaction_partition_verification_enable=False)
def test_a_partition_with_a_transaction_that_no_coordinator_ends_is_counted(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    assert client.produce(VERIFIES).error_code == E.NONE  # as a late batch does it: the coordinator does not know of it
    assert client.produce(VERIFIES, partition=1).error_code == E.NONE
    broker.advance(LATE_AFTER_MS)
    assert scrape(broker)[LATE] == 0
    with shown(broker, {LATE: now(2)}):
        broker.advance(1)
    with shown(broker, {LATE: now(1)}):
        broker.ask(WriteTxnMarkersRequest(markers=[client.marker(commit=False)]), 1)
    with shown(broker, {LATE: now(0)}):
        hand_over(broker, "orders", OTHER, index=1)


def test_a_transaction_that_its_coordinator_ends_is_never_late(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    assert client.produce(ADDS).error_code == E.NONE
    broker.advance(70_000)
    broker.advance(LATE_AFTER_MS)
    assert scrape(broker)[LATE] == 0
