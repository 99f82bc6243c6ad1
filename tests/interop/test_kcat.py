"""kcat, which is librdkafka at a shell's prompt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.interop import programs
from tests.interop.conftest import installed
from tests.interop.programs import Outcome, Running
from tests.support.clients import CODECS, Client, Committed, Place, Record

NOON_MS = 1_700_000_000_000


class Kcat:
    """kcat with the broker's address."""

    def __init__(self, path: str, bootstrap: str) -> None:
        self.path = path
        self.bootstrap = bootstrap

    def run(self, *arguments: str, stdin: bytes = b"", timeout_s: float = 30.0) -> Outcome:
        return programs.run([self.path, "-b", self.bootstrap, *arguments], stdin=stdin, timeout_s=timeout_s)

    def begin(self, *arguments: str) -> Running:
        """kcat until it is ended."""
        return Running([self.path, "-b", self.bootstrap, *arguments])

    def produce(self, topic: str, *arguments: str, stdin: bytes) -> Outcome:
        return self.run("-P", "-t", topic, *arguments, stdin=stdin)

    def consume(self, topic: str, *arguments: str) -> Outcome:
        """Read to the end of every partition asked for, without the remarks about having reached it."""
        return self.run("-C", "-q", "-e", "-t", topic, *arguments)

    def records(self, topic: str, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.consume(topic, "-J", *arguments).done().lines]


@pytest.fixture(scope="session")
def kcat(broker: BrokerProcess) -> Kcat:
    return Kcat(installed(programs.kcat), broker.bootstrap)


def test_the_listing_shows_the_broker_and_every_partition(kcat: Kcat, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=12)
    listing = json.loads(kcat.run("-L", "-J", "-t", topic).done().output)
    (node,) = listing["brokers"]
    assert node["name"] == kcat.bootstrap
    assert listing["controllerid"] == node["id"]
    (described,) = listing["topics"]
    itself = [{"id": node["id"]}]
    assert described == {
        "topic": topic,
        "partitions": [
            {"partition": number, "leader": node["id"], "replicas": itself, "isrs": itself} for number in range(12)
        ],
    }


def test_the_listing_of_everything_is_for_people_too(kcat: Kcat, client: Client, topic: str) -> None:
    client.create_topic(topic)
    said = kcat.run("-L").done().output
    assert " 1 brokers:" in said
    assert f'topic "{topic}" with 1 partitions:' in said


def test_asking_for_a_topic_by_name_creates_it(kcat: Kcat, client: Client, topic: str) -> None:
    kcat.run("-L", "-t", topic).done()
    until(lambda: topic in client.topics(), "creating a topic that was asked about")


def test_a_topic_that_nobody_may_create_is_said_to_be_unknown(kcat: Kcat, client: Client, topic: str) -> None:
    said = kcat.run("-L", "-t", topic, "-X", "allow.auto.create.topics=false").done().output
    assert f'topic "{topic}" with 0 partitions: Broker: Unknown topic or partition' in said
    assert topic not in client.topics()


@pytest.mark.parametrize("codec", CODECS)
def test_lines_come_back_through_every_codec(kcat: Kcat, topic: str, codec: str) -> None:
    lines = [f"line {number} through {codec}" for number in range(2_000)]
    kcat.produce(topic, "-z", codec, stdin="\n".join(lines).encode()).done()
    assert kcat.consume(topic, "-o", "beginning").done().lines == lines


def test_keys_headers_and_tombstones_come_back(kcat: Kcat, topic: str) -> None:
    headers = ("-H", "trace=4711", "-H", "empty=", "-H", "trace=again")
    kcat.produce(topic, "-K", ":", "-Z", *headers, stdin=b"order:paid\norder:\n").done()
    paid, deleted = kcat.records(topic)
    assert (paid["key"], paid["payload"]) == ("order", "paid")
    assert (deleted["key"], deleted["payload"]) == ("order", None)
    assert paid["headers"] == ["trace", "4711", "empty", "", "trace", "again"]


def test_text_in_every_script_comes_back(kcat: Kcat, topic: str) -> None:
    text = "Grüße, Привет, こんにちは, 🐦"
    kcat.produce(topic, "-k", "ключ", "-H", "größe=çok", stdin=text.encode()).done()
    (record,) = kcat.records(topic)
    assert (record["key"], record["payload"], record["headers"]) == ("ключ", text, ["größe", "çok"])


def test_a_partition_is_written_and_read_by_its_number(kcat: Kcat, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=5)
    for partition in range(5):
        kcat.produce(topic, "-p", str(partition), stdin=f"for {partition}".encode()).done()
    for partition in range(5):
        assert kcat.consume(topic, "-p", str(partition)).done().lines == [f"for {partition}"]
    assert sorted(kcat.consume(topic).done().lines) == [f"for {partition}" for partition in range(5)]


def test_a_partition_that_is_not_there_is_refused(kcat: Kcat, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    assert "partition 2 does not exist" in kcat.consume(topic, "-p", "2").refused().errors
    assert "Unknown partition" in kcat.produce(topic, "-p", "2", stdin=b"lost").refused().errors


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("beginning", range(10)),
        ("3", range(3, 10)),
        ("-2", range(8, 10)),
        ("end", range(0)),
        (f"s@{NOON_MS + 4_000}", range(4, 10)),
        (f"s@{NOON_MS + 3_999}", range(4, 10)),
        (f"s@{NOON_MS + 9_001}", range(0)),
    ],
)
def test_reading_begins_where_it_is_told_to(
    kcat: Kcat, client: Client, topic: str, offset: str, expected: range
) -> None:
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"%d" % n, timestamp_ms=NOON_MS + n * 1_000) for n in range(10)])
    read = kcat.consume(topic, "-p", "0", "-o", offset).done().lines
    assert read == [str(number) for number in expected]


def test_reading_ends_before_a_time(kcat: Kcat, client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"%d" % n, timestamp_ms=NOON_MS + n * 1_000) for n in range(10)])
    window = ("-o", f"s@{NOON_MS + 2_000}", "-o", f"e@{NOON_MS + 5_000}")
    assert kcat.consume(topic, "-p", "0", *window).done().lines == ["2", "3", "4"]


def test_offsets_are_asked_for_by_time(kcat: Kcat, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    sent = [Record(value=b"x", partition=1, timestamp_ms=NOON_MS + n * 1_000) for n in range(10)]
    client.produce(topic, sent)

    def offset_at(partition: int, timestamp_ms: int) -> str:
        return kcat.run("-Q", "-t", f"{topic}:{partition}:{timestamp_ms}").done().output.strip()

    assert offset_at(1, -2) == f"{topic} [1] offset 0"
    assert offset_at(1, -1) == f"{topic} [1] offset 10"
    assert offset_at(1, NOON_MS + 6_500) == f"{topic} [1] offset 7"
    assert offset_at(1, NOON_MS + 60_000) == f"{topic} [1] offset -1"
    assert offset_at(0, NOON_MS) == f"{topic} [0] offset -1"


def test_an_offset_beyond_the_end_is_out_of_range(kcat: Kcat, client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"only")])
    beyond = kcat.consume(topic, "-p", "0", "-o", "1000", "-X", "topic.auto.offset.reset=error")
    assert "Offset out of range" in beyond.refused().errors
    assert kcat.consume(topic, "-p", "0", "-o", "1000", "-X", "topic.auto.offset.reset=earliest").done().lines == [
        "only"
    ]


def test_a_format_prints_what_the_broker_answered(kcat: Kcat, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    headers = (("a", b"1"),)
    client.produce(topic, [Record(key=b"k", value=b"v", headers=headers, partition=1, timestamp_ms=NOON_MS)])
    said = kcat.consume(topic, "-f", r"%t/%p/%o/%k/%K/%s/%S/%T/%h\n").done().lines
    assert said == [f"{topic}/1/0/k/1/v/1/{NOON_MS}/a=1"]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_is_given(kcat: Kcat, client: Client, topic: str, acks: str) -> None:
    client.create_topic(topic)
    lines = [f"{number} with acks={acks}" for number in range(100)]
    kcat.produce(topic, "-X", f"topic.acks={acks}", stdin="\n".join(lines).encode()).done()
    assert kcat.run("-C", "-q", "-t", topic, "-o", "beginning", "-c", "100").done().lines == lines


def test_an_idempotent_producer_keeps_its_order(kcat: Kcat, topic: str) -> None:
    lines = [str(number) for number in range(5_000)]
    in_small_batches = ("-X", "enable.idempotence=true", "-X", "batch.num.messages=50")
    kcat.produce(topic, *in_small_batches, stdin="\n".join(lines).encode()).done()
    assert kcat.consume(topic, "-o", "beginning").done().lines == lines


def test_a_large_value_comes_back_and_a_larger_one_is_refused(kcat: Kcat, client: Client, topic: str) -> None:
    client.create_topic(topic)
    limit_raised = ("-D", "|", "-X", "message.max.bytes=4000000")
    large = "0123456789" * 100_000
    kcat.produce(topic, *limit_raised, stdin=large.encode()).done()
    assert kcat.consume(topic, "-o", "beginning").done().output.strip() == large
    refused = kcat.produce(topic, *limit_raised, stdin=(large * 2).encode())
    assert "Message size too large" in refused.said
    assert client.offsets(topic) == {0: (0, 1)}


def test_many_partitions_are_read_in_one_go_with_small_fetches(kcat: Kcat, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=50)
    client.produce(topic, [Record(value=b"%d" % n, partition=n % 50) for n in range(1_000)])
    read = kcat.consume(topic, "-o", "beginning", "-X", "fetch.message.max.bytes=200")
    assert sorted(map(int, read.done().lines)) == list(range(1_000))


def test_reading_committed_data_gives_all_that_needed_no_commit(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, stdin=b"plain").done()
    assert kcat.consume(topic, "-X", "isolation.level=read_committed").done().lines == ["plain"]


# In a group


def numbered(numbers: range) -> list[Record]:
    """For four partitions in turns."""
    return [Record(value=b"%d" % n, partition=n % 4) for n in numbers]


def test_a_group_goes_on_where_it_stopped(kcat: Kcat, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=4)
    group = f"group-of-{topic}"
    for numbers in (range(100), range(100, 140)):
        client.produce(topic, numbered(numbers))
        read = kcat.run("-G", group, "-q", "-e", "-X", "auto.offset.reset=earliest", topic)
        assert sorted(map(int, read.done().lines)) == list(numbers)
        at = {Place(topic, number): Committed(numbers.stop // 4) for number in range(4)}
        assert client.committed(group, at) == at
    assert client.describe_group(group).state == "Empty"


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_two_share_a_topic_and_the_other_takes_over_from_one_that_leaves(
    kcat: Kcat, client: Client, topic: str, assignor: str
) -> None:
    client.create_topic(topic, partitions=4)
    group = f"group-of-{topic}"
    options = (f"partition.assignment.strategy={assignor}", "heartbeat.interval.ms=250", "auto.offset.reset=earliest")
    words = ["-G", group, "-q", "-u", *(word for option in options for word in ("-X", option)), topic]

    def parts() -> list[int]:
        return [len(part) for part in client.describe_group(group).assignments]

    with kcat.begin(*words) as one, kcat.begin(*words) as other:
        until(lambda: parts() == [2, 2], "a part for each")
        client.produce(topic, numbered(range(40)))
        until(lambda: len(one.lines) + len(other.lines) == 40, "40 lines")
        assert sorted(map(int, one.lines + other.lines)) == list(range(40))
        assert [len({int(line) % 4 for line in each.lines}) for each in (one, other)] == [2, 2]
        one.end()
        until(lambda: parts() == [4], "everything for the one that stays")
        client.produce(topic, numbered(range(40, 60)))
        until(lambda: set(range(40, 60)) <= set(map(int, other.lines)), "20 lines more")
        other.end()
        assert len(one.lines) + len(other.lines) == 60
    at = {Place(topic, number): Committed(15) for number in range(4)}
    assert client.committed(group, at) == at


# What is still to come


def test_a_transaction_is_committed_at_the_end_of_the_input(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, "-X", f"transactional.id=tx-{topic}", stdin=b"one\ntwo\n").done()
    assert kcat.consume(topic, "-X", "isolation.level=read_committed").done().lines == ["one", "two"]
