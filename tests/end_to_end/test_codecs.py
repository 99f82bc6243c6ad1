"""Every consumer reads the same records, whichever codec the producer chose."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dev.broker_process import BrokerProcess
from tests.support.clients import CODECS, Client, Record, connect, values

LINES = [f"line {number}: a line that compresses as lines of a log do".encode() for number in range(300)]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_in_order_whatever_their_codec(
    client: Client, broker: BrokerProcess, new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic()
    produced = client.produce(topic, [Record(value=line, key=b"k") for line in LINES], codec=codec)

    assert [answer.offset for answer in produced] == list(range(len(LINES)))
    assert values(client.consume_all(topic)) == LINES


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reader", ["kafka-python", "confluent-kafka", "aiokafka"])
def test_what_one_client_compressed_another_reads(
    client: Client, broker: BrokerProcess, new_topic: Callable[..., str], codec: str, reader: str
) -> None:
    topic = new_topic()
    client.produce(topic, [Record(value=line) for line in LINES[:20]], codec=codec)

    assert values(connect(reader, broker.bootstrap).consume_all(topic)) == LINES[:20]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_may_ask_for_a_codec_of_its_own(client: Client, new_topic: Callable[..., str], codec: str) -> None:
    topic = new_topic(configs={"compression.type": codec})

    client.produce(topic, [Record(value=line) for line in LINES[:50]], codec="none")
    client.produce(topic, [Record(value=line) for line in LINES[50:100]], codec="gzip")

    assert values(client.consume_all(topic)) == LINES[:100]
