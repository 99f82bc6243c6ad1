"""A process that reads a topic in a consumer group and writes each value to another topic, in transactions.

    python -m tests.support.clients.transforming_worker BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID

Each transaction has the records of one poll and the offsets behind them. Whatever goes wrong ends the process: a worker
that is started again goes on where the last committed transaction has ended.
"""

import os
import signal
import sys

from confluent_kafka import Consumer, Producer, TopicPartition

MOST_RECORDS = 20
"""Of a transaction."""

PATIENCE_S = 3
"""For each step. A step of librdkafka that takes longer than it was told to (librdkafka issue 5456) ends the process by
SIGALRM."""

KEEPS_ITS_BROKERS = {"metadata.recovery.strategy": "none"}
"""By default librdkafka removes its brokers when it reaches none of them. A producer (2.16.0) that has done so waits
for a removed broker, the coordinator of the group, and sends no TxnOffsetCommit until the transaction times out
(librdkafka issue 5511)."""


def work(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    """Work until the process is killed. Raises KafkaException."""
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


if __name__ == "__main__":
    try:
        work(*sys.argv[1:])
    finally:
        os._exit(1)  # at once: the clients would wait for a broker that may not be there
