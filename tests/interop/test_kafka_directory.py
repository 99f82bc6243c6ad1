"""Apache Kafka takes over a directory that Ottla has written, stopped cleanly or killed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from broker.tools import verify
from dev.broker_process import BrokerProcess
from protocol.errors import ErrorCode
from storage.batch.record_batch import Codec
from storage.batch.records import Record
from tests.interop import programs
from tests.interop.directories import (
    BROKER,
    FIRST_SNAPSHOT,
    LAST_HOUR_MS,
    METADATA_DIRECTORY,
    TOPIC,
    IdempotentProducer,
    Picture,
    SharedDirectory,
    Visitor,
    complaints_of_dump_log,
)
from tests.support.batches import produced, records
from tests.support.clients import CODECS, connect
from tests.support.clients import Record as Sent

pytestmark = pytest.mark.timeout(400)  # several starts of a Java broker, on whatever machine

# Segments are ended by the time stamps of the records, index entries are frequent: small files with everything in them.
SEGMENTED = {"segment_ms": "60000", "segment_index_bytes": "8192", "index_interval_bytes": "200"}

SNAPSHOTS_OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "2000"}


def test_kafka_starts_on_a_directory_that_ottla_stopped_cleanly_on(shared: SharedDirectory) -> None:
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        written = write_everything(ottla)
        before = ottla.picture()
    shared.ottla.stop()
    assert complaints_of_dump_log(programs.java(), shared.data) == []

    shared.kafka.start()
    look_again(shared.kafka, before)
    go_on(shared.kafka, written)
    shared.kafka.stop()
    assert verify.main([str(shared.data)]) == verify.WHOLE


def test_kafka_starts_on_a_directory_that_ottla_was_killed_on(shared: SharedDirectory) -> None:
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        written = write_everything(ottla)
        before = ottla.picture()
    shared.ottla.kill()

    shared.kafka.start()
    look_again(shared.kafka, before)
    go_on(shared.kafka, written)
    shared.kafka.stop()
    assert verify.main([str(shared.data)]) == verify.WHOLE


def test_kafka_starts_on_a_directory_that_ottla_was_killed_on_and_stopped_on_afterwards(
    shared: SharedDirectory,
) -> None:
    """Recovery has rebuilt indexes and snapshots: nothing in them is strange to Kafka's tools."""
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        written = write_everything(ottla)
    shared.ottla.kill()
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        for producer in written.producers:
            producer.send(ottla)
        before = ottla.picture()
    shared.ottla.stop()
    assert complaints_of_dump_log(programs.java(), shared.data) == []

    shared.kafka.start()
    look_again(shared.kafka, before)
    go_on(shared.kafka, written)
    shared.kafka.stop()


def test_kafka_starts_on_what_a_power_failure_has_torn_once_ottla_has_been_there(shared: SharedDirectory) -> None:
    """Without that it does not: each of these files alone stops it (`tests/interop/damage_survey.py`)."""
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        written = write_everything(ottla)
        before = ottla.picture()
    shared.ottla.kill()
    (shared.data / "codecs-0" / "partition.metadata").write_bytes(b"")
    (shared.data / "many-1" / "partition.metadata").write_bytes(b"\0" * 43)
    (shared.data / "segmented-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0")
    (shared.data / "recovery-point-offset-checkpoint").write_bytes(b"0\n20\ncodecs 0 ")
    (shared.data / "replication-offset-checkpoint").write_bytes(b"\0" * 100)
    shared.ottla.start()
    look_again(shared.ottla, before)
    shared.ottla.stop()
    assert complaints_of_dump_log(programs.java(), shared.data) == []

    shared.kafka.start()
    look_again(shared.kafka, before)
    go_on(shared.kafka, written)
    shared.kafka.stop()


def test_kafka_starts_on_metadata_snapshots_of_ottla(shared: SharedDirectory) -> None:
    shared.ottla.settings |= SNAPSHOTS_OFTEN
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        written = write_everything(ottla)
        before = ottla.picture()
    shared.ottla.stop()
    snapshots = sorted(path.name for path in (shared.data / METADATA_DIRECTORY).glob("*.checkpoint"))
    assert snapshots[-1] != FIRST_SNAPSHOT, "Ottla has written no snapshot but the first"
    assert complaints_of_dump_log(programs.java(), shared.data) == []

    shared.kafka.start()
    look_again(shared.kafka, before)
    go_on(shared.kafka, written)
    shared.kafka.stop()


def test_stock_clients_read_from_kafka_what_they_wrote_to_ottla(shared: SharedDirectory) -> None:
    shared.ottla.start()
    client = connect("confluent-kafka", shared.ottla.bootstrap)
    client.create_topic("stock", partitions=1)
    for codec in CODECS:
        sent = [
            Sent(key=b"%d" % n, value=b"value %d " % n * 50, headers=(("codec", codec.encode()), ("none", None)))
            for n in range(20)
        ]
        client.produce("stock", sent, codec=codec)
    before = client.consume_all("stock")
    shared.ottla.stop()

    shared.kafka.start()
    after = connect("confluent-kafka", shared.kafka.bootstrap).consume_all("stock")
    assert after == before
    assert len(after) == 20 * len(CODECS)
    shared.kafka.stop()


@dataclass(slots=True, kw_only=True)
class Written:
    """What goes on when another broker has come."""

    producers: list[IdempotentProducer]
    producer_ids: list[int]


def write_everything(ottla: Visitor) -> Written:
    """Topics with whatever a directory can have in it."""
    ottla.create("codecs")
    for codec in Codec:
        ottla.produce("codecs", produced(records(50, timestamp=LAST_HOUR_MS, value_bytes=200), codec=codec))
    ottla.produce(
        "codecs",
        produced(
            [
                Record(timestamp=LAST_HOUR_MS, key=None, value=None),
                Record(timestamp=0, key=b"", value=b"", headers=[("empty", b""), ("none", None), ("naïve", b"\xff")]),
                Record(timestamp=LAST_HOUR_MS + 7, key=b"\x00" * 300, value=b"\xff" * 30_000),
            ]
        ),
    )
    ottla.create("stamped", message_timestamp_type="LogAppendTime")
    ottla.produce("stamped", produced(5))
    ottla.create("segmented", **SEGMENTED)
    for segment in range(4):
        for batch in range(12):
            timestamp = LAST_HOUR_MS + segment * 120_000 + batch
            ottla.produce("segmented", produced(records(3, timestamp=timestamp), codec=Codec(batch % 5)))
    ottla.create("empty", partitions=3)
    ottla.create("many", partitions=5)
    for partition in range(4):
        ottla.produce("many", produced(partition + 1), partition=partition)
    ottla.add_partitions("many", 7)
    ottla.produce("many", produced(2), partition=6)

    ottla.create("trimmed", **SEGMENTED)
    for segment in range(3):
        ottla.produce("trimmed", produced(records(10, timestamp=LAST_HOUR_MS + segment * 120_000)))
    ottla.delete_records("trimmed", 13)
    ottla.create("emptied")
    ottla.produce("emptied", produced(8))
    ottla.delete_records("emptied", 8)

    ottla.create("gone")
    ottla.produce("gone", produced(3))
    ottla.delete("gone")
    ottla.create("anew")
    ottla.produce("anew", produced(9))
    ottla.delete("anew")
    ottla.create("anew")
    ottla.produce("anew", produced(1))

    ottla.create("configured", retention_ms="123456789", cleanup_policy="compact,delete", max_message_bytes="2000000")
    ottla.configure(TOPIC, "configured", {"retention.ms": None, "retention.bytes": "1000000000"})
    ottla.configure(TOPIC, "segmented", {"retention.ms": "-1"})
    ottla.configure(BROKER, "", {"log.retention.ms": "987654321", "message.max.bytes": "1500000"})
    ottla.configure(BROKER, "1", {"log.flush.interval.messages": "12345678"})

    ottla.create("sequenced", partitions=2, **SEGMENTED)
    producers = [
        IdempotentProducer(producer_id=ottla.new_producer_id(), topic="sequenced", partition=n % 2) for n in range(5)
    ]
    for _ in range(7):
        for producer in producers:
            producer.send(ottla)
    return Written(producers=producers, producer_ids=[producer.producer_id for producer in producers])


def look_again(broker: BrokerProcess, before: Picture) -> None:
    """The broker shows what was there before."""
    with Visitor(broker.bootstrap) as visitor:
        after = visitor.picture()
    for topic, seen in before.topics.items():
        assert after.topics.get(topic) == seen, topic
    assert after == before
    fallen = {place: now for place, now in after.leader_epochs.items() if now < before.leader_epochs[place]}
    assert not fallen, "leader epochs below those that the records have"


def go_on(broker: BrokerProcess, written: Written) -> None:
    """Producers go on where they were; new ones get ids of their own; topics are made and take records."""
    with Visitor(broker.bootstrap) as visitor:
        for producer in written.producers:
            producer.repeat(visitor)
            producer.leave_a_gap(visitor)
            producer.send(visitor)
            producer.repeat(visitor)
        another = visitor.new_producer_id()
        assert another not in written.producer_ids, f"producer id {another} is handed out twice"
        assert another > max(written.producer_ids)
        written.producer_ids.append(another)
        new = f"later-{another}"
        visitor.create(new)
        assert visitor.produce(new, produced(2)) == 0
        code, _ = visitor.try_to_produce("gone", produced(1))
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
