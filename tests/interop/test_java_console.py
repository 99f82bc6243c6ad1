"""Kafka's own console producer and consumer, and its tool for producing under load."""

from __future__ import annotations

import json
import re

import pytest

from tests.interop.java_tools import JavaTools
from tests.support.clients import CODECS, Client, Record

NOON_MS = 1_700_000_000_000


def read(java: JavaTools, topic: str, count: int, *arguments: str, partition: int = 0) -> list[str]:
    """Records of one partition, from its start unless `arguments` say otherwise."""
    where = ("--topic", topic, "--partition", str(partition), "--max-messages", str(count))
    start = () if "--offset" in arguments else ("--offset", "earliest")
    return java.lines("kafka-console-consumer", *where, *start, *arguments)


def printing(*what: str) -> list[str]:
    """The formatter's properties that print more than the value."""
    return [word for name in what for word in ("--formatter-property", f"print.{name}=true")]


@pytest.mark.parametrize("codec", CODECS)
def test_lines_go_in_and_come_out_through_every_codec(java: JavaTools, client: Client, topic: str, codec: str) -> None:
    client.create_topic(topic)
    lines = [f"line {number} through {codec}, größer, 🐦" for number in range(300)]
    java.run(
        "kafka-console-producer", "--topic", topic, f"--compression-codec={codec}", stdin="\n".join(lines).encode()
    ).done()
    assert read(java, topic, 300) == lines


def test_keys_headers_and_tombstones_go_in(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic)
    parsing = ("parse.key=true", "parse.headers=true", "key.separator=|", "headers.delimiter=|", "null.marker=NULL")
    properties = [word for name in parsing for word in ("--reader-property", name)]
    said = b"trace:4711,part:a|order|paid\nNULL|order|NULL\n"
    java.run("kafka-console-producer", "--topic", topic, *properties, stdin=said).done()
    paid, deleted = client.consume(topic, partition=0, offset=0, count=2)
    assert (paid.key, paid.value) == (b"order", b"paid")
    assert paid.headers == (("trace", b"4711"), ("part", b"a"))
    assert (deleted.key, deleted.value) == (b"order", None)


def test_everything_about_a_record_comes_out(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    full = Record(key=b"k", value=b"v", headers=(("a", b"1"), ("b", b"2")), timestamp_ms=NOON_MS, partition=2)
    bare = Record(value=None, timestamp_ms=NOON_MS + 1, partition=2)
    client.produce(topic, [full, bare])
    shown = printing("timestamp", "partition", "offset", "headers", "key")
    assert read(java, topic, 2, *shown, partition=2) == [
        f"CreateTime:{NOON_MS}\tPartition:2\tOffset:0\ta:1,b:2\tk\tv",
        f"CreateTime:{NOON_MS + 1}\tPartition:2\tOffset:1\tNO_HEADERS\tnull\tnull",
    ]


def test_reading_begins_at_an_offset(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"%d" % n) for n in range(50)])
    assert read(java, topic, 5, "--offset", "45") == ["45", "46", "47", "48", "49"]


def test_an_offset_beyond_the_end_waits_in_vain(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"old")])
    where = ("--topic", topic, "--partition", "0", "--offset", "77", "--timeout-ms", "3000")
    outcome = java.run("kafka-console-consumer", *where, timeout_s=40)
    assert "Processed a total of 0 messages" in outcome.said


def test_reading_committed_data_gives_all_that_needed_no_commit(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"plain")])
    assert read(java, topic, 1, "--isolation-level", "read_committed") == ["plain"]


@pytest.mark.parametrize("acks", ["0", "1"])
def test_fewer_acknowledgements_do_too(java: JavaTools, client: Client, topic: str, acks: str) -> None:
    client.create_topic(topic)
    arguments = (
        "--topic",
        topic,
        "--command-property",
        f"acks={acks}",
        "--command-property",
        "enable.idempotence=false",
    )
    java.run("kafka-console-producer", *arguments, stdin=b"one\ntwo\n").done()
    assert [record.value for record in client.consume(topic, partition=0, offset=0, count=2)] == [b"one", b"two"]


def test_a_record_beyond_the_limit_of_its_topic_is_refused(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"max.message.bytes": "2000"})
    outcome = java.run("kafka-console-producer", "--topic", topic, stdin=b"x" * 3_000)
    assert "RecordTooLargeException" in outcome.said
    java.run("kafka-console-producer", "--topic", topic, stdin=b"x" * 1_000).done()
    assert [record.value for record in client.consume_all(topic)] == [b"x" * 1_000]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_load_is_acknowledged_to_the_last_record(java: JavaTools, client: Client, topic: str, codec: str) -> None:
    client.create_topic(topic, partitions=6)
    load = ("--num-records", "20000", "--record-size", "1000", "--throughput", "-1")
    tuning = ("--command-property", f"compression.type={codec}", "--command-property", "linger.ms=5")
    said = java.lines("kafka-producer-perf-test", "--topic", topic, *load, *tuning)
    assert re.match(r"20000 records sent, [\d.]+ records/sec", said[-1])
    assert sum(end for _, end in client.offsets(topic).values()) == 20_000


def test_a_verifiable_producer_is_told_every_offset(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic)
    said = [
        json.loads(line) for line in java.lines("kafka-verifiable-producer", "--topic", topic, "--max-messages", "100")
    ]
    sent = [event for event in said if event["name"] == "producer_send_success"]
    assert [(event["value"], event["offset"]) for event in sent] == [(str(n), n) for n in range(100)]
    assert (said[-1]["sent"], said[-1]["acked"]) == (100, 100)


def test_load_is_committed_in_transactions(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic)
    load = ("--num-records", "100", "--record-size", "10", "--throughput", "-1")
    tuning = ("--transactional-id", f"tx-{topic}", "--command-property", "max.block.ms=5000")
    java.run("kafka-producer-perf-test", "--topic", topic, *load, *tuning).done()
