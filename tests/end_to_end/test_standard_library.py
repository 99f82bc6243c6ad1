"""The main job on real input: thirty megabytes of source text go through, and survive a SIGKILL."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from dev.broker_process import BrokerProcess
from tests.support.clients import connect
from tests.support.stdlib_text import lines, standard_library_text

KEYS = (b"first", b"second", b"third")


@pytest.mark.timeout(600)
def test_the_standard_library_survives_a_kill_line_by_line(own_broker: BrokerProcess, topic: str) -> None:
    text = standard_library_text()
    assert len(text) > 5_000_000, "the standard library of this Python was not found"
    connect("kafka-python", own_broker.bootstrap).create_topic(topic, partitions=3)

    sent = _produce(own_broker.bootstrap, topic, text)
    own_broker.kill()
    own_broker.start()
    by_key = _consume(own_broker.bootstrap, topic, sent)

    turns = [iter(by_key[key]) for key in KEYS]
    received = b"".join(next(turns[number % 3]) + b"\n" for number in range(sent))
    assert received == text


def _produce(bootstrap: str, topic: str, text: bytes) -> int:
    """Every line as one record, under the three keys in turn; the number of lines, all acknowledged."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        sent = 0
        last: list[Any] = []
        for line in lines(text):
            future = producer.send(topic, key=KEYS[sent % 3], value=line)
            sent += 1
            last = [*last[-2:], future]
        producer.flush()
        for future in last:
            future.get(60)  # a record that failed would have failed those behind it too: the producer is idempotent
    finally:
        producer.close()
    return sent


def _consume(bootstrap: str, topic: str, count: int) -> dict[bytes, list[bytes]]:
    """The values under each key, in the order in which they came; exactly `count` of them stand in the topic."""
    received: dict[bytes, list[bytes]] = {key: [] for key in KEYS}
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        places = [TopicPartition(topic, partition) for partition in range(3)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        assert sum(consumer.end_offsets(places).values()) == count
        for record in consumer:
            received[record.key].append(record.value)
            count -= 1
            if count == 0:
                return received
    finally:
        consumer.close()
    raise AssertionError("the consumer ended before all records had come")
