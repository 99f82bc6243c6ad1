"""A process that reads a topic in a consumer group and writes each value to another topic, in transactions.

    python -m tests.support.clients.transforming_worker CLIENT BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID

Each transaction has the records of one poll and the offsets behind them. Whatever goes wrong ends the process: a worker
that is started again goes on where the last committed transaction has ended. The group has committed offsets before the
first worker is started.
"""

import asyncio
import os
import signal
import sys
from typing import Final

MOST_RECORDS = 20
"""Of a transaction."""

PATIENCE_S = 3
"""For each step. A step of librdkafka that takes longer than it was told to (librdkafka issue 5456) ends the process by
SIGALRM."""

PARTITIONS: Final = 12

WORKERS: Final = 2
"""How many workers share a group. aiokafka names no member with the offsets that it commits, so that the broker cannot
refuse those of a member that has lost its partitions (KIP-447). Its workers have partitions of their own."""

KEEPS_ITS_BROKERS = {"metadata.recovery.strategy": "none"}
"""By default librdkafka removes its brokers when it reaches none of them. A producer (2.16.0) that has done so waits
for a removed broker, the coordinator of the group, and sends no TxnOffsetCommit until the transaction times out
(librdkafka issue 5511)."""


def with_confluent_kafka(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    """Work until the process is killed. Raises KafkaException."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 20_000,
            "reconnect.backoff.max.ms": 200,
            **KEEPS_ITS_BROKERS,
        }
    )
    signal.alarm(10 * PATIENCE_S)
    producer.init_transactions(10 * PATIENCE_S)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 2_000,
            "heartbeat.interval.ms": 300,
            "reconnect.backoff.max.ms": 200,
        }
    )
    consumer.subscribe([source])
    while True:
        signal.alarm(2 * PATIENCE_S)
        messages = [message for message in consumer.consume(MOST_RECORDS, 0.2) if message.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            producer.produce(target, b"<" + message.value() + b">", partition=message.partition())
            producer.flush(PATIENCE_S)  # one by one: a kill seldom finds a transaction of which the log has little
            ends[message.topic(), message.partition()] = message.offset() + 1
        producer.send_offsets_to_transaction(
            [TopicPartition(*place, offset) for place, offset in ends.items()],
            consumer.consumer_group_metadata(),
            PATIENCE_S,
        )
        producer.commit_transaction(PATIENCE_S)


def with_kafka_python(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    """Work until the process is killed. Raises KafkaError."""
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.structs import OffsetAndMetadata

    signal.alarm(10 * PATIENCE_S)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=20_000
    )
    producer.init_transactions()
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=2_000,
        heartbeat_interval_ms=300,
    )
    while True:
        signal.alarm(2 * PATIENCE_S)
        polled = consumer.poll(200, max_records=MOST_RECORDS)
        if not polled:
            continue
        producer.begin_transaction()
        for partition, records in polled.items():
            for record in records:
                producer.send(target, b"<" + record.value + b">", partition=partition.partition).get(PATIENCE_S)
        producer.send_offsets_to_transaction(
            {partition: OffsetAndMetadata(records[-1].offset + 1, "", -1) for partition, records in polled.items()},
            consumer.group_metadata(),
        )
        producer.commit_transaction()


async def with_aiokafka(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    """Work until the process is killed. Raises KafkaError, TimeoutError."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    signal.alarm(10 * PATIENCE_S)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=20_000
    )
    # This ends what the worker's last life has left open, so that the offsets below are committed ones.
    await producer.start()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        # aiokafka (0.14) takes "the group is being loaded", which is not said of each partition since version 2 of
        # OffsetFetch, for "nothing is committed". The group always has offsets.
        auto_offset_reset="none",
        enable_auto_commit=False,
    )
    await consumer.start()
    number = int(transactional_id.rpartition("-")[2])
    consumer.assign([TopicPartition(source, partition) for partition in range(number, PARTITIONS, WORKERS)])
    while True:
        signal.alarm(2 * PATIENCE_S)
        polled = await consumer.getmany(timeout_ms=200, max_records=MOST_RECORDS)
        if not polled:
            continue
        await producer.begin_transaction()
        for partition, records in polled.items():
            for record in records:
                value = b"<" + record.value + b">"
                await producer.send_and_wait(target, value, partition=partition.partition)
        await producer.send_offsets_to_transaction(
            {partition: records[-1].offset + 1 for partition, records in polled.items()}, group
        )
        await producer.commit_transaction()


def main(client: str, *arguments: str) -> None:
    """Work with the client of this name."""
    if client == "confluent-kafka":
        with_confluent_kafka(*arguments)
    elif client == "kafka-python":
        with_kafka_python(*arguments)
    else:
        asyncio.run(with_aiokafka(*arguments))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    finally:
        os._exit(1)  # at once: the clients would wait for a broker that may not be there
