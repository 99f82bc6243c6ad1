"""Fetch through the codec: what is read, how long it waits, what is refused."""

from typing import Any

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.topics import DeleteTopicsRequest
from storage.batch.record_batch import read_header
from storage.log import Log
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker
from tests.support.requests import fetch_request, produce_request

Answer = FetchResponse.Response.Partition


def fetch(broker: InProcessBroker, version: int = 12, **fields: Any) -> Answer:
    """Fetch partition 0 of `orders` and return what it answers."""
    of_partition: Answer = broker.ask(fetch_request(**fields), version).responses[0].partitions[0]
    return of_partition


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    """A topic with three batches of one record, at the offsets 0, 1 and 2."""
    topic_id = broker.create_topic("orders")
    for value in (b"a", b"b", b"c"):
        broker.produce("orders", value)
    return topic_id


@serves(FetchRequest)
@every_version(FetchRequest)
def test_a_fetch_gives_the_batches_from_its_offset_on(broker: InProcessBroker, orders: bytes, version: int) -> None:
    answer = fetch(broker, version, offset=1, topic_id=orders)

    assert answer.error_code == E.NONE
    assert (answer.high_watermark, answer.last_stable_offset) == (3, 3)
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert answer.aborted_transactions is None
    assert read_header(answer.records).base_offset == 1
    assert bytes(answer.records) == (
        broker.log("orders").read(1, max_bytes=1 << 20, upper_bound_offset=3, at_least_one_batch=True).region.read()
    )


@serves(FetchRequest)
@every_version(FetchRequest)
def test_at_the_end_there_is_nothing_and_no_error(broker: InProcessBroker, orders: bytes, version: int) -> None:
    answer = fetch(broker, version, offset=3, topic_id=orders)
    assert (answer.error_code, bytes(answer.records)) == (E.NONE, b"")


@serves(FetchRequest, E.OFFSET_OUT_OF_RANGE)
@every_version(FetchRequest)
def test_an_offset_beyond_the_end_is_out_of_range(broker: InProcessBroker, orders: bytes, version: int) -> None:
    answer = fetch(broker, version, offset=4, topic_id=orders)
    assert answer.error_code == E.OFFSET_OUT_OF_RANGE
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)
    assert (bytes(answer.records), answer.aborted_transactions) == (b"", None)


@serves(FetchRequest, E.UNKNOWN_TOPIC_OR_PARTITION)
@every_version(FetchRequest, until=12)
def test_an_unknown_partition_is_named_so(broker: InProcessBroker, orders: bytes, version: int) -> None:
    answer = broker.ask(fetch_request("orders", "nowhere", partition=1), version)
    for topic in answer.responses:
        assert topic.partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert topic.partitions[0].aborted_transactions == []


@serves(FetchRequest, E.UNKNOWN_TOPIC_ID)
@every_version(FetchRequest, since=13)
def test_an_unknown_topic_id_is_named_so(broker: InProcessBroker, orders: bytes, version: int) -> None:
    for topic_id in (bytes(16), b"0123456789abcdef"):
        assert fetch(broker, version, topic_id=topic_id).error_code == E.UNKNOWN_TOPIC_ID


def test_a_topic_without_a_name_is_unknown(broker: InProcessBroker, orders: bytes) -> None:
    (topic,) = broker.ask(fetch_request(""), 12).responses
    assert (topic.topic, topic.partitions[0].error_code) == ("", E.UNKNOWN_TOPIC_OR_PARTITION)


@serves(FetchRequest, E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH, versions=[12, 16])
@pytest.mark.parametrize("wire_version", [12, 16])
def test_another_leader_epoch_is_refused(broker: InProcessBroker, orders: bytes, wire_version: int) -> None:
    broker.server.components.replicas.partition("orders", 0).leader_epoch = 5
    # Both versions are asked in each run, so that the marks of one test hold in both.
    for version in (12, 16):
        fenced = broker.ask(fetch_request(topic_id=orders, partition_fields={"current_leader_epoch": 4}), version)
        of_partition = fenced.responses[0].partitions[0]
        assert of_partition.error_code == E.FENCED_LEADER_EPOCH
        # Kafka 4.4.0 leaves the tag of version 12 alone until 16.
        leader = of_partition.current_leader
        assert (leader.leader_id, leader.leader_epoch) == ((1, 5) if version >= 16 else (-1, -1))
        assert [endpoint.node_id for endpoint in fenced.node_endpoints] == ([1] if version >= 16 else [])
        unknown = fetch(broker, version, topic_id=orders, partition_fields={"current_leader_epoch": 6})
        assert unknown.error_code == E.UNKNOWN_LEADER_EPOCH


@serves(FetchRequest, E.NOT_LEADER_OR_FOLLOWER, versions=[12])
def test_nobody_is_a_follower(broker: InProcessBroker, orders: bytes) -> None:
    assert fetch(broker, 12, replica_id=2).error_code == E.NOT_LEADER_OR_FOLLOWER


def test_debugging_consumers_read_like_others(broker: InProcessBroker, orders: bytes) -> None:
    assert fetch(broker, 12, replica_id=-2).error_code == E.NONE


def test_where_the_logs_part_is_told_instead_of_records(broker: InProcessBroker, orders: bytes) -> None:
    broker.log("orders").leader_epochs.assign(4, 3)
    parted = fetch(broker, 12, offset=3, partition_fields={"last_fetched_epoch": 2})
    assert (parted.error_code, bytes(parted.records)) == (E.NONE, b"")
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (0, 3)
    assert parted.high_watermark == 3


@serves(FetchRequest, E.OFFSET_OUT_OF_RANGE, versions=[12])
def test_an_epoch_above_ours_can_not_be_placed(broker: InProcessBroker, orders: bytes) -> None:
    assert fetch(broker, 12, partition_fields={"last_fetched_epoch": 9}).error_code == E.OFFSET_OUT_OF_RANGE


@serves(FetchRequest, E.UNKNOWN_SERVER_ERROR, versions=[12])
def test_negative_limits_and_strange_isolation_are_refused_as_kafka_does(
    broker: InProcessBroker, orders: bytes
) -> None:
    assert fetch(broker, 12, partition_max_bytes=-1).error_code == E.UNKNOWN_SERVER_ERROR
    assert fetch(broker, 12, max_bytes=-1).error_code == E.UNKNOWN_SERVER_ERROR
    assert broker.ask(fetch_request(isolation_level=2), 12).error_code == E.UNKNOWN_SERVER_ERROR


def test_read_committed_lists_aborted_transactions(broker: InProcessBroker, orders: bytes) -> None:
    assert fetch(broker, 12, isolation_level=1).aborted_transactions == []
    assert fetch(broker, 12, isolation_level=1, offset=99).aborted_transactions is None
    assert fetch(broker, 12, isolation_level=1, partition=9).aborted_transactions == []


def test_epochs_below_zero_are_none_as_kafka_reads_them(broker: InProcessBroker, orders: bytes) -> None:
    for epochs in ({"current_leader_epoch": -2}, {"last_fetched_epoch": -2}):
        assert fetch(broker, 12, partition_fields=epochs).error_code == E.NONE
        assert fetch(broker, 12, partition_fields=epochs, offset=99).error_code == E.OFFSET_OUT_OF_RANGE


def test_a_strange_isolation_is_refused_without_a_word_on_topics_asked_by_id(
    broker: InProcessBroker, orders: bytes
) -> None:
    answer = broker.ask(fetch_request(topic_id=orders, isolation_level=2), 13)
    assert (answer.error_code, answer.responses) == (E.UNKNOWN_SERVER_ERROR, [])


# Limits ---------------------------------------------------------------------------------------------------------------


def test_the_first_batch_comes_whole_however_small_the_limits(broker: InProcessBroker, orders: bytes) -> None:
    batch_size = read_header(fetch(broker).records).size
    for limits in ({"max_bytes": 0}, {"partition_max_bytes": 1}, {"max_bytes": 5, "partition_max_bytes": 0}):
        assert len(fetch(broker, **limits).records) == batch_size


def test_records_are_cut_at_the_limit_even_inside_a_batch(broker: InProcessBroker, orders: bytes) -> None:
    batch_size = read_header(fetch(broker).records).size
    assert len(fetch(broker, partition_max_bytes=batch_size + 10).records) == batch_size + 10


def test_only_the_first_partition_with_data_may_exceed_the_limit(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=3)
    for partition in (1, 2):
        broker.produce("orders", b"v" * 100, partition=partition)
    request = fetch_request("orders", max_bytes=10)
    request.topics[0].partitions = [
        FetchRequest.Topic.Partition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(3)
    ]
    sizes = [len(partition.records) for partition in broker.ask(request, 12).responses[0].partitions]
    assert sizes[0] == 0
    assert sizes[1] > 100
    assert sizes[2] == 0


# Waiting --------------------------------------------------------------------------------------------------------------


def test_a_fetch_waits_for_data_and_is_answered_by_the_append(broker: InProcessBroker, orders: bytes) -> None:
    consumer = broker.connect()
    consumer.send(fetch_request(offset=3, max_wait_ms=10_000), 12)
    assert consumer.has_no_answer()

    broker.produce("orders", b"d")

    answer = consumer.receive().responses[0].partitions[0]
    assert (read_header(answer.records).base_offset, answer.high_watermark) == (3, 4)


def test_a_fetch_is_answered_with_what_there_is_when_its_time_is_up(broker: InProcessBroker, orders: bytes) -> None:
    consumer = broker.connect()
    consumer.send(fetch_request(offset=0, max_wait_ms=500, min_bytes=1 << 20), 12)
    broker.advance(499)
    assert consumer.has_no_answer()
    broker.advance(1)
    assert consumer.receive().responses[0].partitions[0].records


def test_a_fetch_waits_until_its_partitions_together_have_enough(broker: InProcessBroker) -> None:
    broker.create_topic("a")
    broker.create_topic("b")
    consumer = broker.connect()
    consumer.send(fetch_request("a", "b", max_wait_ms=10_000, min_bytes=200), 12)
    broker.produce("a", b"v" * 60)
    assert consumer.has_no_answer()
    broker.produce("b", b"v" * 60)
    answer = consumer.receive()
    assert all(topic.partitions[0].records for topic in answer.responses)


def test_an_error_of_reading_is_told_at_once(broker: InProcessBroker, orders: bytes) -> None:
    broker.create_topic("other")
    consumer = broker.connect()
    consumer.send(fetch_request("other", "orders", offset=0, max_wait_ms=10_000, min_bytes=1 << 20), 12)
    assert consumer.has_no_answer()
    consumer = broker.connect()
    consumer.send(fetch_request("orders", "other", offset=3, max_wait_ms=10_000), 12)
    codes = [topic.partitions[0].error_code for topic in consumer.receive().responses]
    assert codes == [E.NONE, E.OFFSET_OUT_OF_RANGE]


def test_a_topic_that_is_not_there_neither_wakes_the_others_nor_stands_before_them(
    broker: InProcessBroker, orders: bytes
) -> None:
    # As Kafka 4.4.0: a client that still asks for a deleted topic does not turn in circles.
    consumer = broker.connect()
    consumer.send(fetch_request("nowhere", "orders", offset=3, max_wait_ms=500), 12)
    assert consumer.has_no_answer()
    broker.advance(500)
    answered = [(topic.topic, topic.partitions[0].error_code) for topic in consumer.receive().responses]
    assert answered == [("orders", E.NONE), ("nowhere", E.UNKNOWN_TOPIC_OR_PARTITION)]


def test_a_fetch_of_nothing_but_unknown_topics_is_answered_at_once(broker: InProcessBroker) -> None:
    answer = broker.ask(fetch_request("nowhere", max_wait_ms=10_000), 12)
    assert answer.responses[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_asked_for_twice_is_answered_once_as_it_was_asked_last(
    broker: InProcessBroker, orders: bytes
) -> None:
    request = fetch_request("orders", "orders", offset=0)
    request.topics[1].partitions[0].fetch_offset = 2
    (topic,) = broker.ask(request, 12).responses
    assert [read_header(partition.records).base_offset for partition in topic.partitions] == [2]


def test_a_fetch_of_nothing_is_answered_at_once(broker: InProcessBroker) -> None:
    request = FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=[])
    assert broker.ask(request, 12).responses == []


def test_a_fetch_that_waits_holds_back_the_produce_behind_it_on_its_connection(
    broker: InProcessBroker, orders: bytes
) -> None:
    client = broker.connect()
    client.send(fetch_request(offset=3, max_wait_ms=10_000), 12)
    client.send(produce_request("orders", produced([record(b"d")])), 12)
    assert client.has_no_answer()
    assert broker.log("orders").log_end_offset == 3
    broker.advance(10_000)
    assert client.receive().responses[0].partitions[0].records == b""
    assert client.receive().responses[0].partition_responses[0].base_offset == 3


@pytest.mark.parametrize("epoch", [-1, -5])
def test_a_fetch_that_names_no_leader_epoch_waits_whatever_the_negative_number(
    broker: InProcessBroker, orders: bytes, epoch: int
) -> None:
    consumer = broker.connect()
    request = fetch_request(offset=3, max_wait_ms=10_000, min_bytes=2, partition_fields={"current_leader_epoch": epoch})
    consumer.send(request, 12)
    assert consumer.has_no_answer()
    broker.produce("orders", b"d")
    assert read_header(consumer.receive().responses[0].partitions[0].records).base_offset == 3


def test_a_deleted_topic_ends_the_wait(broker: InProcessBroker, orders: bytes) -> None:
    consumer = broker.connect()
    consumer.send(fetch_request(offset=3, max_wait_ms=10_000), 12)
    broker.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
    assert consumer.receive().responses[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_that_hangs_up_while_it_waits_harms_nobody(broker: InProcessBroker, orders: bytes) -> None:
    consumer = broker.connect()
    consumer.send(fetch_request(offset=3, max_wait_ms=10_000), 12)
    consumer.close()
    assert broker.produce("orders", b"d") == 3


@serves(FetchRequest, E.UNKNOWN_SERVER_ERROR, versions=[12])
@pytest.mark.parametrize(("min_bytes", "waits_by"), [(1, "read"), (2, "readable_bytes")])
def test_a_waiting_fetch_that_breaks_answers_so_and_harms_no_producer(
    broker: InProcessBroker, orders: bytes, monkeypatch: pytest.MonkeyPatch, min_bytes: int, waits_by: str
) -> None:
    consumer = broker.connect()
    consumer.send(fetch_request(offset=3, max_wait_ms=10_000, min_bytes=min_bytes), 12)
    assert consumer.has_no_answer()

    def broken(*_: object, **__: object) -> int:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as bug:
        bug.setattr(Log, waits_by, broken)
        assert broker.produce("orders", b"d") == 3
    assert consumer.receive().responses[0].partitions[0].error_code == E.UNKNOWN_SERVER_ERROR
