"""Transactions of the stock clients, in one vocabulary: a producer, and readers of committed records."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Protocol

from dev.waiting import until
from tests.support.clients import Place

FENCE = b"-- read up to here --"
"""A record outside of transactions, behind everything that a reader is to see."""


class Fenced(Exception):
    """Another producer has begun with the same transactional id."""


class TransactionalProducer(Protocol):
    """One producer with a transactional id. Its constructor begins it, which fences the producer before it."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None: ...

    def begin(self) -> None: ...

    def send(self, place: Place, value: bytes) -> None:
        """Send a record. It may still be on its way."""

    def flush(self) -> None:
        """Return when all records are in the log. Raises `Fenced`."""

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Commit offsets of a consumer group with the transaction."""

    def commit(self) -> None:
        """Raises `Fenced`."""

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentProducer:
    """A transactional producer of confluent-kafka."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        from confluent_kafka import Producer

        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
            }
        )
        self._producer.init_transactions(60)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, place: Place, value: bytes) -> None:
        self._producer.produce(place.topic, value, partition=place.partition)

    def flush(self) -> None:
        self._producer.flush(60)

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        places = [TopicPartition(place.topic, place.partition, offset) for place, offset in offsets.items()]
        self._producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 60)
        consumer.close()

    def commit(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._producer.commit_transaction(60)
        except KafkaException as error:
            raise (Fenced(str(error)) if error.args[0].fatal() else error) from None

    def abort(self) -> None:
        self._producer.abort_transaction(60)

    def close(self) -> None:
        del self._producer


class AiokafkaProducer:
    """A transactional producer of aiokafka, on a loop of its own."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        from aiokafka import AIOKafkaProducer

        self._loop = asyncio.new_event_loop()
        self._sent: list[Any] = []

        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await producer.start()
            return producer

        self._producer = self._run(start())

    def _run(self, job: Coroutine[Any, Any, Any]) -> Any:
        from aiokafka.errors import ProducerFenced

        try:
            return self._loop.run_until_complete(job)
        except ProducerFenced as error:
            raise Fenced(str(error)) from None

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, place: Place, value: bytes) -> None:
        self._sent.append(self._run(self._producer.send(place.topic, value, partition=place.partition)))

    def flush(self) -> None:
        self._run(self._producer.flush())
        sent, self._sent = self._sent, []
        for future in sent:
            self._run(_result(future))

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        from aiokafka import TopicPartition

        places = {TopicPartition(place.topic, place.partition): offset for place, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(places, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._loop.close()


async def _result(future: Any) -> Any:
    return await future


class KafkaPythonProducer:
    """A transactional producer of kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self._producer.init_transactions()
        self._sent: list[Any] = []

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, place: Place, value: bytes) -> None:
        self._sent.append(self._producer.send(place.topic, value, partition=place.partition))

    def flush(self) -> None:
        self._producer.flush(60)
        sent, self._sent = self._sent, []
        for future in sent:
            self._raising_fenced(lambda future=future: future.get(60))

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        places = {
            TopicPartition(place.topic, place.partition): OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(places, group)

    def commit(self) -> None:
        self._raising_fenced(self._producer.commit_transaction)

    def _raising_fenced(self, call: Any) -> None:
        from kafka.errors import InvalidProducerEpochError, ProducerFencedError

        try:
            call()
        except (InvalidProducerEpochError, ProducerFencedError) as error:
            raise Fenced(str(error)) from None

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)


PRODUCERS: Mapping[str, type[TransactionalProducer]] = {
    "aiokafka": AiokafkaProducer,
    "confluent-kafka": ConfluentProducer,
    "kafka-python": KafkaPythonProducer,
}


def read(bootstrap: str, client_name: str, places: Iterable[Place], *, isolation: str) -> list[bytes]:
    """The values that a consumer of this isolation level sees up to `FENCE`, which has to be in each partition."""
    reader = {"aiokafka": _read_with_aiokafka, "confluent-kafka": _read_with_confluent}.get(
        client_name, _read_with_kafka_python
    )
    return [value for value in reader(bootstrap, list(places), isolation) if value != FENCE]


def _read_with_confluent(bootstrap: str, places: list[Place], isolation: str) -> list[bytes]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation})
    consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in places])
    values: list[bytes] = []

    def has_all() -> bool:
        values.extend(message.value() for message in consumer.consume(500, 0.2) if message.error() is None)
        return values.count(FENCE) == len(places)

    until(has_all)
    consumer.close()
    return values


def _read_with_kafka_python(bootstrap: str, places: list[Place], isolation: str) -> list[bytes]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(place.topic, place.partition) for place in places])
    values: list[bytes] = []

    def has_all() -> bool:
        for records in consumer.poll(200).values():
            values.extend(record.value for record in records)
        return values.count(FENCE) == len(places)

    until(has_all)
    consumer.close()
    return values


def _read_with_aiokafka(bootstrap: str, places: list[Place], isolation: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest", group_id=None
        )
        await consumer.start()
        consumer.assign([TopicPartition(place.topic, place.partition) for place in places])
        values: list[bytes] = []
        async with asyncio.timeout(120):
            while values.count(FENCE) < len(places):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    values.extend(record.value for record in records)
        await consumer.stop()
        return values

    return asyncio.run(run())
