"""A compacted topic is a table: whatever happens while it is cleaned, the last value of each key is read back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import InvalidRecordError

from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.support.cleaner_processes import await_cleaned, await_cleaner, cleaner_processes, kill_cleaner
from tests.support.cleaning import table as last_values
from tests.support.clients import CODECS, Client, Committed, Place, Received, Record, connect
from tests.support.clients.kafka_python_client import received as received_by_kafka_python
from tests.support.clients.transactions import FENCE, ConfluentProducer, Fenced, read

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="the processes that clean are Ottla's",
)

SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "1048576",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.segment.bytes": "1048576",
}
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "5000"}
FAST = {"log.cleaner.io.max.bytes.per.second": "1e9"}
SLOWLY = {"log.cleaner.io.max.bytes.per.second": "100000"}
"""A round takes seconds."""
STALLED = {"log.cleaner.io.max.bytes.per.second": "2000"}
"""A round takes longer than a test."""

TABLE_CLIENTS = ("kafka-python", "confluent-kafka")
VALUE_BYTES = 300


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, settings=SETTINGS) as process:
        yield process


class Updates:
    """Updates of some keys, every seventh of them a deletion; the table that they come to."""

    def __init__(self, keys: int = 40) -> None:
        self.table: dict[bytes, bytes] = {}
        self.sent = 0
        self._keys = keys
        self._began_ms = int(time.time() * 1000) - 3_000_000

    def write(self, client: Client, topic: str = "table", *, count: int = 400, partition: int = 0) -> None:
        """Produce more of them; each hundred begins a segment."""
        for _ in range(0, count, 100):
            client.produce(topic, [replace(self._one(), partition=partition) for _ in range(100)])

    def _one(self) -> Record:
        number = self.sent
        self.sent += 1
        key = b"key %d" % (number * 17 % self._keys)
        value = None if number % 7 == 0 else (b"%d " % number).ljust(VALUE_BYTES, b".")
        self.table.pop(key, None)
        if value is not None:
            self.table[key] = value
        return Record(key=key, value=value, timestamp_ms=self._began_ms + number * 100)


def table(received: Sequence[Received]) -> dict[bytes, bytes]:
    """The last value of each key; offsets rise."""
    offsets = [one.offset for one in received]
    assert offsets == sorted(set(offsets))
    return last_values(received)


def alter_broker(broker: BrokerProcess, configs: Mapping[str, str]) -> None:
    """Change configs of the running broker, as `kafka-configs` does."""
    changes = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()]
    resource = ConfigResource(ResourceType.BROKER, str(broker.node_id), incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)


@pytest.mark.parametrize("name", TABLE_CLIENTS)
def test_the_table_is_exact_though_broker_and_cleaner_are_killed_while_they_clean(
    broker: BrokerProcess, name: str
) -> None:
    client, updates = connect(name, broker.bootstrap), Updates()
    client.create_topic("table", configs=COMPACTED)
    write_while_a_cleaner_dies(broker, client, updates)
    broker.kill()
    broker.start()
    assert table(client.consume_all("table")) == updates.table
    write_while_a_cleaner_dies(broker, client, updates)
    alter_broker(broker, FAST)
    kill_cleaner(broker)
    await_cleaned(broker.data_directory, "table")
    left = client.consume_all("table")
    assert table(left) == updates.table
    assert len(left) < 200, f"of {updates.sent} records over 40 keys {len(left)} are left"


def write_while_a_cleaner_dies(broker: BrokerProcess, client: Client, updates: Updates) -> None:
    """The log is being cleaned afterwards, by another process."""
    alter_broker(broker, STALLED)
    updates.write(client)
    kill_cleaner(broker)
    await_cleaner(broker)
    assert table(client.consume_all("table")) == updates.table


@pytest.mark.parametrize("name", TABLE_CLIENTS)
def test_a_fetch_at_an_offset_that_is_gone_gets_the_next_there_is(broker: BrokerProcess, name: str) -> None:
    client = connect(name, broker.bootstrap)
    client.create_topic("table", configs=COMPACTED)
    Updates().write(client, count=600)
    await_cleaned(broker.data_directory, "table")
    first = client.consume_all("table")[0].offset
    assert first > 100

    assert client.consume("table", partition=0, offset=first - 1, count=2)[0].offset == first


def test_a_consumer_in_the_middle_of_a_log_goes_on_while_it_is_cleaned(broker: BrokerProcess) -> None:
    client, updates = connect("kafka-python", broker.bootstrap), Updates()
    client.create_topic("table", configs=COMPACTED | {"min.cleanable.dirty.ratio": "1"})
    updates.write(client, count=1_000)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, max_partition_fetch_bytes=2_000)) as consumer:
        place = TopicPartition("table", 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        received = read_to(consumer, 300)
        assert received[-1].offset < 500
        client.alter_topic("table", {"min.cleanable.dirty.ratio": "0"})
        await_cleaned(broker.data_directory, "table")
        received += read_to(consumer, 1_000)
    assert table(received) == updates.table
    assert len(received) < 900, "the second half has been cleaned when it was read"


def read_to(consumer: KafkaConsumer, end_offset: int) -> list[Received]:
    """Poll until the consumer is at an offset or behind it."""
    place = TopicPartition("table", 0)
    got: list[Received] = []
    while consumer.position(place) < end_offset:
        for found in consumer.poll(60_000, max_records=50).values():
            got += [received_by_kafka_python(one) for one in found]
    return got


def test_a_record_without_a_key_is_refused_and_nothing_else_with_it(broker: BrokerProcess) -> None:
    client = connect("kafka-python", broker.bootstrap)
    client.create_topic("table", configs=COMPACTED)
    client.create_topic("events")
    for number, codec in enumerate(CODECS):
        options: dict[str, Any] = {"linger_ms": 200, "retries": 0, "enable_idempotence": False}
        if codec != "none":
            options["compression_type"] = codec
        with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, **options)) as producer:
            producer.partitions_for("table")
            producer.partitions_for("events")
            refused, taken = producer.send("table", value=b"no key"), producer.send("events", value=b"no key")
            with pytest.raises(InvalidRecordError):
                refused.get(60)
            assert taken.get(60).offset == number
            assert producer.send("table", key=b"key", value=b"value").get(60).offset == number


def test_the_offsets_topic_stays_small_and_right(broker: BrokerProcess) -> None:
    client = connect("confluent-kafka", broker.bootstrap)
    places = [Place("orders", number) for number in range(40)]
    client.create_topic("orders", partitions=len(places))
    for number in range(100):
        client.commit("readers", {place: Committed(number, "m" * 900) for place in places})
    data, directory = broker.data_directory, broker.data_directory / "__consumer_offsets-0"
    await_cleaned(data, "__consumer_offsets")
    stored = sum(path.stat().st_size for path in directory.glob("*.log"))
    assert stored < 1_500_000, f"{stored} bytes for {len(places)} offsets of 900 bytes each, beside the active segment"
    for end in (broker.stop, broker.kill):
        end()
        broker.start()
        assert client.committed("readers", places) == {place: Committed(99, "m" * 900) for place in places}


def test_the_transactions_topic_stays_small_and_right(broker: BrokerProcess) -> None:
    client = connect("confluent-kafka", broker.bootstrap)
    places = [Place(str(number).ljust(200, "n"), 0) for number in range(20)]
    for place in places:
        client.create_topic(place.topic)

    def write(producer: ConfluentProducer, value: bytes, to: Sequence[Place]) -> None:
        producer.begin()
        for place in to:
            producer.send(place, value)
        producer.commit()

    producer = ConfluentProducer(broker.bootstrap, "writer")
    for number in range(200):
        write(producer, b"%d" % number, places)
    data, directory = broker.data_directory, broker.data_directory / "__transaction_state-0"
    await_cleaned(data, "__transaction_state")
    stored = sum(path.stat().st_size for path in directory.glob("*.log"))
    assert stored < 1_000_000, f"{stored} bytes for the state of one transactional id, beside the active segment"
    for number, end in ((200, broker.stop), (201, broker.kill)):
        end()
        broker.start()
        write(ConfluentProducer(broker.bootstrap, "writer"), b"%d" % number, places[:1])
    with pytest.raises(Fenced):
        write(producer, b"zombie", places[:1])
    client.produce(places[0].topic, [Record(value=FENCE)])
    values = read(broker.bootstrap, "confluent-kafka", places[:1], isolation="read_committed")
    assert values == [b"%d" % number for number in range(202)]


def test_a_topic_is_deleted_and_made_anew_while_it_is_cleaned(broker: BrokerProcess) -> None:
    client = connect("confluent-kafka", broker.bootstrap)
    alter_broker(broker, SLOWLY | {"log.cleaner.threads": "2"})
    alter_broker(broker, {"log.cleaner.threads": "3"})  # no more than twice as many at once
    client.create_topic("table", partitions=2, configs=COMPACTED)
    for partition in range(2):
        Updates().write(client, partition=partition)
    await_cleaner(broker)
    client.delete_topic("table")
    until(lambda: "table" not in client.topics(), "the topic is gone")
    alter_broker(broker, FAST)

    updates = Updates()
    client.create_topic("table", configs=COMPACTED)
    updates.write(client)
    await_cleaned(broker.data_directory, "table")
    assert table(client.consume_all("table")) == updates.table
    assert " ERROR " not in broker.log_text()


def test_the_policy_may_change_while_a_log_is_cleaned(broker: BrokerProcess) -> None:
    client, updates = connect("confluent-kafka", broker.bootstrap), Updates()
    alter_broker(broker, SLOWLY)
    client.create_topic("table", configs=COMPACTED)
    updates.write(client)
    await_cleaner(broker)
    client.alter_topic("table", {"cleanup.policy": "delete", "retention.ms": "-1"})
    alter_broker(broker, FAST)
    until(lambda: not cleaner_processes(broker), "the round is over")
    updates.write(client, count=200)
    assert table(client.consume_all("table")) == updates.table

    client.alter_topic("table", {"cleanup.policy": "compact"})
    await_cleaned(broker.data_directory, "table")
    left = client.consume_all("table")
    assert table(left) == updates.table
    assert len(left) < 300
    assert " ERROR " not in broker.log_text()


def test_the_number_of_cleaners_and_their_rest_change_while_the_broker_runs(broker: BrokerProcess) -> None:
    client = connect("confluent-kafka", broker.bootstrap)
    alter_broker(broker, SLOWLY | {"log.cleaner.threads": "2", "log.cleaner.backoff.ms": "86400000"})
    for topic in ("first", "second"):
        client.create_topic(topic, configs=COMPACTED)
        Updates().write(client, topic)
    assert not cleaner_processes(broker), "they rest for a day"
    alter_broker(broker, {"log.cleaner.backoff.ms": "50"})
    until(lambda: len(cleaner_processes(broker)) == 2, "two processes that clean")
    alter_broker(broker, FAST | {"log.cleaner.threads": "1"})
    for topic in ("first", "second"):
        await_cleaned(broker.data_directory, topic)
    until(lambda: not cleaner_processes(broker), "nothing is to be cleaned")
