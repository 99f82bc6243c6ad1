"""Cases: the throughput of stock clients, confluent-kafka and kafka-python, with their default settings but for one.

The exception are the limits of librdkafka's consumer queue, at which it stalls at these rates: they are raised, for
every broker alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.limits import MEGABYTE
from bench.load import LoadFailed
from bench.raw_cases import Bench

FLUSH_S = 60.0


def confluent_kafka(bench: Bench) -> dict[str, float]:
    """confluent-kafka produces values of 1,000 bytes and consumes them."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    count, value = bench.count(300_000), b"v" * 1_000
    with bench.topic(1) as topic:
        producer = Producer({"bootstrap.servers": bench.broker.bootstrap})

        def send() -> None:
            for _ in range(count):
                while True:
                    try:
                        producer.produce(topic, value)
                        break
                    except BufferError:
                        producer.poll(0.01)
            if left := producer.flush(FLUSH_S):
                raise LoadFailed(f"{left} records without an answer after {FLUSH_S} s")

        produced = _timed(bench, send)
        _check_count(bench, topic, count)
        consumer = Consumer(
            {
                "bootstrap.servers": bench.broker.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "queued.min.messages": 1_000_000,
                "queued.max.messages.kbytes": 1_000_000,
                "fetch.queue.backoff.ms": 1,
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])

        def receive() -> None:
            left = count
            while left:
                messages = consumer.consume(min(left, 10_000), timeout=FLUSH_S)
                if not messages:
                    raise LoadFailed(f"{left} records did not come within {FLUSH_S} s")
                left -= len(messages)

        consumed = _timed(bench, receive)
        consumer.close()
    return _both(produced, consumed, count, len(value))


def kafka_python(bench: Bench) -> dict[str, float]:
    """kafka-python produces values of 100 bytes and consumes them."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    count, value = bench.count(100_000), b"v" * 100
    with bench.topic(1) as topic:
        producer = KafkaProducer(bootstrap_servers=bench.broker.bootstrap)

        def send() -> None:
            for _ in range(count):
                producer.send(topic, value)
            producer.flush()

        produced = _timed(bench, send)
        producer.close()
        _check_count(bench, topic, count)
        consumer = KafkaConsumer(bootstrap_servers=bench.broker.bootstrap)
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, 0)

        def receive() -> None:
            left = count
            while left > 0:
                for records in consumer.poll(timeout_ms=1000).values():
                    left -= len(records)

        consumed = _timed(bench, receive)
        consumer.close()
    return _both(produced, consumed, count, len(value))


def _timed(bench: Bench, work: Callable[[], None]) -> tuple[float, float]:
    cpu, started = bench.broker.cpu_seconds(), time.perf_counter()
    work()
    return time.perf_counter() - started, bench.broker.cpu_seconds() - cpu


def _check_count(bench: Bench, topic: str, count: int) -> None:
    if (stored := bench.end_offsets(topic, 1)) != count:
        raise LoadFailed(f"{count} records were produced, the log holds {stored}")


def _both(produced: tuple[float, float], consumed: tuple[float, float], count: int, size: int) -> dict[str, float]:
    return {
        "produce_records_s": count / produced[0],
        "produce_mb_s": count * size / produced[0] / MEGABYTE,
        "produce_cores": produced[1] / produced[0],
        "consume_records_s": count / consumed[0],
        "consume_mb_s": count * size / consumed[0] / MEGABYTE,
        "consume_cores": consumed[1] / consumed[0],
    }
