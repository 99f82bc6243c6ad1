"""Programs that keep a table from a compacted topic, as a KTable: whenever they begin, stop and go on, it is the
producer's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until
from tests.support.cleaner_processes import await_cleaned, segment_bases
from tests.support.cleaning import table
from tests.support.clients import CLIENTS, connect
from tests.support.table_updates import TOPIC, Updates

PLACE = TopicPartition(TOPIC, 0)
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1000"}
SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "0",
}
"""The cleaner works as soon as there is a segment to clean."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_for_tests(tmp_path, settings=SETTINGS) as process:
        yield process


class Reader:
    """A program that keeps a table with kafka-python. Whatever it reads at an offset is what was written there."""

    def __init__(self, bootstrap: str, updates: Updates, *, begins_at: int = 0, **options: Any) -> None:
        """``begins_at``: an offset; the reader has the table of all updates before it from the beginning."""
        self._settings = {"bootstrap_servers": bootstrap, "auto_offset_reset": "none", **options}
        self._updates = updates
        self._consumer: KafkaConsumer | None = None
        self.begins_at = self.position = begins_at
        self.table = table(updates.sent[:begins_at])
        self.records_read = 0
        self.tombstones: set[int] = set()
        """The offsets of those that it has read."""

    def poll(self) -> None:
        """Wait for records, and read them."""
        if self._consumer is None:
            self._consumer = KafkaConsumer(**self._settings)
            self._consumer.assign([PLACE])
            self._consumer.seek(PLACE, self.position)
        next_offset = self.position
        for one in self._consumer.poll(60_000).get(PLACE, ()):
            assert one.offset >= next_offset, f"offset {one.offset} was read when {next_offset} was to come next"
            sent = self._updates.sent[one.offset]
            assert (one.key, one.value, one.timestamp) == (sent.key, sent.value, sent.timestamp_ms), one.offset
            next_offset = one.offset + 1
            self.records_read += 1
            self.table.pop(one.key, None)
            if one.value is None:
                self.tombstones.add(one.offset)
            else:
                self.table[one.key] = one.value
        position = self._consumer.position(PLACE)
        assert position >= next_offset, f"the position went from {next_offset} to {position}"
        self.position = position

    def read_to(self, end_offset: int) -> None:
        """Read until the position is there or behind it."""
        while self.position < end_offset:
            self.poll()

    def close(self) -> None:
        """Stop. The next `poll` goes on at the same position, by another consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def await_gone(broker: BrokerProcess, offset: int) -> None:
    """Wait until the record of an offset has been cleaned away."""
    client = connect("kafka-python", broker.bootstrap)
    until(
        lambda: client.consume(TOPIC, partition=0, offset=offset, count=1)[0].offset > offset,
        f"offset {offset} is cleaned away",
    )


@pytest.fixture
def updates(broker: BrokerProcess) -> Updates:
    connect("confluent-kafka", broker.bootstrap).create_topic(TOPIC, configs=COMPACTED)
    return Updates(broker.bootstrap, keys=3_000)


def test_readers_that_begin_lag_stop_and_go_on_while_the_topic_is_cleaned_end_with_the_same_table(
    broker: BrokerProcess, updates: Updates
) -> None:
    rounds = 30
    with ExitStack() as open_readers:

        def reader(begins_at: int = 0, **options: Any) -> Reader:
            found = Reader(broker.bootstrap, updates, begins_at=begins_at, **options)
            return open_readers.enter_context(closing(found))

        follower, dozing, stopped = reader(), reader(), reader()
        slow = reader(max_partition_fetch_bytes=4_000, max_poll_records=100)
        late: list[Reader] = []
        for number in range(rounds):
            updates.write(1_000)
            follower.read_to(updates.stored)
            slow.poll()
            if number < rounds // 4:
                dozing.poll()
                stopped.poll()
            elif number == rounds // 4:
                stopped.close()
                left_at = stopped.position
            elif number == rounds * 3 // 4:
                await_gone(broker, left_at)
            elif number > rounds * 3 // 4:
                stopped.poll()
            if number % 10 == 9:
                gone = updates.stored // 4
                await_gone(broker, gone)
                late += [reader(), reader(begins_at=gone)]
            for one in late:
                one.poll()
        updates.flush()
        await_gone(broker, len(updates.sent) * 3 // 4)
        for one in (follower, dozing, stopped, slow, *late):
            one.read_to(len(updates.sent))
            assert one.table == table(updates.sent)
        for one in (dozing, stopped, slow, *late):
            assert one.records_read < len(updates.sent) - one.begins_at, "all of it was read before it was cleaned"

        await_cleaned(broker.data_directory, TOPIC)
        last = reader()
        last.read_to(len(updates.sent))
        assert last.table == table(updates.sent)
        assert last.records_read < 5_000


def test_a_reader_that_has_caught_up_sees_every_tombstone_and_one_that_begins_needs_none(
    broker: BrokerProcess, updates: Updates
) -> None:
    connect("confluent-kafka", broker.bootstrap).alter_topic(TOPIC, {"delete.retention.ms": "0"})
    began_at: list[int] = []
    updates.write(900)
    with closing(Reader(broker.bootstrap, updates)) as follower:
        for _ in range(12):
            began_at.append(len(updates.sent))
            updates.begin_segment()
            updates.write(900)
            updates.flush()
            follower.read_to(len(updates.sent))
            assert follower.table == table(updates.sent)
            await_cleaned(broker.data_directory, TOPIC)
            with closing(Reader(broker.bootstrap, updates)) as new:
                new.read_to(len(updates.sent))
                assert new.table == table(updates.sent)
    written = {offset for offset, one in enumerate(updates.sent) if one.value is None}
    assert follower.tombstones == written
    # In its first round over a tombstone the cleaner writes down when it may go, and in the next it takes it away.
    assert new.tombstones == {offset for offset in written if offset >= began_at[-2]}


def test_a_million_updates_of_a_thousand_keys_read_back_as_a_table_from_few_megabytes(broker: BrokerProcess) -> None:
    segment_bytes = 2 << 20
    configs = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)}
    connect("confluent-kafka", broker.bootstrap).create_topic(TOPIC, configs=configs)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )  # fmt: skip
    expected: dict[bytes, bytes] = {}
    for number, key_number in enumerate(random.Random(29).choices(range(1_000), k=1_000_000)):
        key, value = b"key %d" % key_number, b"%030d" % number
        expected[key] = value
        producer.produce(TOPIC, value, key)
    assert producer.flush(60) == 0
    await_cleaned(broker.data_directory, TOPIC)

    directory = broker.data_directory / f"{TOPIC}-0"
    active = segment_bases(directory)[-1]
    for name in CLIENTS:
        left = connect(name, broker.bootstrap).consume_all(TOPIC)
        assert table(left) == expected, name
        assert left[-1].offset == 999_999, name
        cleaned = [one.key for one in left if one.offset < active]
        assert len(cleaned) == len(set(cleaned)), f"{name} gets a key twice from segments that are cleaned"
    on_disk = sum(path.stat().st_blocks * 512 for path in directory.iterdir())
    assert on_disk < segment_bytes + 250_000, f"{on_disk} bytes for {len(expected)} keys and the active segment"
