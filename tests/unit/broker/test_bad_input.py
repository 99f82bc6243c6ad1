"""Whatever comes in, it gets Kafka's error code or a closed connection and one line in the log, and harms nobody else.

What Apache Kafka 4.3.1 does with each of them is in the comments where it does something else.
"""

import gc
import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.handlers import configs
from config.described import describe_topic
from protocol.errors import ErrorCode as E
from protocol.headers import decode_response, encode_request
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.configs import DescribeConfigsRequest
from protocol.messages.fetch import FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceResponse
from protocol.messages.topics import CreateTopicsRequest
from protocol.primitives import MOST_ELEMENTS
from storage.batch.record_batch import HEADER_SIZE, Codec
from tests.support.batches import changed, produced, record
from tests.support.broker import Client, ConnectionClosed, InProcessBroker, running_broker
from tests.support.requests import fetch_request, produce_request

MIB = 1 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    """A broker with one topic and one record in it."""
    with running_broker(tmp_path / "data") as broker:
        broker.create_topic("orders")
        broker.produce("orders", b"first")
        yield broker


class Witness:
    """A connection that was there before and asks for nothing odd, and the log beside it."""

    def __init__(self, broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
        self._broker = broker
        self._client = broker.connect()
        self._caplog = caplog
        caplog.set_level(logging.INFO)
        self._client.ask(ApiVersionsRequest(), 0)

    def forget(self) -> None:
        """What was said so far is of no interest."""
        self._caplog.clear()

    def sees_no_harm(self, *said: str) -> None:
        """He is answered as before, no memory is held, and the log has one line more, with these values in it."""
        assert self._client.ask(MetadataRequest(topics=[]), 9).brokers
        fetched = self._client.ask(fetch_request("orders"), 12).responses[0].partitions[0]
        assert (fetched.error_code, fetched.high_watermark) == (E.NONE, self._broker.log("orders").log_end_offset)
        self._broker.settle()
        assert self._broker.held_bytes == 0
        assert self._broker.server.failure is None
        lines = [record.getMessage() for record in self._caplog.records]
        assert len(lines) == bool(said), lines
        for value in said:
            assert value in lines[0]
        self._caplog.clear()


@pytest.fixture
def witness(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> Witness:
    return Witness(broker, caplog)


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4) + payload


def header(key: int, version: int, client_id: bytes = b"\xff\xff", *, tags: bytes = b"") -> bytes:
    return struct.pack(">hhi", key, version, 7) + client_id + tags


# What closes the connection -------------------------------------------------------------------------------------------

METADATA = encode_request(7, "test", MetadataRequest(topics=[]), 9)[4:]
TOO_LARGE = 104_857_601

CLOSING = {
    "size -1": ((-1).to_bytes(4, signed=True), "-1 bytes"),
    "size of the most negative number": (b"\x80\0\0\0", "-2147483648 bytes"),
    "size 0": (bytes(4), "0 bytes"),
    "size one beyond the limit": (TOO_LARGE.to_bytes(4), f"{TOO_LARGE} bytes"),
    "size of the largest number": (b"\x7f\xff\xff\xff", "2147483647 bytes"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "1195725856 bytes"),
    "TLS": (bytes.fromhex("16030100c8010000c40303") + bytes(190), "369295616 bytes"),
    "a request shorter than its header": (frame(b"\0\3\0"), "3 bytes"),
    "a header without its tagged fields": (frame(header(3, 9)), "ends inside its header"),
    "a client id beyond the end": (frame(header(3, 1, b"\x7f\xff")), "client id of 32767 bytes"),
    "a client id of -2 bytes": (frame(header(3, 1, b"\xff\xfe")), "client id of -2 bytes"),
    "a body that is cut short": (frame(METADATA[:-1]), "MetadataRequest v9 cannot be read"),
    "no body": (frame(header(3, 1)), "MetadataRequest v1 cannot be read"),
    "an unknown API": (frame(header(999, 0)), "API 999 in version 0"),
    "a negative API": (frame(header(-5, 0)), "API -5 in version 0"),
    "an API between brokers": (frame(header(4, 0)), "API 4 in version 0"),
    "Produce before version 3": (frame(header(0, 2) + bytes(50)), "API 0 in version 2"),
    "a version to come": (frame(header(3, 99, tags=b"\0") + bytes(50)), "API 3 in version 99"),
    "a negative version": (frame(header(3, -1) + bytes(50)), "API 3 in version -1"),
    "an array larger than the body": (frame(header(3, 1) + b"\x7f\xff\xff\xff"), "topics has length 2147483647"),
    "an array of -2": (frame(header(3, 1) + b"\xff\xff\xff\xfe"), "topics has length -2"),
    "an array within an array": (
        frame(header(1, 4) + bytes(17) + struct.pack(">ihi", 1, 0, 2**31 - 1)),
        "partitions has length 2147483647",
    ),
    "null where none may be": (frame(header(3, 1) + struct.pack(">ih", 1, -1)), "name is null"),
    "a tagged field beyond the end": (frame(METADATA[:-1] + b"\1\0\xff\xff\xff\xff\x0f"), "cannot be"),
    "a varint without end": (frame(METADATA[:13] + b"\0" + b"\xff" * 9), "goes on after 5 bytes"),
    # Kafka makes an answer of them, or dies of them: 50 MB of names are too much for half a gigabyte of heap.
    "a million topics": (frame(header(3, 1) + (10**6).to_bytes(4) + bytes(2 * 10**6)), "topics has 1000000 elements"),
    "a million partitions": (
        frame(header(1, 4) + bytes(17) + struct.pack(">ihi", 1, 0, 10**6) + bytes(16 * 10**6)),
        "partitions has 1000000 elements",
    ),
    "a million tagged fields": (frame(header(18, 3, tags=b"\xc0\x84\x3d") + bytes(2 * 10**6)), "1000000 elements"),
}


@pytest.mark.parametrize(("sent", "said"), CLOSING.values(), ids=CLOSING)
def test_what_nobody_can_read_closes_the_connection(
    broker: InProcessBroker, witness: Witness, sent: bytes, said: str
) -> None:
    client = broker.connect()
    send_all(broker, client, sent)
    assert client.is_closed()
    witness.sees_no_harm("127.0.0.1:", said)


def send_all(broker: InProcessBroker, client: Client, data: bytes) -> None:
    """Send as far as the broker listens."""
    try:
        client.send_bytes(data)
    except (BrokenPipeError, ConnectionResetError):
        assert client.connection.is_closed


def test_what_was_asked_before_it_is_answered(broker: InProcessBroker, witness: Witness) -> None:
    client = broker.connect()
    client.send(ApiVersionsRequest(), 0)
    client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
    assert client.receive().error_code == E.NONE
    assert client.is_closed()
    witness.sees_no_harm("1195725856 bytes")


def test_text_in_another_encoding_is_read_as_it_can_be(broker: InProcessBroker) -> None:
    """Kafka does so too: a client id in Latin-1 is no reason to turn somebody away."""
    client = broker.connect()
    client.send_bytes(frame(header(3, 1, b"\0\2\xc3\x28") + struct.pack(">ih", 1, 2) + b"\xc3\x28"))
    _, answer = decode_response(MetadataResponse, 1, client.receive_payload())
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("\ufffd(", E.INVALID_TOPIC_EXCEPTION)]


def test_bytes_behind_a_request_are_passed_over(broker: InProcessBroker, witness: Witness) -> None:
    client = broker.connect()
    client.send_bytes(frame(METADATA + b"and more"))
    assert client.receive_payload()[:4] == bytes([0, 0, 0, 7])
    witness.sees_no_harm()


# What is refused with a code ------------------------------------------------------------------------------------------

BATCHES: dict[str, tuple[Any, E, str]] = {
    "a bad CRC": (changed(produced(), crc=1), E.CORRUPT_MESSAGE, "0x00000001"),
    "magic 3": (changed(produced(), magic=3), E.CORRUPT_MESSAGE, "Invalid magic found in record: 3"),
    "magic 1": (changed(produced(), magic=1), E.INVALID_RECORD, "magic 1"),
    "a length of 10": (changed(produced(), batch_length=10), E.CORRUPT_MESSAGE, "Record size 10 is less"),
    "a negative length": (changed(produced(), batch_length=-1), E.CORRUPT_MESSAGE, "Record size -1 is less"),
    "half a batch": (produced()[:70], E.INVALID_RECORD, "70 bytes"),
    "null": (None, E.INVALID_RECORD, "no records"),  # never answered by Kafka
    "nothing": (b"", E.INVALID_RECORD, "0 bytes"),
    "two batches": (bytes(produced()) * 2, E.INVALID_RECORD, "another batch"),
    "a base offset": (changed(produced(), base_offset=5), E.INVALID_RECORD, "has 5"),
    "more records than it counts": (
        changed(produced(3), record_count=2, last_offset_delta=1),
        E.INVALID_RECORD,
        "follow the last of 2 records",
    ),
    "a record count of -1": (
        changed(produced(), record_count=-1, last_offset_delta=-2),
        E.INVALID_RECORD,
        "counts -1 records",
    ),
    "a record count beyond its bytes": (
        changed(produced(), record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        E.INVALID_RECORD,
        "2147483647 records",
    ),
    "a control batch": (changed(produced(), attributes=0x20), E.INVALID_RECORD, "control batch"),
    "a codec that is none": (changed(produced(), attributes=5), E.UNKNOWN_SERVER_ERROR, "codec 5"),
    "bytes that no codec opens": (changed(produced(), attributes=Codec.GZIP), E.UNKNOWN_SERVER_ERROR, "gzip"),
    "a producer without a sequence": (
        changed(produced(), producer_id=7, producer_epoch=0),
        E.INVALID_RECORD,
        "base sequence -1",
    ),
    "more than max.message.bytes": (produced([record(bytes(MIB + 12))]), E.MESSAGE_TOO_LARGE, "1048588"),
}


@pytest.mark.parametrize(("batch", "code", "said"), BATCHES.values(), ids=BATCHES)
def test_a_bad_batch_is_refused_and_named(
    broker: InProcessBroker, witness: Witness, batch: Any, code: E, said: str
) -> None:
    answer = broker.connect().ask(produce_request("orders", batch), 12).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert broker.log("orders").log_end_offset == 1
    witness.sees_no_harm("127.0.0.1:", "orders-0", f"{len(batch or b'')} bytes", said)


def test_a_sequence_out_of_order_is_refused_and_named(broker: InProcessBroker, witness: Witness) -> None:
    client = broker.connect()
    for sequence, code in ((0, E.NONE), (5, E.OUT_OF_ORDER_SEQUENCE_NUMBER)):
        batch = produced(1, producer_id=7, producer_epoch=0, base_sequence=sequence)
        answer = client.ask(produce_request("orders", batch), 12).responses[0].partition_responses[0]
        assert answer.error_code == code
    witness.sees_no_harm("orders-0", "5")


REFUSALS: dict[str, tuple[str, dict[str, int]]] = {
    "no such topic": ("nowhere", {}),
    "a bad CRC": ("orders", {"crc": 1}),
    "a codec that is none": ("orders", {"attributes": 5}),
    "a transaction without an id": ("orders", {"attributes": 0x10}),
    "bytes that no codec opens": ("compacted", {"attributes": Codec.ZSTD}),
}


def test_the_processors_of_a_broker_have_one_pool(broker: InProcessBroker) -> None:
    processors = broker.server.socket_server.processors
    assert len(processors) == 3
    assert len({id(processor.pool) for processor in processors}) == 1


@pytest.mark.parametrize(("topic", "fields"), REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("acks", [0, -1])
def test_a_refused_request_lets_go_of_its_memory_at_once(
    broker: InProcessBroker, topic: str, fields: dict[str, int], acks: int
) -> None:
    """A buffer that somebody still looks into is never lent again: a reference cycle would keep it until the garbage
    collector comes, which here may be never."""
    broker.create_topic("compacted", cleanup_policy="compact")
    batch = changed(produced([record(bytes(900_000))]), **fields)
    free_bytes = broker.server.socket_server.processors[0].pool.free_bytes
    client = broker.connect()
    gc.disable()
    try:
        client.send(produce_request(topic, batch, acks=acks), 9)
        if acks:
            assert client.receive().responses[0].partition_responses[0].error_code != E.NONE
        else:
            assert client.is_closed()
        broker.settle()
        assert broker.held_bytes == 0
        assert broker.server.socket_server.processors[0].pool.free_bytes >= free_bytes + MIB
    finally:
        gc.enable()


NAMES = {
    "nothing": ("", "the empty string is not allowed"),
    "here": (".", "'.' is not allowed"),
    "above": ("..", "'..' is not allowed"),
    "250 characters": ("x" * 250, "is longer than the max allowed length 249"),
    "a path": ("a/b", "'a/b' contains one or more characters"),
    "a way out": ("../../orders", "'../../orders' contains one or more characters"),
    "NUL": ("a\0b", "contains one or more characters other"),
    "a line break": ("a\nb", "contains one or more characters other"),
    "letters of another alphabet": ("заказы", "'заказы' contains one or more characters"),
}


@pytest.mark.parametrize(("name", "said"), NAMES.values(), ids=NAMES)
def test_a_name_that_no_topic_may_have_is_refused_and_touches_no_file(
    broker: InProcessBroker, witness: Witness, name: str, said: str
) -> None:
    before = sorted(path.name for path in broker.directory.parent.rglob("*"))
    client = broker.connect()
    (created,) = client.ask(create_topic(name, 1), 7).topics
    assert created.error_code == E.INVALID_TOPIC_EXCEPTION
    witness.sees_no_harm("127.0.0.1:", said)
    (described,) = client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=name)]), 9).topics
    assert described.error_code == E.INVALID_TOPIC_EXCEPTION
    witness.sees_no_harm("127.0.0.1:", said)
    (written,) = client.ask(produce_request(name, produced()), 9).responses
    assert written.partition_responses[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    if name:
        (fetched,) = client.ask(fetch_request(name), 12).responses
        assert fetched.partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert sorted(path.name for path in broker.directory.parent.rglob("*")) == before
    witness.sees_no_harm()


def create_topic(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.Topic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic])


@pytest.mark.parametrize("partitions", [10_001, 10_000_000, 2**31 - 1])
def test_ten_million_partitions_are_a_violation_of_policy(
    broker: InProcessBroker, witness: Witness, partitions: int
) -> None:
    (created,) = broker.connect().ask(create_topic("large", partitions), 7).topics
    assert created.error_code == E.POLICY_VIOLATION
    assert broker.topics() == {"orders"}
    witness.sees_no_harm("127.0.0.1:", str(partitions))


def test_a_resource_that_is_named_again_and_again_is_described_once(broker: InProcessBroker, witness: Witness) -> None:
    orders = DescribeConfigsRequest.Resource(resource_type=2, resource_name="orders", configuration_keys=None)
    answer = broker.connect().ask(DescribeConfigsRequest(resources=[orders] * (MOST_ELEMENTS - 10)), 4)
    assert [len(result.configs) for result in answer.results] == [39]
    witness.sees_no_harm()


def test_a_resource_that_is_asked_for_many_configs_one_by_one_is_described_once(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = 0

    def counted(overrides: Any, broker: Any) -> Any:
        nonlocal times
        times += 1
        return describe_topic(overrides, broker)

    monkeypatch.setattr(configs, "describe_topic", counted)
    names = ["retention.ms", "segment.bytes", "unknown"]
    asked = [
        DescribeConfigsRequest.Resource(resource_type=2, resource_name="orders", configuration_keys=[name])
        for name in names
    ]
    answer = broker.connect().ask(DescribeConfigsRequest(resources=asked), 4)
    assert [[config.name for config in result.configs] for result in answer.results] == [
        ["retention.ms"],
        ["segment.bytes"],
        [],
    ]
    assert times == 1


# Cut off --------------------------------------------------------------------------------------------------------------


def hang_up_after(broker: InProcessBroker, sent: bytes) -> None:
    client = broker.connect()
    if sent:
        client.send_bytes(sent)
    client.close()
    assert client.connection.is_closed


def test_a_request_may_be_cut_off_at_every_byte(
    broker: InProcessBroker, witness: Witness, caplog: pytest.LogCaptureFixture
) -> None:
    batch = produced([record(b"whole")])
    produce = encode_request(7, "test", produce_request("orders", batch), 12)
    fetch = encode_request(7, "test", fetch_request("orders"), 12)
    for request in (produce, fetch):
        for length in range(len(request)):
            hang_up_after(broker, request[:length])
            lines = [one.getMessage() for one in caplog.records]
            assert len(lines) == (length > 0), f"cut at {length}: {lines}"
            assert not length or f"left {length} bytes into a request" in lines[0]
            caplog.clear()
            assert broker.held_bytes == 0
        assert broker.log("orders").log_end_offset == 1
    witness.sees_no_harm()
    # Whole it counts, whether somebody waits for the answer or not.
    hang_up_after(broker, produce)
    assert broker.log("orders").log_end_offset == 2
    witness.sees_no_harm()


def test_an_answer_may_be_cut_off_at_every_byte(
    broker: InProcessBroker, witness: Witness, caplog: pytest.LogCaptureFixture
) -> None:
    produce = encode_request(7, "test", produce_request("orders", produced([record(b"again")])), 12)
    fetch = encode_request(7, "test", fetch_request("orders"), 12)
    taken = 0
    for request, response_class in ((produce, ProduceResponse), (fetch, FetchResponse)):
        client = broker.connect()
        client.send_bytes(request)
        whole = client.receive_payload()
        assert decode_response(response_class, 12, whole)[0] == 7
        for length in range(len(whole) + 4):
            client = broker.connect()
            client.send_bytes(request)
            assert len(broker.run(client.receive_bytes(length))) == length
            client.close()
            broker.settle()
            assert client.connection.is_closed
            assert broker.held_bytes == 0
            taken += request is produce
    assert broker.log("orders").log_end_offset == 1 + 1 + taken
    assert not caplog.records
    witness.sees_no_harm()


def test_who_asks_much_and_takes_nothing_holds_up_nobody(broker: InProcessBroker, witness: Witness) -> None:
    for _ in range(20):
        broker.produce("orders", bytes(MIB // 2))
    witness.sees_no_harm()
    client = broker.connect()
    for _ in range(30):
        client.send(fetch_request("orders", partition_max_bytes=10 * MIB, max_bytes=10 * MIB), 12)
    witness.sees_no_harm()
    client.close()
    with pytest.raises((ConnectionClosed, OSError)):
        client.receive()
    witness.sees_no_harm()


# Much out of little ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_opens_to_too_much_is_refused_where_it_is_opened(
    broker: InProcessBroker, witness: Witness, codec: Codec
) -> None:
    broker.create_topic("compacted", cleanup_policy="compact", max_message_bytes=8 * MIB)
    witness.forget()
    whole = produced([record(bytes(128 * MIB + 1))], codec=codec)
    assert len(whole) - HEADER_SIZE < 8 * MIB
    answer = broker.connect().ask(produce_request("compacted", whole), 12).responses[0].partition_responses[0]
    assert answer.error_code == E.MESSAGE_TOO_LARGE
    witness.sees_no_harm("127.0.0.1:", "compacted-0", f"open to more than {128 * MIB} bytes")


def list_offsets(topic: str, timestamp: int = -1) -> ListOffsetsRequest:
    partition = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=[partition])])


def described(resource_type: int, name: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.Resource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    return DescribeConfigsRequest(resources=[resource])


ASKED: dict[str, tuple[Any, int]] = {
    "a fetch of an unknown topic": (fetch_request("nowhere"), 12),
    "a fetch of an unknown partition": (fetch_request("orders", partition=9), 12),
    "a fetch of an offset that is not there": (fetch_request("orders", offset=1 << 40), 12),
    "a fetch in an unknown epoch": (fetch_request("orders", partition_fields={"current_leader_epoch": 9}), 12),
    "a fetch of -1 bytes": (fetch_request("orders", partition_max_bytes=-1), 12),
    "offsets of an unknown topic": (list_offsets("nowhere"), 8),
    "offsets of an odd time": (list_offsets("orders", timestamp=-99), 8),
    "a topic of a bad name": (create_topic("a/b", 1), 7),
    "configs of a bad type": (described(99, "orders"), 4),
    "configs of an unknown topic": (described(2, "nowhere"), 4),
}


@pytest.mark.parametrize(("request_", "version"), ASKED.values(), ids=ASKED)
def test_a_large_request_with_a_mistake_lets_go_of_its_memory_at_once(
    broker: InProcessBroker, request_: Any, version: int
) -> None:
    asked = encode_request(7, "test", request_, version)[4:]
    free_bytes = broker.server.socket_server.processors[0].pool.free_bytes
    client = broker.connect()
    gc.disable()
    try:
        client.send_bytes(frame(asked + bytes(900_000)))
        assert client.receive_payload()[:4] == bytes([0, 0, 0, 7])
        broker.settle()
        assert broker.held_bytes == 0
        assert broker.server.socket_server.processors[0].pool.free_bytes >= free_bytes + MIB
    finally:
        gc.enable()
