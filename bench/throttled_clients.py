"""How well clients with a quota are held to it, and what clients without one notice of that.

`python -m bench.throttled_clients` starts a broker and, for each client library, a client with a quota and one without.
Both produce, then both consume, for `--seconds`: two windows of a quota, since a client may use up a window at once.
The client without a quota does the same alone, before and behind that. A broker may be named instead: `--bootstrap`.
Whatever is produced is deleted before the disk has to write it, and what is consumed stays in the page cache: otherwise
a disk would limit greedy clients.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench.conversation import Conversation
from dev.broker_process import BrokerProcess
from protocol.messages.client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

RATE: Final = 1_000_000
"""Bytes a second that the client with a quota may produce, and consume."""

BATCH_BYTES: Final = 100_000
"""Requests of a megabyte would be as large as what the client may send in a second."""

MOST_UNDER_WAY: Final = 40
"""Records that a producer may have sent without an answer."""

VALUE: Final = bytes(9_900)

Count = Callable[[int], None]

Work = Callable[[str, str, str, float, Count], None]
"""Runs a client: bootstrap server, client id, topic, until when, and what counts the bytes that it moves."""


def produce_with_kafka_python(bootstrap: str, client_id: str, topic: str, until: float, count: Count) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaTimeoutError

    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id=client_id, batch_size=BATCH_BYTES)
    under_way: deque[Any] = deque()
    while time.monotonic() < until:
        under_way.append(producer.send(topic, VALUE))
        if len(under_way) > MOST_UNDER_WAY:
            under_way.popleft().get(timeout=60)
            count(len(VALUE))
    with suppress(KafkaTimeoutError):
        producer.close(timeout=0)


def consume_with_kafka_python(bootstrap: str, client_id: str, topic: str, until: float, count: Count) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, client_id=client_id, enable_auto_commit=False, fetch_max_wait_ms=200
    )
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    while time.monotonic() < until:
        for records in consumer.poll(timeout_ms=200).values():
            count(sum(len(record.value) for record in records))
            if records[-1].offset >= CONSUMED_RECORDS - 1:
                consumer.seek_to_beginning()
    consumer.close()


def produce_with_confluent(bootstrap: str, client_id: str, topic: str, until: float, count: Count) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "queue.buffering.max.kbytes": 400,
            "batch.size": BATCH_BYTES,
        }
    )

    def delivered(error: Any, _: Any) -> None:
        if error is None:
            count(len(VALUE))

    while time.monotonic() < until:
        try:
            producer.produce(topic, VALUE, on_delivery=delivered)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.purge()


def consume_with_confluent(bootstrap: str, client_id: str, topic: str, until: float, count: Count) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": client_id,
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 1_000,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    while time.monotonic() < until:
        for message in consumer.consume(100, timeout=0.2):
            if message.error() is None:
                count(len(message.value()))
                if message.offset() >= CONSUMED_RECORDS - 1:
                    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
                    break
    consumer.close()


PRODUCED: Final = "throttled-produced"
CONSUMED: Final = "throttled-consumed"

CONSUMED_RECORDS: Final = 50_000
"""Of the topic that is consumed. Behind them a consumer begins again."""

PRODUCED_CONFIGS: Final = {"retention.bytes": "268435456", "segment.bytes": "67108864", "file.delete.delay.ms": "0"}
SETTINGS: Final = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}

_LIBRARIES: Final[Mapping[str, Sequence[tuple[Work, str]]]] = {
    "kafka-python": ((produce_with_kafka_python, PRODUCED), (consume_with_kafka_python, CONSUMED)),
    "confluent-kafka": ((produce_with_confluent, PRODUCED), (consume_with_confluent, CONSUMED)),
}


def renew_topics(bootstrap: str) -> None:
    """Begin with an empty topic to produce to, and a filled topic to consume that is on the disk already."""
    from confluent_kafka import KafkaException, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_topics([PRODUCED, CONSUMED]).values():
        with suppress(KafkaException):  # there is none the first time
            deleted.result()
    topics = [NewTopic(PRODUCED, 1, 1, config=PRODUCED_CONFIGS), NewTopic(CONSUMED, 1, 1)]
    for created in admin.create_topics(topics).values():
        created.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(CONSUMED_RECORDS):
        producer.produce(CONSUMED, VALUE)
        producer.poll(0)
    producer.flush()
    os.sync()


def set_rates(bootstrap: str, client_id: str, rate: float | None) -> None:
    """Give a client byte rates, or with None take them away."""
    of_entry = AlterClientQuotasRequest.Entry
    keys = ("producer_byte_rate", "consumer_byte_rate")
    entry = of_entry(
        entity=[of_entry.Entity(entity_type="client-id", entity_name=client_id)],
        ops=[of_entry.Op(key=key, value=rate or 0.0, remove=rate is None) for key in keys],
    )
    with Conversation(bootstrap) as conversation:
        request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
        (result,) = conversation.ask(request, AlterClientQuotasResponse).entries
    if result.error_code:
        raise SystemExit(f"the quota was not set: {result.error_message}")


def run(work: Work, bootstrap: str, client_id: str, topic: str, seconds: float, moved: Any) -> None:
    """Run a client in a process of its own; ``moved`` gets the bytes that it has moved."""

    def count(size: int) -> None:
        moved.value += size

    work(bootstrap, client_id, topic, time.monotonic() + seconds, count)


def measure(work: Work, bootstrap: str, topic: str, seconds: float) -> None:
    """Run a client with a quota and one beside it without, and before and behind that the second alone; print what each
    has moved, and what is left to the client without a quota of what it moves alone."""
    context = multiprocessing.get_context("spawn")
    rates = {}
    for names in (("alone before",), ("slow", "free"), ("alone behind",)):
        moved = {name: context.Value("d", 0.0, lock=False) for name in names}
        processes = [
            context.Process(target=run, args=(work, bootstrap, name, topic, seconds, moved[name])) for name in names
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        rates |= {name: of_client.value / seconds for name, of_client in moved.items()}
    sys.stdout.write(
        f"{work.__name__.replace('_', ' '):28} {rates['slow'] / RATE:.2f} of its rate; beside it "
        f"{rates['free'] / 1e6:.1f} MB/s, alone {rates['alone before'] / 1e6:.1f} and "
        f"{rates['alone behind'] / 1e6:.1f} MB/s: "
        f"{2 * rates['free'] / (rates['alone before'] + rates['alone behind']):.2f}\n"
    )
    sys.stdout.flush()


def main() -> None:
    """Measure every client library, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("libraries", nargs="*", default=[*_LIBRARIES], help="kafka-python, confluent-kafka")
    parser.add_argument("--seconds", type=float, default=22.0)
    parser.add_argument("--bootstrap", help="a broker that runs already, with auto.create.topics.enable")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broker = None if options.bootstrap else BrokerProcess(Path(directory), settings=SETTINGS).start()
        try:
            bootstrap = options.bootstrap or f"127.0.0.1:{broker.port if broker else 0}"
            set_rates(bootstrap, "slow", RATE)
            for library in options.libraries:
                for work, topic in _LIBRARIES[library]:
                    renew_topics(bootstrap)
                    measure(work, bootstrap, topic, options.seconds)
            set_rates(bootstrap, "slow", None)
        finally:
            if broker is not None:
                broker.close()


if __name__ == "__main__":
    main()
