"""Produce through the codec: what is accepted, what is refused, and with which words."""

import struct
from collections.abc import Callable

import pytest

from broker.runtime.worker_thread import Flusher, WorkerThread
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.topics import DeleteTopicsRequest
from storage.batch.record_batch import Codec
from storage.batch.records import iterate_records
from storage.errors import DiskFull
from storage.files import File
from tests.support.batches import EVERY_CODEC, T, changed, produced, record, records
from tests.support.broker import ConnectionClosed, InProcessBroker
from tests.support.requests import fetch_request, produce_request

Answer = ProduceResponse.Response.PartitionResponse

LATEST = 13


def produce(broker: InProcessBroker, records: memoryview | None, version: int = 12, **fields: object) -> Answer:
    """Produce to partition 0 of `orders` and return what it answers."""
    answer = broker.ask(produce_request("orders", records, **fields), version)  # type: ignore[arg-type]
    of_partition: Answer = answer.responses[0].partition_responses[0]
    return of_partition


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    """A topic with one partition."""
    return broker.create_topic("orders")


@serves(ProduceRequest)
@every_version(ProduceRequest)
def test_a_batch_gets_the_next_offsets(broker: InProcessBroker, orders: bytes, version: int) -> None:
    broker.produce("orders", b"first")

    answer = produce(broker, produced(3), version, topic_id=orders)

    assert (answer.error_code, answer.base_offset) == (E.NONE, 1)
    assert answer.log_append_time_ms == -1
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert broker.log("orders").log_end_offset == 4


@serves(ProduceRequest)
@every_version(ProduceRequest)
def test_acks_of_the_leader_are_enough_where_asked(broker: InProcessBroker, orders: bytes, version: int) -> None:
    answer = produce(broker, produced(1), version, topic_id=orders, acks=1)
    assert (answer.error_code, answer.base_offset) == (E.NONE, 0)


def test_without_acks_there_is_no_answer_and_the_connection_goes_on(broker: InProcessBroker, orders: bytes) -> None:
    client = broker.connect()
    client.send(produce_request("orders", produced(1), acks=0), 9)
    client._awaited.clear()

    assert client.has_no_answer()
    assert broker.log("orders").log_end_offset == 1
    assert client.ask(produce_request("orders", produced(1)), 9).responses[0].partition_responses[0].base_offset == 1


def test_a_refused_batch_without_acks_closes_the_connection(broker: InProcessBroker, orders: bytes) -> None:
    client = broker.connect()
    client.send(produce_request("nowhere", produced(1), acks=0), 9)
    assert client.is_closed()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_before_batches_of_magic_2_close_the_connection(broker: InProcessBroker, version: int) -> None:
    client = broker.connect()
    client.send_bytes(struct.pack(">ihhih", 10, 0, version, 1, -1))
    assert client.is_closed()


@serves(ProduceRequest, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[12])
@pytest.mark.parametrize(
    ("topic", "partition"), [("nowhere", 0), ("orders", 1), ("orders", -1), ("", 0), ("a/b", 0), ("..", 0)]
)
def test_an_unknown_partition_is_named_so(broker: InProcessBroker, orders: bytes, topic: str, partition: int) -> None:
    answer = broker.ask(produce_request(topic, produced(1), partition=partition, acks=5), 12)
    of_partition = answer.responses[0].partition_responses[0]
    assert of_partition.error_code == E.UNKNOWN_TOPIC_OR_PARTITION, "it wins over wrong acks"
    assert (of_partition.base_offset, of_partition.log_start_offset) == (-1, -1)
    assert "nowhere" not in broker.topics(), "produce never creates a topic"


@serves(ProduceRequest, E.UNKNOWN_TOPIC_ID, versions=[13])
@pytest.mark.parametrize("topic_id", [bytes(16), b"0123456789abcdef"])
def test_an_unknown_topic_id_is_named_so(broker: InProcessBroker, orders: bytes, topic_id: bytes) -> None:
    assert produce(broker, produced(1), 13, topic_id=topic_id).error_code == E.UNKNOWN_TOPIC_ID


@serves(ProduceRequest, E.INVALID_REQUIRED_ACKS, versions=[12])
@pytest.mark.parametrize("acks", [2, -2, 5])
def test_other_acks_are_refused(broker: InProcessBroker, orders: bytes, acks: int) -> None:
    assert produce(broker, produced(1), acks=acks).error_code == E.INVALID_REQUIRED_ACKS
    assert broker.log("orders").log_end_offset == 0


@serves(ProduceRequest, E.CORRUPT_MESSAGE, versions=[12])
def test_a_wrong_crc_is_refused(broker: InProcessBroker, orders: bytes) -> None:
    answer = produce(broker, changed(produced(1), crc=1))
    assert (answer.error_code, answer.error_message, answer.log_start_offset) == (E.CORRUPT_MESSAGE, None, -1)
    assert broker.log("orders").log_end_offset == 0


@serves(ProduceRequest, E.INVALID_RECORD, versions=[12])
@pytest.mark.parametrize(
    "batch",
    [
        None,
        memoryview(bytearray()),
        produced(1)[:50],
        memoryview(bytearray(produced(1)) + bytearray(produced(1))),
        changed(produced(1), base_offset=7),
        changed(produced(2), record_count=1),
        changed(produced(1), producer_id=5),
        produced(1, is_control=True),
    ],
    ids=["null", "empty", "cut", "two", "offset", "count", "sequence", "control"],
)
def test_what_is_not_one_good_batch_is_refused(
    broker: InProcessBroker, orders: bytes, batch: memoryview | None
) -> None:
    assert produce(broker, batch).error_code == E.INVALID_RECORD
    assert broker.log("orders").log_end_offset == 0


@pytest.mark.parametrize(
    ("batch", "log_start_offset"),
    [
        (b"", -1),
        (bytes(produced(1)[:50]), -1),
        (bytes(produced(1)) * 2, -1),
        (bytes(changed(produced(1), magic=1)), -1),
        (bytes(changed(produced(1), base_offset=7)), 0),
        (bytes(produced(1, is_control=True)), 0),
    ],
    ids=["empty", "cut", "two", "magic", "offset", "control"],
)
def test_the_log_start_is_told_once_there_is_one_batch_to_look_at(
    broker: InProcessBroker, orders: bytes, batch: bytes, log_start_offset: int
) -> None:
    answer = produce(broker, memoryview(bytearray(batch)))
    assert (answer.error_code, answer.log_start_offset) == (E.INVALID_RECORD, log_start_offset)


def test_a_topic_without_partitions_is_left_out(broker: InProcessBroker, orders: bytes) -> None:
    request = produce_request("orders", produced(1))
    request.topic_data[0].partition_data.clear()
    assert broker.ask(request, 12).responses == []


@serves(ProduceRequest, E.INVALID_RECORD, versions=[8])
@pytest.mark.parametrize("codec", EVERY_CODEC, ids=lambda codec: codec.name)
def test_keyless_records_on_a_compacted_topic_are_named_one_by_one(broker: InProcessBroker, codec: Codec) -> None:
    broker.create_topic("orders", cleanup_policy="compact")
    broker.create_topic("events")
    keyless = produced([record(), record(key=None), record(key=None)], codec=codec)
    request = produce_request("orders", keyless)
    request.topic_data += produce_request("events", keyless).topic_data
    refused, taken = (topic.partition_responses[0] for topic in broker.ask(request, 8).responses)
    assert refused.error_code == E.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1, 2]
    assert refused.log_start_offset == 0
    assert (taken.error_code, taken.base_offset) == (E.NONE, 0)


@serves(ProduceRequest, E.INVALID_TIMESTAMP, versions=[12])
def test_a_timestamp_from_the_future_is_refused(broker: InProcessBroker, orders: bytes) -> None:
    answer = produce(broker, produced([record(timestamp=broker.clock.now_ms() + 3_600_001)]))
    assert answer.error_code == E.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [0]


@serves(ProduceRequest, E.MESSAGE_TOO_LARGE, versions=[12])
def test_a_batch_beyond_max_message_bytes_is_refused(broker: InProcessBroker) -> None:
    broker.create_topic("orders", max_message_bytes=500)
    assert produce(broker, produced([record(b"v" * 500)])).error_code == E.MESSAGE_TOO_LARGE


@serves(ProduceRequest, E.RECORD_LIST_TOO_LARGE, versions=[12])
def test_a_batch_that_no_segment_could_hold_is_refused(broker: InProcessBroker) -> None:
    broker.create_topic("orders", segment_bytes=1 << 20, max_message_bytes=4 << 20)
    assert produce(broker, produced([record(b"v" * (2 << 20))])).error_code == E.RECORD_LIST_TOO_LARGE


@serves(ProduceRequest, E.UNSUPPORTED_COMPRESSION_TYPE, versions=[6])
def test_zstd_came_with_version_7(broker: InProcessBroker, orders: bytes) -> None:
    assert produce(broker, produced(1, codec=Codec.ZSTD), 6).error_code == E.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(broker, produced(1, codec=Codec.ZSTD), 7).error_code == E.NONE


@serves(ProduceRequest, E.UNKNOWN_SERVER_ERROR, versions=[12])
def test_a_codec_that_does_not_exist_is_refused_as_kafka_does(broker: InProcessBroker, orders: bytes) -> None:
    assert produce(broker, changed(produced(1), attributes=5)).error_code == E.UNKNOWN_SERVER_ERROR


@serves(ProduceRequest, E.INVALID_TOPIC_EXCEPTION, E.NONE, versions=[12])
def test_internal_topics_are_for_the_admin_client_only(broker: InProcessBroker) -> None:
    broker.create_topic("__consumer_offsets")
    request = produce_request("__consumer_offsets", produced(1))
    refused = broker.ask(request, 12)
    assert refused.responses[0].partition_responses[0].error_code == E.INVALID_TOPIC_EXCEPTION
    allowed = broker.ask(request, 12, client_id="__admin_client")
    assert allowed.responses[0].partition_responses[0].error_code == E.NONE


@serves(ProduceRequest, E.NONE, versions=[12])
def test_min_insync_replicas_is_capped_by_the_replicas_there_are(broker: InProcessBroker) -> None:
    broker.create_topic("orders", min_insync_replicas=2)
    assert produce(broker, produced(1)).error_code == E.NONE


@serves(ProduceRequest, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, versions=[12])
def test_a_transactional_batch_needs_a_transactional_id(broker: InProcessBroker, orders: bytes) -> None:
    batch = produced(1, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert produce(broker, batch).error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@serves(ProduceRequest, E.INVALID_PRODUCER_ID_MAPPING, versions=[12])
def test_one_request_carries_the_transaction_of_one_producer(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)
    request = produce_request("orders", None, transactional_id="tx")
    request.topic_data[0].partition_data = [
        ProduceRequest.TopicData.PartitionData(
            index=index,
            records=produced(1, producer_id=index, producer_epoch=0, base_sequence=0, is_transactional=True),
        )
        for index in range(2)
    ]
    answer = broker.ask(request, 12)
    codes = {partition.error_code for partition in answer.responses[0].partition_responses}
    assert codes == {E.INVALID_PRODUCER_ID_MAPPING}


# Idempotent producers -------------------------------------------------------------------------------------------------


def numbered(sequence: int, *, epoch: int = 0, count: int = 1) -> memoryview:
    """A batch of the producer 7."""
    return produced(count, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


@serves(ProduceRequest, E.NONE, versions=[12])
def test_a_repeated_batch_gets_its_first_offset_and_is_not_appended_again(
    broker: InProcessBroker, orders: bytes
) -> None:
    offsets = [produce(broker, numbered(sequence)).base_offset for sequence in range(6)]
    assert offsets == [0, 1, 2, 3, 4, 5]
    for sequence in range(1, 6):
        again = produce(broker, numbered(sequence))
        assert (again.error_code, again.base_offset, again.log_append_time_ms) == (E.NONE, sequence, T)
    assert broker.log("orders").log_end_offset == 6


@serves(ProduceRequest, E.OUT_OF_ORDER_SEQUENCE_NUMBER, versions=[12])
def test_a_gap_in_the_sequence_is_refused(broker: InProcessBroker, orders: bytes) -> None:
    produce(broker, numbered(0))
    answer = produce(broker, numbered(2))
    assert (answer.error_code, answer.log_start_offset) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)


@serves(ProduceRequest, E.OUT_OF_ORDER_SEQUENCE_NUMBER, versions=[12])
def test_a_batch_older_than_the_last_five_is_not_remembered(broker: InProcessBroker, orders: bytes) -> None:
    for sequence in range(6):
        produce(broker, numbered(sequence))
    assert produce(broker, numbered(0)).error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER


@serves(ProduceRequest, E.INVALID_PRODUCER_EPOCH, E.OUT_OF_ORDER_SEQUENCE_NUMBER, versions=[12])
def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(broker: InProcessBroker, orders: bytes) -> None:
    produce(broker, numbered(0))
    assert produce(broker, numbered(1, epoch=1)).error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(broker, numbered(0, epoch=1)).error_code == E.NONE
    assert produce(broker, numbered(1, epoch=0)).error_code == E.INVALID_PRODUCER_EPOCH


@serves(ProduceRequest, E.NONE, versions=[12])
def test_duplicates_are_known_after_a_restart(broker: InProcessBroker, orders: bytes) -> None:
    produce(broker, numbered(0, count=3))
    broker.restart()
    assert produce(broker, numbered(0, count=3)).base_offset == 0
    assert produce(broker, numbered(3)).base_offset == 3


# What is stored -------------------------------------------------------------------------------------------------------


@serves(ProduceRequest, E.NONE, versions=[12])
def test_a_log_append_time_topic_answers_with_its_own_time(broker: InProcessBroker) -> None:
    broker.create_topic("orders", message_timestamp_type="LogAppendTime")
    broker.advance(5_000)
    assert produce(broker, produced(2)).log_append_time_ms == broker.clock.now_ms()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_with_a_codec_of_its_own_stores_in_it(broker: InProcessBroker, codec: str) -> None:
    broker.create_topic("orders", compression_type=codec)
    sent = records(20)
    assert produce(broker, produced(sent, codec=Codec.GZIP if codec == "uncompressed" else Codec.NONE)).error_code == 0

    stored = fetched(broker, "orders")

    assert stored[22] & 0x07 == Codec[codec.upper()] if codec != "uncompressed" else stored[22] & 0x07 == Codec.NONE
    assert [found.value for found in iterate_records(stored)] == [one.value for one in sent]


def test_several_partitions_are_answered_together(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=3)
    request = produce_request("orders", None)
    request.topic_data[0].partition_data = [
        ProduceRequest.TopicData.PartitionData(index=index, records=produced(index + 1)) for index in (0, 2, 9)
    ]
    answers = broker.ask(request, 12).responses[0].partition_responses
    assert [(a.index, a.error_code, a.base_offset) for a in answers] == [
        (0, E.NONE, 0),
        (2, E.NONE, 0),
        (9, E.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_a_topic_named_twice_is_answered_once(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)
    first, second = produce_request("orders", produced(1)), produce_request("orders", produced(1), partition=1)
    first.topic_data += second.topic_data
    answer = broker.ask(first, 12)
    assert [len(topic.partition_responses) for topic in answer.responses] == [2]


def test_requests_of_one_connection_are_answered_in_order(broker: InProcessBroker, orders: bytes) -> None:
    client = broker.connect()
    for _ in range(5):
        client.send(produce_request("orders", produced(1)), 12)
    offsets = [client.receive().responses[0].partition_responses[0].base_offset for _ in range(5)]
    assert offsets == [0, 1, 2, 3, 4]


@pytest.mark.settings(log_flush_interval_messages=1)
def test_an_acknowledgement_waits_for_the_flush_that_the_topic_demands(broker: InProcessBroker, orders: bytes) -> None:
    for acks in (1, -1):
        produce(broker, produced(1), acks=acks)
        assert broker.log("orders").recovery_point == broker.log("orders").log_end_offset


def test_a_truncated_request_closes_the_connection(broker: InProcessBroker, orders: bytes) -> None:
    client = broker.connect()
    client.send_bytes(struct.pack(">ihhih", 14, 0, 9, 1, -1) + b"\0\0\0\0")
    with pytest.raises(ConnectionClosed):
        client.receive_payload()


def fetched(broker: InProcessBroker, topic: str) -> bytes:
    """The bytes of partition 0 as a consumer gets them."""
    return bytes(broker.ask(fetch_request(topic), 12).responses[0].partitions[0].records)


# What keeps a leader from appending -----------------------------------------------------------------------------------


@serves(ProduceRequest, E.NOT_LEADER_OR_FOLLOWER, versions=[12])
def test_who_does_not_lead_says_who_does(broker: InProcessBroker, orders: bytes) -> None:
    broker.server.components.replicas.partition("orders", 0).leader = 2
    answer = produce(broker, produced(1))
    assert answer.error_code == E.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 0)


@serves(ProduceRequest, E.NOT_ENOUGH_REPLICAS, E.NONE, versions=[12])
def test_acks_of_all_need_enough_replicas_in_sync(broker: InProcessBroker, orders: bytes) -> None:
    broker.server.components.replicas.partition("orders", 0).in_sync_replicas = frozenset()
    assert produce(broker, produced(1)).error_code == E.NOT_ENOUGH_REPLICAS
    assert produce(broker, produced(1), acks=1).error_code == E.NONE


@serves(ProduceRequest, E.KAFKA_STORAGE_ERROR, versions=[4, 12])
@serves(ProduceRequest, E.NOT_LEADER_OR_FOLLOWER, versions=[3])
def test_a_full_disk_refuses_the_batch_and_loses_nothing(
    broker: InProcessBroker, orders: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce("orders", b"before")
    with monkeypatch.context() as full_disk:
        full_disk.setattr(File, "append_vector", _no_space)
        for version, code in ((12, E.KAFKA_STORAGE_ERROR), (4, E.KAFKA_STORAGE_ERROR), (3, E.NOT_LEADER_OR_FOLLOWER)):
            assert produce(broker, numbered(0), version).error_code == code
    assert produce(broker, numbered(0)).base_offset == 1, "there is space again: offset and sequence were given back"


def _no_space(file: File, buffers: object, position: int) -> int:
    raise DiskFull(f"no space left to write {file.path}")


@serves(ProduceRequest, E.UNKNOWN_SERVER_ERROR, E.NONE, versions=[12])
def test_a_bug_in_one_partition_is_not_the_others(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("orders", partitions=2)

    def broken(*arguments: object, **named: object) -> object:
        raise ZeroDivisionError("a bug")

    request = produce_request("orders", None)
    request.topic_data[0].partition_data = [
        ProduceRequest.TopicData.PartitionData(index=index, records=produced(1)) for index in (0, 1)
    ]
    with monkeypatch.context() as bug:
        bug.setattr(broker.log("orders", 1), "stage", broken)
        answers = broker.ask(request, 12).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [E.NONE, E.UNKNOWN_SERVER_ERROR]


@serves(ProduceRequest, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[12])
def test_a_topic_deleted_below_a_large_write_takes_the_write_with_it(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("orders", max_message_bytes=8 << 20)
    held: list[tuple[Callable[[], None], Callable[[None], None]]] = []
    monkeypatch.setattr(WorkerThread, "submit", lambda thread, job, done, failed: held.append((job, done)))
    client = broker.connect()
    client.send(produce_request("orders", produced([record(b"v" * (5 << 20))])), 12)
    assert client.has_no_answer()
    monkeypatch.undo()
    broker.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)

    ((write, written),) = held
    write()
    written(None)

    answer = client.receive().responses[0].partition_responses[0]
    assert answer.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.server.failure is None


@pytest.mark.settings(log_flush_interval_messages=1)
@serves(ProduceRequest, E.REQUEST_TIMED_OUT, versions=[12])
def test_what_is_not_acknowledged_in_time_is_said_to_be_late(
    broker: InProcessBroker, orders: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Flusher, "flush", lambda *_: None)
    client = broker.connect()
    client.send(produce_request("orders", produced(1)), 12)
    broker.advance(29_999)
    assert client.has_no_answer()
    broker.advance(1)
    assert client.receive().responses[0].partition_responses[0].error_code == E.REQUEST_TIMED_OUT
