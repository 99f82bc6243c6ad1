"""DescribeProducers through the codec."""

from dev.serving import serves
from protocol.errors import ErrorCode as E
from protocol.messages.producers import DescribeProducersRequest, DescribeProducersResponse
from tests.support.batches import T, produced, record
from tests.support.broker import InProcessBroker
from tests.support.logs import ORDERS, batch_of, marker
from tests.support.requests import produce_request
from tests.unit.broker.handlers.transactional_client import TransactionalClient, with_coordinators

Topic = DescribeProducersRequest.Topic
Answer = DescribeProducersResponse.Topic.Partition


def describe(broker: InProcessBroker, topic: str, *partitions: int) -> list[Answer]:
    asked = DescribeProducersRequest(topics=[Topic(name=topic, partition_indexes=list(partitions))])
    (found,) = broker.ask(asked, 0).topics
    assert found.name == topic
    return list(found.partitions)


@serves(DescribeProducersRequest, versions=[0])
def test_a_partition_knows_its_idempotent_producers(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)
    for sequence in (0, 2):
        records = [record(b"a", timestamp=T + sequence), record(b"b", timestamp=T + sequence)]
        batch = produced(records, producer_id=7, producer_epoch=3, base_sequence=sequence)
        assert not broker.ask(produce_request("orders", batch), 12).responses[0].partition_responses[0].error_code
    with_producer, without = describe(broker, "orders", 0, 1)
    assert (with_producer.error_code, without.error_code, without.active_producers) == (E.NONE, E.NONE, [])
    assert with_producer.active_producers == [
        Answer.ActiveProducer(
            producer_id=7,
            producer_epoch=3,
            last_sequence=3,
            last_timestamp=T + 2,
            coordinator_epoch=-1,
            current_txn_start_offset=-1,
        )
    ]


def test_an_open_transaction_is_told_with_its_first_offset_and_an_ended_one_with_its_coordinators_epoch(
    broker: InProcessBroker,
) -> None:
    broker.create_topic(ORDERS.topic)
    broker.produce(ORDERS.topic, b"before")
    log = broker.log(ORDERS.topic)
    for producer_id in (8, 9):
        log.stage(batch_of(b"x", producer_id=producer_id, is_transactional=True), leader_epoch=0)
    log.stage_trusted(marker(9, commit=True, coordinator_epoch=4), leader_epoch=0)
    log.append_all(T)
    (answer,) = describe(broker, ORDERS.topic, 0)
    assert [
        (one.producer_id, one.last_sequence, one.coordinator_epoch, one.current_txn_start_offset)
        for one in answer.active_producers
    ] == [(8, 0, -1, 1), (9, 0, 4, -1)]


def test_a_transaction_is_told_over_a_restart_and_its_end_leaves_the_next_epoch(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    with_coordinators(broker)
    client = TransactionalClient(broker).begun()
    for _ in range(2):
        assert client.produce(12, records=2).error_code == E.NONE
    (answer,) = describe(broker, "orders", 0)
    [while_open] = answer.active_producers
    assert (while_open.producer_id, while_open.producer_epoch) == (client.producer_id, client.producer_epoch)
    assert (while_open.last_sequence, while_open.coordinator_epoch, while_open.current_txn_start_offset) == (3, -1, 0)

    broker.restart()
    assert describe(broker, "orders", 0) == [answer]

    transactions = broker.server.components.transaction_coordinator.transactions
    broker.wait_until(lambda: bool(transactions.active))
    assert client.end(5, commit=False) is E.NONE
    broker.wait_until(lambda: broker.log("orders").last_stable_offset == 5)
    (answer,) = describe(broker, "orders", 0)
    [ended] = answer.active_producers
    assert (ended.producer_id, ended.producer_epoch) == (while_open.producer_id, while_open.producer_epoch + 1)
    assert (ended.last_sequence, ended.current_txn_start_offset) == (-1, -1)
    assert ended.coordinator_epoch >= 0


@serves(DescribeProducersRequest, E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_TOPIC_EXCEPTION, versions=[0])
def test_what_is_not_there_is_told_so(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)
    asked = [describe(broker, "orders", 0, 1, 2, -1), describe(broker, "nowhere", 0), describe(broker, "no spaces", 0)]
    assert [[answer.error_code for answer in of_topic] for of_topic in asked] == [
        [E.NONE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION],
        [E.UNKNOWN_TOPIC_OR_PARTITION],
        [E.INVALID_TOPIC_EXCEPTION],
    ]
    assert all(answer.active_producers == [] for of_topic in asked for answer in of_topic)
