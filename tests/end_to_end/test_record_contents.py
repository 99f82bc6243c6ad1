"""Keys, values, headers and time stamps come back exactly as they were sent."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.clients import Client, Record, RequestFailed, values


def test_null_and_empty_keys_and_values_stay_apart(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    sent = [
        Record(key=b"key", value=b"value"),
        Record(key=b"key", value=None),
        Record(key=None, value=b"value"),
        Record(key=b"", value=b""),
        Record(key=b"", value=None),
        Record(key=None, value=b""),
    ]

    client.produce(topic, sent)

    assert [(r.key, r.value) for r in client.consume_all(topic)] == [(r.key, r.value) for r in sent]


@pytest.mark.parametrize("client_name", ["confluent-kafka"])  # the two others refuse to send it
def test_a_record_may_have_neither_key_nor_value(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()

    client.produce(topic, [Record(key=None, value=None)])

    (received,) = client.consume_all(topic)
    assert (received.key, received.value) == (None, None)


def test_headers_keep_their_order_their_repetitions_and_any_bytes(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    headers = (("trace", b"1"), ("trace", b"2"), ("empty", b""), ("bytes", bytes(range(256))), ("Grüße", "ä".encode()))

    client.produce(topic, [Record(value=b"with", headers=headers), Record(value=b"without")])

    assert [record.headers for record in client.consume_all(topic)] == [headers, ()]


@pytest.mark.parametrize("client_name", ["confluent-kafka", "aiokafka"])  # kafka-python refuses to send it
def test_a_header_value_may_be_null(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()

    client.produce(topic, [Record(value=b"v", headers=(("null", None), ("empty", b"")))])

    assert client.consume_all(topic)[0].headers == (("null", None), ("empty", b""))


def test_a_producers_time_stamp_is_kept(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    stamps = [1_700_000_000_000, 1_600_000_000_123, 1, int(time.time() * 1000)]

    client.produce(topic, [Record(value=b"v", timestamp_ms=stamp) for stamp in stamps])

    received = client.consume_all(topic)
    assert [record.timestamp_ms for record in received] == stamps
    assert not any(record.is_log_append_time for record in received)


def test_a_topic_with_log_append_time_takes_the_brokers_clock(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)

    client.produce(topic, [Record(value=b"v", timestamp_ms=1_600_000_000_000)])

    (received,) = client.consume_all(topic)
    assert received.is_log_append_time
    assert before <= received.timestamp_ms <= int(time.time() * 1000)


def test_a_time_stamp_too_far_ahead_is_refused(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    in_two_hours = int(time.time() * 1000) + 2 * 3_600_000

    with pytest.raises(RequestFailed) as refused:
        client.produce(topic, [Record(value=b"v", timestamp_ms=in_two_hours)])

    assert refused.value.code == 32  # INVALID_TIMESTAMP: message.timestamp.after.max.ms is one hour
    assert client.consume_all(topic) == []


def test_records_go_to_the_partition_they_name(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)

    client.produce(topic, [Record(value=str(number).encode(), partition=number % 3) for number in range(9)])

    for partition in range(3):
        received = client.consume(topic, partition=partition, offset=0, count=3)
        assert values(received) == [str(number).encode() for number in range(partition, 9, 3)]
        assert [record.offset for record in received] == [0, 1, 2]
