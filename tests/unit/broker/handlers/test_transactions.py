"""The APIs of transactional producers through the codec: a transaction from its first request to its markers."""

import pytest

from broker.coordinators.result import ProducerIdAndEpoch
from broker.coordinators.transaction.requests import EndTransaction
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    WriteTxnMarkersRequest,
)
from storage.batch.markers import read_marker
from tests.support.broker import InProcessBroker
from tests.unit.broker.handlers.transactional_client import (
    OFFSETS,
    STATE,
    TransactionalClient,
    fetched,
    with_coordinators,
)

ORDERS = ("orders", [0])


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    with_coordinators(broker)
    return broker.create_topic("orders", partitions=2)


@serves(InitProducerIdRequest)
@every_version(InitProducerIdRequest)
def test_a_producer_that_begins_fences_the_one_before_it(broker: InProcessBroker, orders: bytes, version: int) -> None:
    first = TransactionalClient(broker).begun(version)
    second = TransactionalClient(broker).begun(version)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)
    assert first.add(3, ORDERS) == [E.PRODUCER_FENCED]


@serves(InitProducerIdRequest, E.NOT_COORDINATOR)
@every_version(InitProducerIdRequest)
def test_without_its_topic_there_is_no_coordinator(broker: InProcessBroker, version: int) -> None:
    assert TransactionalClient(broker).begin(version) is E.NOT_COORDINATOR


@serves(InitProducerIdRequest, E.INVALID_TRANSACTION_TIMEOUT)
@every_version(InitProducerIdRequest)
def test_a_timeout_has_its_limit(broker: InProcessBroker, orders: bytes, version: int) -> None:
    for timeout_ms in (0, -1, 900_001):
        assert TransactionalClient(broker).begin(version, timeout_ms=timeout_ms) is E.INVALID_TRANSACTION_TIMEOUT


def code_for_another_identity(broker: InProcessBroker, version: int) -> int:
    client = TransactionalClient(broker).begun()
    request = InitProducerIdRequest(
        transactional_id="shop",
        transaction_timeout_ms=60_000,
        producer_id=client.producer_id + 1,
        producer_epoch=0,
    )
    answer = broker.ask(request, version)
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    return int(answer.error_code)


@serves(InitProducerIdRequest, E.INVALID_PRODUCER_EPOCH, versions=[3])
def test_a_producer_that_goes_on_with_another_identity_has_an_invalid_epoch(
    broker: InProcessBroker, orders: bytes
) -> None:
    assert code_for_another_identity(broker, 3) == E.INVALID_PRODUCER_EPOCH


@serves(InitProducerIdRequest, E.PRODUCER_FENCED)
@every_version(InitProducerIdRequest, since=4)
def test_a_producer_that_goes_on_with_another_identity_is_fenced(
    broker: InProcessBroker, orders: bytes, version: int
) -> None:
    assert code_for_another_identity(broker, version) == E.PRODUCER_FENCED


@serves(EndTxnRequest)
@every_version(EndTxnRequest)
@pytest.mark.parametrize("commit", [True, False])
def test_readers_see_a_transaction_once_it_is_committed(
    broker: InProcessBroker, orders: bytes, version: int, commit: bool
) -> None:
    client = TransactionalClient(broker).begun()
    assert client.add(3, ("orders", [0, 1])) == [E.NONE, E.NONE]
    client.produce(11)
    client.produce(11, partition=1)
    answer = fetched(broker)
    assert (answer.last_stable_offset, answer.high_watermark, bytes(answer.records)) == (0, 1, b"")
    assert client.end(version, commit=commit) is E.NONE
    for partition in (0, 1):
        log = broker.log("orders", partition)
        broker.wait_until(lambda log=log: log.last_stable_offset == 2)
        [_, (header, batch)] = log.batches()
        marker = read_marker(header, batch)
        assert marker is not None
        assert (marker.producer_id, marker.producer_epoch, marker.is_commit) == (
            client.producer_id, client.producer_epoch, commit,
        )  # fmt: skip
        assert header.size == 78
        answer = fetched(broker, partition=partition)
        assert len(answer.aborted_transactions) == (0 if commit else 1)
    assert client.produce(11).error_code == E.TRANSACTION_ABORTABLE, "the next transaction has to add it"


def test_a_transaction_is_complete_at_the_end_of_the_turn_in_which_its_commit_is_answered(
    broker: InProcessBroker, orders: bytes
) -> None:
    client = TransactionalClient(broker).begun()
    client.add(3, ("orders", [0, 1]))
    client.produce(11)
    client.produce(11, partition=1)
    components = broker.server.components
    coordinator = components.transaction_coordinator
    codes: list[E] = []

    async def end_in_one_turn() -> str:
        producer = ProducerIdAndEpoch(client.producer_id, client.producer_epoch)
        request = EndTransaction(client.transactional_id, producer, is_commit=True)
        coordinator.end(request, lambda code, _: codes.append(code))
        components.replicas.appender.write_staged()
        described = coordinator.transactions.of(client.transactional_id).shard.describe(client.transactional_id)
        return "unknown" if described is None else described.state

    assert broker.run(end_in_one_turn()) == "CompleteCommit"
    assert codes == [E.NONE]
    assert [broker.log("orders", partition).last_stable_offset for partition in (0, 1)] == [2, 2]


@serves(EndTxnRequest, E.NOT_COORDINATOR, E.INVALID_REQUEST, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_TXN_STATE)
@every_version(EndTxnRequest)
def test_there_is_no_transaction_to_be_ended(broker: InProcessBroker, version: int) -> None:
    client = TransactionalClient(broker)
    assert client.end(version, commit=True) is E.NOT_COORDINATOR
    assert TransactionalClient(broker, "").end(version, commit=True) is E.INVALID_REQUEST
    with_coordinators(broker)
    assert client.end(version, commit=True) is E.INVALID_PRODUCER_ID_MAPPING
    assert client.begun().end(version, commit=True) is E.INVALID_TXN_STATE


@serves(AddPartitionsToTxnRequest)
@every_version(AddPartitionsToTxnRequest)
def test_partitions_are_added(broker: InProcessBroker, orders: bytes, version: int) -> None:
    client = TransactionalClient(broker).begun()
    assert client.add(version, ORDERS) == [E.NONE]
    assert client.add(4, ("orders", [0, 1]), verify_only=True) == [E.NONE, E.TRANSACTION_ABORTABLE]
    assert client.produce(9).error_code == E.NONE
    assert client.produce(9, partition=1).error_code == E.INVALID_TXN_STATE


@serves(
    AddPartitionsToTxnRequest,
    E.NOT_COORDINATOR,
    E.INVALID_REQUEST,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.OPERATION_NOT_ATTEMPTED,
    E.INVALID_PRODUCER_ID_MAPPING,
)
@every_version(AddPartitionsToTxnRequest)
def test_partitions_that_cannot_be_added(broker: InProcessBroker, version: int) -> None:
    broker.create_topic("orders")
    client = TransactionalClient(broker)
    assert client.add(version, ORDERS) == [E.NOT_COORDINATOR]
    assert TransactionalClient(broker, "").add(version, ORDERS) == [E.INVALID_REQUEST]
    assert client.add(version, ("orders", [0, 9]), ("nowhere", [0])) == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    with_coordinators(broker)
    assert client.add(version, ORDERS) == [E.INVALID_PRODUCER_ID_MAPPING]


@serves(AddPartitionsToTxnRequest, E.INVALID_PRODUCER_EPOCH)
@every_version(AddPartitionsToTxnRequest, until=1)
def test_a_fenced_producer_of_old_has_an_invalid_epoch(broker: InProcessBroker, orders: bytes, version: int) -> None:
    client = TransactionalClient(broker).begun()
    TransactionalClient(broker).begun()
    assert client.add(version, ORDERS) == [E.INVALID_PRODUCER_EPOCH]


@serves(AddPartitionsToTxnRequest, E.PRODUCER_FENCED)
@every_version(AddPartitionsToTxnRequest, since=2)
def test_a_fenced_producer_adds_nothing(broker: InProcessBroker, orders: bytes, version: int) -> None:
    client = TransactionalClient(broker).begun()
    TransactionalClient(broker).begun()
    assert client.add(version, ORDERS) == [E.PRODUCER_FENCED]


@serves(AddPartitionsToTxnRequest, E.TOPIC_AUTHORIZATION_FAILED, E.OPERATION_NOT_ATTEMPTED)
@every_version(AddPartitionsToTxnRequest, until=3)
def test_producers_add_no_internal_topics(broker: InProcessBroker, orders: bytes, version: int) -> None:
    client = TransactionalClient(broker).begun()
    codes = client.add(version, (OFFSETS, [0]), ORDERS)
    assert codes == [E.TOPIC_AUTHORIZATION_FAILED, E.OPERATION_NOT_ATTEMPTED]


@serves(AddPartitionsToTxnRequest)
@every_version(AddPartitionsToTxnRequest, since=4)
def test_brokers_add_internal_topics(broker: InProcessBroker, orders: bytes, version: int) -> None:
    assert TransactionalClient(broker).begun().add(version, (OFFSETS, [0]), ORDERS) == [E.NONE, E.NONE]


def test_several_transactions_are_handled_each_by_itself(broker: InProcessBroker, orders: bytes) -> None:
    known = TransactionalClient(broker, "known").begun()
    transaction = AddPartitionsToTxnRequest.Transaction
    topics = [AddPartitionsToTxnTopic(name="orders", partitions=[0])]
    answer = broker.ask(
        AddPartitionsToTxnRequest(
            transactions=[
                transaction(transactional_id="unknown", producer_id=7, producer_epoch=0, topics=topics),
                transaction(
                    transactional_id="known",
                    producer_id=known.producer_id,
                    producer_epoch=known.producer_epoch,
                    topics=topics,
                ),
            ]
        ),
        5,
    )
    codes = {
        one.transactional_id: one.topic_results[0].results_by_partition[0].partition_error_code
        for one in answer.results_by_transaction
    }
    assert codes == {"unknown": E.INVALID_PRODUCER_ID_MAPPING, "known": E.NONE}


@serves(AddOffsetsToTxnRequest, E.NONE, E.NOT_COORDINATOR, E.INVALID_REQUEST, E.INVALID_PRODUCER_ID_MAPPING)
@every_version(AddOffsetsToTxnRequest)
def test_the_offsets_of_a_group_get_into_a_transaction(broker: InProcessBroker, version: int) -> None:
    client = TransactionalClient(broker)
    assert client.add_offsets(version, "readers") is E.NOT_COORDINATOR
    assert TransactionalClient(broker, "").add_offsets(version, "readers") is E.INVALID_REQUEST
    with_coordinators(broker)
    assert client.add_offsets(version, "readers") is E.INVALID_PRODUCER_ID_MAPPING
    assert client.begun().add_offsets(version, "readers") is E.NONE
    assert client.end(4, commit=True) is E.NONE


def test_a_transaction_that_takes_too_long_is_aborted(broker: InProcessBroker, orders: bytes) -> None:
    client = TransactionalClient(broker)
    assert client.begin(timeout_ms=5_000) is E.NONE
    client.add(3, ORDERS)
    client.produce(11)
    broker.advance(20_000)
    broker.wait_until(lambda: broker.log("orders").last_stable_offset == 2)
    [aborted] = fetched(broker).aborted_transactions
    assert aborted.producer_id == client.producer_id
    assert client.produce(11).error_code == E.INVALID_PRODUCER_EPOCH
    assert client.end(4, commit=True) is E.PRODUCER_FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_goes_on_after_a_restart(broker: InProcessBroker, orders: bytes, commit: bool) -> None:
    client = TransactionalClient(broker).begun()
    client.add(3, ORDERS)
    client.produce(11)
    broker.restart()
    broker.wait_until(lambda: broker.server.components.transaction_coordinator.transactions.loading == 0)
    assert fetched(broker).last_stable_offset == 0
    assert client.end(4, commit=commit) is E.NONE
    broker.wait_until(lambda: broker.log("orders").last_stable_offset == 2)
    assert len(fetched(broker).aborted_transactions) == (not commit)


@pytest.mark.settings(**{"transactional.id.expiration.ms": "60000"})
def test_an_idle_id_is_forgotten(broker: InProcessBroker, orders: bytes) -> None:
    client = TransactionalClient(broker).begun()
    broker.advance(60_000 + 3_600_000)  # they are looked for every hour
    broker.settle()
    assert client.add(3, ORDERS) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert TransactionalClient(broker).begun().producer_id != client.producer_id


@serves(WriteTxnMarkersRequest, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION)
@every_version(WriteTxnMarkersRequest)
def test_markers_end_a_transaction_that_hangs(broker: InProcessBroker, orders: bytes, version: int) -> None:
    client = TransactionalClient(broker).begun()
    client.add(3, ORDERS)
    client.produce(11)
    hanging = client.marker(commit=False)
    hanging.topics[0].partition_indexes.append(9)
    empty = client.marker(producer_id=6)
    empty.topics.clear()
    [answer] = broker.ask(WriteTxnMarkersRequest(markers=[hanging, empty]), version).markers
    codes = {one.partition_index: one.error_code for one in answer.topics[0].partitions}
    assert codes == {0: E.NONE, 9: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert answer.producer_id == client.producer_id
    assert broker.log("orders").last_stable_offset == 2


@serves(WriteTxnMarkersRequest, E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED)
@every_version(WriteTxnMarkersRequest)
def test_markers_of_the_past_are_refused(broker: InProcessBroker, orders: bytes, version: int) -> None:
    client = TransactionalClient(broker)
    client.producer_id, client.producer_epoch = 7, 3

    def code(**fields: int) -> int:
        [answer] = broker.ask(WriteTxnMarkersRequest(markers=[client.marker(**fields)]), version).markers
        return int(answer.topics[0].partitions[0].error_code)

    assert code(coordinator_epoch=5) == E.NONE
    assert code(coordinator_epoch=5) == E.NONE
    assert code(producer_epoch=2, coordinator_epoch=5) == E.INVALID_PRODUCER_EPOCH
    assert code(coordinator_epoch=4) == E.TRANSACTION_COORDINATOR_FENCED
    assert code(producer_epoch=2, coordinator_epoch=4) == E.INVALID_PRODUCER_EPOCH


@serves(WriteTxnMarkersRequest, E.NOT_LEADER_OR_FOLLOWER)
@every_version(WriteTxnMarkersRequest)
def test_a_marker_for_a_group_that_has_no_coordinator_here_goes_to_another_leader(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with_coordinators(broker)
    client = TransactionalClient(broker)
    client.producer_id, client.producer_epoch = 7, 3
    marker = client.marker()
    marker.topics[0].name = OFFSETS

    def code() -> int:
        [answer] = broker.ask(WriteTxnMarkersRequest(markers=[marker]), version).markers
        return int(answer.topics[0].partitions[0].error_code)

    assert code() == E.NONE
    # As while the partition is loading: the partition is led here, and its coordinator is not there.
    monkeypatch.setattr(broker.server.components.group_coordinator.groups, "_active", {})
    assert code() == E.NOT_LEADER_OR_FOLLOWER


@serves(WriteTxnMarkersRequest, E.INVALID_PRODUCER_EPOCH, versions=[2])
def test_a_marker_of_transaction_version_2_has_the_epoch_behind_its_transaction(
    broker: InProcessBroker, orders: bytes
) -> None:
    client = TransactionalClient(broker).begun()
    client.produce(12)

    def code(**fields: int) -> int:
        [answer] = broker.ask(
            WriteTxnMarkersRequest(markers=[client.marker(transaction_version=2, **fields)]), 2
        ).markers
        return int(answer.topics[0].partitions[0].error_code)

    assert code() == E.INVALID_PRODUCER_EPOCH
    assert code(producer_epoch=client.producer_epoch + 1) == E.NONE


def test_the_partition_of_the_id_may_itself_be_in_a_transaction(broker: InProcessBroker, orders: bytes) -> None:
    client = TransactionalClient(broker).begun()
    topic = broker.server.components.metadata.image.topics.by_name[STATE]
    for partition in topic.partitions:
        assert client.add(5, (STATE, [partition.index])) == [E.NONE]
    assert client.end(5, commit=True) is E.NONE
    broker.wait_until(lambda: client.end(5, commit=False) is E.NONE)
