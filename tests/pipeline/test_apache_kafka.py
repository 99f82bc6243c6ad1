"""A topic that Apache Kafka compacts, with transactions in it: read while it runs it has the rows that a consumer gets,
and the same after Kafka was killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dev.apache_kafka import ApacheKafka
from dev.broker_process import port_below_client_ports
from dev.kafka_jars import NoKafka, libraries
from dev.waiting import until
from pipeline.reading.ranges import Wanted
from pipeline.reading.reader import read_range
from pipeline.source import PartitionSource, Source, split
from tests.support.clients import connect

TOPIC = "compacted"
Row = tuple[int, bytes | None, bytes | None]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    try:
        jars = libraries()
    except NoKafka as reason:
        pytest.skip(str(reason))
    # Its cleaner and its threads look often, so that there is something to see soon.
    settings = {
        "log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "100", "log.cleaner.threads": "1",
        "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1",
    }  # fmt: skip
    process = ApacheKafka(tmp_path / "kafka", settings=settings, port=port_below_client_ports(), libraries=str(jars))
    process.heap = "512M"
    with process:
        yield process


def consumed(kafka: ApacheKafka, *, isolation: str) -> list[Row]:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "nobody", "isolation.level": isolation,
         "enable.auto.commit": False, "enable.partition.eof": True}
    )  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    rows: list[Row] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"{len(rows)} records, and no end"
        if message.error():
            break  # the end of the partition
        rows.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return rows


def read(partition: PartitionSource, *, read_committed: bool) -> list[Row]:
    """The rows of a partition, which are the same when it is read in parts. The cleaner may come between the two: then
    it is read again."""
    wanted = Wanted(columns=("offset", "key", "value"), read_committed=read_committed)
    rows: list[dict[str, Any]] = []

    def is_the_same_in_parts() -> bool:
        whole = partition.readable(read_committed=read_committed)
        rows[:] = [row for batch in read_range(whole, wanted) for row in batch.to_pylist()]
        return rows == [
            row for part in split(whole, 2_000) for batch in read_range(part, wanted) for row in batch.to_pylist()
        ]

    until(is_the_same_in_parts, "the same rows in parts")
    return [(row["offset"], row["key"], row["value"]) for row in rows]


@pytest.mark.timeout(300)
def test_a_compacted_topic_with_transactions_is_read_as_by_a_consumer(kafka: ApacheKafka) -> None:
    client = connect("confluent-kafka", kafka.bootstrap)
    client.create_topic(
        TOPIC,
        configs={
            "cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01",
            "index.interval.bytes": "200", "segment.ms": "1000",
        },
    )  # fmt: skip
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": "mover", "linger.ms": 0, "compression.type": "lz4"}
    )
    producer.init_transactions()

    def transactions(numbers: range) -> None:
        for number in numbers:
            producer.begin_transaction()
            for n in range(20):
                producer.produce(TOPIC, key=b"k%d" % (n * 7 % 13), value=b"%d of %d" % (n, number) * 20)
            producer.flush()
            if number % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    transactions(range(30))
    rounds = iter(range(30, 10_000))

    def is_cleaned() -> bool:
        # Segments roll only where something is appended.
        number = next(rounds)
        transactions(range(number, number + 1))
        return len(consumed(kafka, isolation="read_uncommitted")) < 200

    until(is_cleaned, "a cleaned segment")
    data = str(kafka.data_directory)

    def aborted_records_are_hidden() -> bool:
        # The cleaner may have taken the last ones already: these are new.
        transactions(range(10_001, 10_003))
        with Source.open([data], kafka.bootstrap) as source:
            (partition,) = source.partitions([TOPIC])
            return len(read(partition, read_committed=True)) < len(read(partition, read_committed=False))

    until(aborted_records_are_hidden, "fewer records with read_committed")
    with Source.open([data], kafka.bootstrap) as source:
        (partition,) = source.partitions([TOPIC])
        for isolation in ("read_committed", "read_uncommitted"):
            # The cleaner may come between the two: then they are asked again.
            until(
                lambda isolation=isolation: (
                    read(partition, read_committed=isolation == "read_committed")
                    == consumed(kafka, isolation=isolation)
                ),
                f"the same rows with {isolation}",
            )
        committed = read(partition, read_committed=True)
    producer.begin_transaction()
    producer.produce(TOPIC, key=b"open", value=b"undecided")
    producer.flush()
    kafka.kill()
    with Source.open([data]) as source:
        (found,) = source.partitions([TOPIC])
        assert found.bounds.last_stable_offset == partition.bounds.high_watermark
        assert found.bounds.high_watermark == partition.bounds.high_watermark + 1
        assert {row[1:] for row in read(found, read_committed=True)} <= {row[1:] for row in committed}
        newest = dict(row[1:] for row in committed)
        assert dict(row[1:] for row in read(found, read_committed=True)) == newest
