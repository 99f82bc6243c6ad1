"""What a client is told that sends its next requests before it has the answers to the last ones."""

import pytest

from protocol.errors import ErrorCode as E
from protocol.headers import decode_response, encode_request
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.metadata import MetadataRequest
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker
from tests.support.requests import fetch_request, produce_request

LATEST = -1


def end_offset_request(topic: str) -> ListOffsetsRequest:
    """Ask where the first partition of a topic ends."""
    partition = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=LATEST)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=[partition])])


def test_metadata_behind_a_fetch_that_waits_knows_the_topic_that_was_created_meanwhile(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    client = broker.connect()
    client.send(fetch_request("orders", max_wait_ms=1500), 12)
    client.send(MetadataRequest(topics=None), 12)
    assert client.has_no_answer()
    broker.create_topic("new")
    broker.advance(1500)
    client.receive()
    assert {topic.name for topic in client.receive().topics} == {"orders", "new"}


def test_a_fetch_behind_one_that_waits_brings_what_was_produced_until_its_turn(broker: InProcessBroker) -> None:
    for topic in ("idle", "orders"):
        broker.create_topic(topic)
    client = broker.connect()
    client.send(fetch_request("idle", max_wait_ms=1500), 12)
    client.send(fetch_request("orders", max_wait_ms=1500), 12)
    broker.produce("orders", b"first")
    broker.produce("orders", b"second")
    assert client.has_no_answer()
    broker.advance(1500)
    client.receive()
    assert client.receive().responses[0].partitions[0].high_watermark == 2


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_what_is_read_behind_a_produce_has_its_records(broker: InProcessBroker, acks: int) -> None:
    broker.create_topic("orders")
    client = broker.connect()
    frames = [
        encode_request(1, "test", produce_request("orders", produced([record(b"v")]), acks=acks), 9),
        encode_request(2, "test", end_offset_request("orders"), 6),
        encode_request(3, "test", produce_request("orders", produced([record(b"v")]), acks=acks), 9),
        encode_request(4, "test", end_offset_request("orders"), 6),
    ]
    client.send_bytes(b"".join(frames))
    end_offsets = []
    for due in (2, 4) if acks == 0 else (1, 2, 3, 4):
        payload = client.receive_payload()
        if due % 2:
            continue
        correlation_id, answer = decode_response(ListOffsetsResponse, 6, payload)
        assert correlation_id == due
        end_offsets.append(answer.topics[0].partitions[0].offset)
    assert end_offsets == [1, 2]


def test_a_produce_behind_one_with_acks_0_that_is_refused_is_not_appended(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broken = bytearray(produced([record(b"v")]))
    broken[-1] ^= 1
    client = broker.connect()
    client.send_bytes(
        encode_request(1, "test", produce_request("orders", broken, acks=0), 9)
        + encode_request(2, "test", produce_request("orders", produced([record(b"v")]), acks=1), 9)
    )
    assert client.is_closed()
    assert broker.log("orders").log_end_offset == 0


def test_a_produce_behind_a_fetch_that_waits_is_appended_though_its_client_hangs_up(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    client = broker.connect()
    client.send(fetch_request("orders", max_wait_ms=1500), 12)
    client.send(produce_request("orders", produced([record(b"v")]), acks=0), 9)
    client.close()
    broker.advance(1500)
    assert broker.log("orders").log_end_offset == 1


def test_at_a_stop_requests_behind_a_fetch_that_waits_are_answered_without_waiting(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    client = broker.connect()
    for _ in range(3):
        client.send(fetch_request("orders", max_wait_ms=30_000), 12)
    client.send(MetadataRequest(topics=None), 12)
    assert client.has_no_answer()
    broker.run(broker.server.stop())
    assert [client.receive().responses[0].partitions[0].error_code for _ in range(3)] == [E.NONE] * 3
    assert [topic.name for topic in client.receive().topics] == ["orders"]
    broker.start()
