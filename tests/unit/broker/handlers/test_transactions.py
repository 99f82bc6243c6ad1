"""The APIs of transactions through the codec, on a broker that has none."""

from typing import Any

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from tests.support.broker import InProcessBroker
from tests.support.logs import T, batch_of

STATE = "__transaction_state"


@pytest.fixture(autouse=True)
def orders(broker: InProcessBroker) -> bytes:
    return broker.create_topic("orders")


def with_coordinators(broker: InProcessBroker) -> None:
    """The topics in which groups and transactions would be kept are there."""
    for topic in (STATE, "__consumer_offsets"):
        broker.create_topic(topic)
    broker.wait_until(lambda: bool(broker.server.components.group_coordinator.groups.active))


def added(version: int, transactional_id: str, *partitions: tuple[str, list[int]]) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in partitions]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id, v3_and_below_producer_id=5, v3_and_below_topics=topics
        )
    transaction = AddPartitionsToTxnRequest.Transaction(
        transactional_id=transactional_id, producer_id=5, producer_epoch=0, topics=topics
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def codes_added(broker: InProcessBroker, version: int, *asked: Any) -> list[int]:
    answer = broker.ask(added(version, *asked), version)
    assert answer.error_code == E.NONE
    topics = answer.results_by_topic_v3_and_below or answer.results_by_transaction[0].topic_results
    return [partition.partition_error_code for topic in topics for partition in topic.results_by_partition]


@serves(
    AddPartitionsToTxnRequest,
    E.NOT_COORDINATOR,
    E.INVALID_REQUEST,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.OPERATION_NOT_ATTEMPTED,
    E.INVALID_PRODUCER_ID_MAPPING,
)
@every_version(AddPartitionsToTxnRequest)
def test_no_partition_gets_into_a_transaction(broker: InProcessBroker, version: int) -> None:
    assert codes_added(broker, version, "shop", ("orders", [0])) == [E.NOT_COORDINATOR]
    assert codes_added(broker, version, "", ("orders", [0])) == [E.INVALID_REQUEST]
    assert codes_added(broker, version, "shop", ("orders", [0, 9]), ("nowhere", [0])) == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    with_coordinators(broker)
    assert codes_added(broker, version, "shop", ("orders", [0])) == [E.INVALID_PRODUCER_ID_MAPPING]


@serves(AddOffsetsToTxnRequest, E.NOT_COORDINATOR, E.INVALID_REQUEST, E.INVALID_PRODUCER_ID_MAPPING)
@every_version(AddOffsetsToTxnRequest)
def test_no_group_gets_into_a_transaction(broker: InProcessBroker, version: int) -> None:
    def code(transactional_id: str) -> int:
        asked = AddOffsetsToTxnRequest(
            transactional_id=transactional_id, producer_id=5, producer_epoch=0, group_id="readers"
        )
        return int(broker.ask(asked, version).error_code)

    assert (code("shop"), code("")) == (E.NOT_COORDINATOR, E.INVALID_REQUEST)
    with_coordinators(broker)
    assert code("shop") == E.INVALID_PRODUCER_ID_MAPPING


@serves(EndTxnRequest, E.NOT_COORDINATOR, E.INVALID_REQUEST, E.INVALID_PRODUCER_ID_MAPPING)
@every_version(EndTxnRequest)
def test_there_is_no_transaction_to_be_ended(broker: InProcessBroker, version: int) -> None:
    def code(transactional_id: str) -> int:
        asked = EndTxnRequest(transactional_id=transactional_id, producer_id=5, producer_epoch=0, committed=True)
        answer = broker.ask(asked, version)
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        return int(answer.error_code)

    assert (code("shop"), code("")) == (E.NOT_COORDINATOR, E.INVALID_REQUEST)
    with_coordinators(broker)
    assert code("shop") == E.INVALID_PRODUCER_ID_MAPPING


@serves(
    TxnOffsetCommitRequest,
    E.COORDINATOR_NOT_AVAILABLE,
    E.INVALID_PRODUCER_ID_MAPPING,
    E.INVALID_REQUEST,
    E.INVALID_GROUP_ID,
)
@every_version(TxnOffsetCommitRequest)
def test_no_offset_is_committed_in_a_transaction(broker: InProcessBroker, orders: bytes, version: int) -> None:
    topic = TxnOffsetCommitRequest.Topic

    def codes(group_id: str = "readers", transactional_id: str = "shop") -> list[int]:
        partitions = [
            topic.Partition(partition_index=index, committed_offset=3, committed_metadata="") for index in (0, 9)
        ]
        asked = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group_id,
            producer_id=5,
            producer_epoch=0,
            topics=[
                topic(name="orders", topic_id=orders, partitions=partitions),
                topic(name="nowhere", topic_id=bytes(15) + b"\1", partitions=partitions[:1]),
            ],
        )
        known, unknown = broker.ask(asked, version).topics
        assert known.partitions[1].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert unknown.partitions[0].error_code == (
            E.UNKNOWN_TOPIC_ID if version >= 6 else E.UNKNOWN_TOPIC_OR_PARTITION
        )
        return [known.partitions[0].error_code]

    assert codes() == [E.COORDINATOR_NOT_AVAILABLE]
    assert codes(group_id="") == [E.INVALID_GROUP_ID]
    with_coordinators(broker)
    assert codes() == [E.INVALID_PRODUCER_ID_MAPPING]
    assert codes(transactional_id="") == [E.INVALID_REQUEST]


@serves(WriteTxnMarkersRequest, E.INVALID_TXN_STATE, E.UNKNOWN_TOPIC_OR_PARTITION)
@every_version(WriteTxnMarkersRequest)
def test_no_marker_is_written(broker: InProcessBroker, version: int) -> None:
    marker = WriteTxnMarkersRequest.Marker
    topics = [
        marker.Topic(name="orders", partition_indexes=[0, 9]),
        marker.Topic(name="nowhere", partition_indexes=[0]),
    ]
    asked = [
        marker(producer_id=producer_id, producer_epoch=0, transaction_result=True, topics=of, coordinator_epoch=0)
        for producer_id, of in ((5, topics), (6, []))
    ]
    (answer,) = broker.ask(WriteTxnMarkersRequest(markers=asked), version).markers
    assert answer.producer_id == 5
    assert [[one.error_code for one in topic.partitions] for topic in answer.topics] == [
        [E.INVALID_TXN_STATE, E.UNKNOWN_TOPIC_OR_PARTITION],
        [E.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    assert broker.log("orders").log_end_offset == 0


def codes_described(broker: InProcessBroker, *transactional_ids: str) -> list[int]:
    answer = broker.ask(DescribeTransactionsRequest(transactional_ids=list(transactional_ids)), 0)
    assert [state.transactional_id for state in answer.transaction_states] == list(transactional_ids)
    return [state.error_code for state in answer.transaction_states]


@serves(
    DescribeTransactionsRequest,
    E.NOT_COORDINATOR,
    E.INVALID_REQUEST,
    E.TRANSACTIONAL_ID_NOT_FOUND,
    versions=[0],
)
def test_no_transaction_is_described(broker: InProcessBroker) -> None:
    assert codes_described(broker, "shop", "", "shop") == [E.NOT_COORDINATOR, E.INVALID_REQUEST, E.NOT_COORDINATOR]
    with_coordinators(broker)
    assert codes_described(broker, "shop", "") == [E.TRANSACTIONAL_ID_NOT_FOUND, E.INVALID_REQUEST]


@serves(ListTransactionsRequest)
@every_version(ListTransactionsRequest)
def test_no_transaction_is_listed_and_states_that_are_none_are_named(broker: InProcessBroker, version: int) -> None:
    asked = ListTransactionsRequest(state_filters=["Ongoing", "ongoing", "Strange", "Strange"], producer_id_filters=[5])
    answer = broker.ask(asked, version)
    assert (answer.error_code, answer.transaction_states) == (E.NONE, [])
    assert answer.unknown_state_filters == ["ongoing", "Strange"]


@serves(ListTransactionsRequest, E.INVALID_REGULAR_EXPRESSION, E.NONE, versions=[2])
def test_a_pattern_of_transactional_ids_must_be_one(broker: InProcessBroker) -> None:
    def code(pattern: str | None) -> int:
        asked = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
        return int(broker.ask(asked, 2).error_code)

    assert [code(pattern) for pattern in (None, "", "shop-.*")] == [E.NONE] * 3
    assert [code(pattern) for pattern in ("(shop", "*", "[z-a]")] == [E.INVALID_REGULAR_EXPRESSION] * 3
    assert code("(" * 30_000) == E.NONE, "it is too long to be looked at, and there is nothing that could match"


@serves(ListTransactionsRequest, E.COORDINATOR_NOT_AVAILABLE, versions=[0])
def test_of_transactions_that_a_kafka_has_left_in_the_directory_nothing_is_claimed(broker: InProcessBroker) -> None:
    with_coordinators(broker)
    log = broker.log(STATE)
    log.stage(batch_of(b"what a Kafka keeps of a transaction"), leader_epoch=0)
    log.append_all(T)
    assert codes_described(broker, "shop") == [E.NOT_COORDINATOR]
    assert codes_added(broker, 5, "shop", ("orders", [0])) == [E.NOT_COORDINATOR]
    answer = broker.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
    assert answer.error_code == E.COORDINATOR_NOT_AVAILABLE
