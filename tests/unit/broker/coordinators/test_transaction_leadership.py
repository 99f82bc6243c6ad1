"""Another node leads a partition of ``__transaction_state`` for a while: its transactions are unloaded, and loaded
again."""

import gc
import weakref

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.transactions import (
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
)
from storage.batch.markers import Marker, read_marker
from storage.batch.record_batch import read_header
from tests.support.broker import Client, InProcessBroker
from tests.support.leadership import OTHER, OURS, follower_fetches, hand_over, replicate
from tests.unit.broker.handlers.transactional_client import OFFSETS, STATE, TransactionalClient, with_coordinators


@pytest.fixture
def client(broker: InProcessBroker) -> TransactionalClient:
    """A producer whose transaction has written a record into ``orders-0``."""
    broker.create_topic("orders", partitions=2)
    with_coordinators(broker)
    client = TransactionalClient(broker).begun()
    assert client.add(3, ("orders", [0])) == [E.NONE]
    assert client.produce(9).error_code == E.NONE
    return client


def goes(broker: InProcessBroker) -> None:
    """Another node coordinates transactions from now on."""
    hand_over(broker, STATE, OTHER)


def comes_back(broker: InProcessBroker) -> None:
    hand_over(broker, STATE, OURS)
    transactions = broker.server.components.transaction_coordinator.transactions
    broker.wait_until(lambda: not transactions.loading)


def state(broker: InProcessBroker) -> tuple[int, str]:
    """Error code and state of the transactional id."""
    (found,) = broker.ask(DescribeTransactionsRequest(transactional_ids=["shop"]), 0).transaction_states
    return found.error_code, found.transaction_state


def markers(broker: InProcessBroker) -> list[Marker]:
    """The markers in ``orders-0``."""
    batches = [batch for _, batch in broker.log("orders").batches()]
    return [marker for batch in batches if (marker := read_marker(read_header(batch), batch)) is not None]


def test_every_request_is_answered_that_this_node_does_not_coordinate_the_id(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    goes(broker)

    assert TransactionalClient(broker).begin() is E.NOT_COORDINATOR
    assert client.add(3, ("orders", [1])) == [E.NOT_COORDINATOR]
    assert client.add(4, ("orders", [0]), verify_only=True) == [E.NOT_COORDINATOR]
    assert client.add_offsets(3, "readers") is E.NOT_COORDINATOR
    assert client.end(3, commit=True) is E.NOT_COORDINATOR
    assert client.end(5, commit=False) is E.NOT_COORDINATOR
    assert state(broker) == (E.NOT_COORDINATOR, "")
    listed = broker.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
    assert (listed.error_code, listed.transaction_states) == (E.NONE, [])


def test_an_open_transaction_goes_on_when_it_comes_back(broker: InProcessBroker, client: TransactionalClient) -> None:
    goes(broker)
    # A transaction that writes to the partition already needs no coordinator.
    assert client.produce(9).error_code == E.NONE
    comes_back(broker)

    assert state(broker) == (E.NONE, "Ongoing")
    assert client.add(3, ("orders", [1])) == [E.NONE]
    assert client.end(3, commit=True) is E.NONE
    broker.wait_until(lambda: state(broker) == (E.NONE, "CompleteCommit"))
    assert broker.log("orders").last_stable_offset == 3


def test_nothing_times_out_that_another_node_coordinates(broker: InProcessBroker, client: TransactionalClient) -> None:
    goes(broker)
    broker.advance(120_000)
    assert markers(broker) == []

    comes_back(broker)
    broker.advance(20_000)
    broker.wait_until(lambda: state(broker) == (E.NONE, "CompleteAbort"))
    assert [marker.is_commit for marker in markers(broker)] == [False]


def test_markers_that_could_not_be_written_are_written_by_the_next_coordinator_only(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    hand_over(broker, "orders", OTHER)
    assert client.end(3, commit=True) is E.NONE
    assert state(broker) == (E.NONE, "PrepareCommit")

    goes(broker)
    hand_over(broker, "orders", OURS)
    broker.advance(60_000)
    assert markers(broker) == []
    assert len(broker.server.components.transaction_coordinator.transactions.all()) == 0

    comes_back(broker)
    broker.wait_until(lambda: state(broker) == (E.NONE, "CompleteCommit"))
    broker.advance(60_000)
    epoch = broker.server.components.replicas.partition(STATE, 0).leader_epoch
    assert [(marker.is_commit, marker.coordinator_epoch) for marker in markers(broker)] == [(True, epoch)]


def test_what_waits_for_a_transaction_to_settle_is_answered_when_the_coordinator_goes(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    hand_over(broker, "orders", OTHER)
    assert client.end(3, commit=True) is E.NONE
    topic = TxnOffsetCommitRequest.Topic
    partition = topic.Partition(partition_index=1, committed_offset=7, committed_metadata="")
    connection = broker.connect()
    connection.send(
        TxnOffsetCommitRequest(
            transactional_id="shop",
            group_id="readers",
            producer_id=client.producer_id,
            producer_epoch=client.producer_epoch,
            topics=[topic(name="orders", partitions=[partition])],
        ),
        5,
    )
    assert connection.has_no_answer()

    goes(broker)

    assert connection.receive().topics[0].partitions[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    assert broker.log(OFFSETS).log_end_offset == 0


def test_of_an_unloaded_shard_nothing_is_kept(broker: InProcessBroker, client: TransactionalClient) -> None:
    hand_over(broker, "orders", OTHER)
    assert client.end(3, commit=True) is E.NONE
    shard = weakref.ref(broker.server.components.transaction_coordinator.transactions.of("shop").shard)
    goes(broker)
    broker.advance(1_000)
    gc.collect()
    assert shard() is None


# Another node follows


def begin_end(broker: InProcessBroker, client: TransactionalClient, *, commit: bool = True) -> Client:
    """Send EndTxn; the answer is received later."""
    connection = broker.connect()
    connection.send(
        EndTxnRequest(
            transactional_id="shop",
            producer_id=client.producer_id,
            producer_epoch=client.producer_epoch,
            committed=commit,
        ),
        3,
    )
    return connection


def test_no_marker_is_written_before_the_followers_have_the_decision(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    partition = replicate(broker, STATE)
    follower_fetches(broker, partition)
    connection = begin_end(broker, client)
    assert connection.has_no_answer()
    assert (state(broker), markers(broker)) == ((E.NONE, "Ongoing"), [])
    follower_fetches(broker, partition)
    assert connection.receive().error_code == E.NONE
    assert (state(broker)[1], [marker.is_commit for marker in markers(broker)]) == ("PrepareCommit", [True])
    follower_fetches(broker, partition)
    assert state(broker) == (E.NONE, "CompleteCommit")


def test_a_decision_that_the_followers_do_not_have_is_none_when_the_leadership_goes(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    partition = replicate(broker, STATE)
    follower_fetches(broker, partition)
    end_offset = partition.log.log_end_offset
    connection = begin_end(broker, client)
    assert connection.has_no_answer()

    replicate(broker, STATE, leader=OTHER)
    assert connection.receive().error_code == E.NOT_COORDINATOR
    partition.log.truncate_to(end_offset, broker.clock.now_ms())
    comes_back(broker)
    assert (state(broker), markers(broker)) == ((E.NONE, "Ongoing"), [])
    connection = begin_end(broker, client, commit=False)
    assert connection.has_no_answer()
    follower_fetches(broker, partition)
    assert connection.receive().error_code == E.NONE
    follower_fetches(broker, partition)
    assert state(broker) == (E.NONE, "CompleteAbort")
    assert [marker.is_commit for marker in markers(broker)] == [False]


def test_a_decision_that_was_not_committed_yet_is_carried_out_by_the_next_coordinator_once_it_is(
    broker: InProcessBroker, client: TransactionalClient
) -> None:
    partition = replicate(broker, STATE)
    follower_fetches(broker, partition)
    connection = begin_end(broker, client)
    assert connection.has_no_answer()
    replicate(broker, STATE, leader=OTHER)
    assert connection.receive().error_code == E.NOT_COORDINATOR

    # The other node has fetched the record, and has not led for long enough to send a marker.
    replicate(broker, STATE)
    broker.wait_until(lambda: partition.watchers is not None)
    assert (state(broker)[0], markers(broker)) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
    follower_fetches(broker, partition)
    follower_fetches(broker, partition)
    assert state(broker) == (E.NONE, "CompleteCommit")
    assert [(marker.is_commit, marker.coordinator_epoch) for marker in markers(broker)] == [
        (True, partition.leader_epoch)
    ]


def test_the_next_coordinator_aborts_what_takes_too_long(broker: InProcessBroker, client: TransactionalClient) -> None:
    partition = replicate(broker, STATE, leader=OTHER)
    broker.advance(120_000)
    replicate(broker, STATE)
    follower_fetches(broker, partition)
    broker.wait_until(lambda: bool(broker.server.components.transaction_coordinator.transactions.active))
    for _ in range(3):
        broker.advance(10_000)
        follower_fetches(broker, partition)
    assert state(broker) == (E.NONE, "CompleteAbort")
    assert [marker.is_commit for marker in markers(broker)] == [False]
