"""Consumers that read everything from the beginning, through every death of the broker, and are never led astray."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any

from tests.crash.load import Load
from tests.crash.promises import Promise, require
from tests.crash.topics import PLACES, TOPICS, Place, Stands, identity_in


class Consumer(Load):
    """Reads its partitions in order and notes which record stood at which offset."""

    promise = Promise.CONSUMERS

    def __init__(self, name: str, places: Sequence[Place]) -> None:
        super().__init__(name)
        self.places = places
        self.positions = dict.fromkeys(places, 0)
        """The offset that it will read next."""
        self.seen: deque[Stands] = deque()
        """Taken away by whoever checks them."""

    def run(self) -> None:
        while not self._stopping.is_set():
            self._poll()
        self._close()

    def _read(self, place: Place, offset: int, value: bytes | None) -> None:
        topic = TOPICS[place.topic]
        due = self.positions[place]
        require(
            offset == due or (offset > due and not topic.keeps_everything),
            Promise.CONSUMERS,
            f"{self.name} got offset {offset} of {place} when {due} was due",
        )
        identity = identity_in(value, topic.most_value_bytes)
        require(identity is not None, Promise.CONSUMERS, f"{self.name}: nobody has sent what is at {place} {offset}")
        assert identity is not None
        self.seen.append(Stands(place, offset, identity))
        self.positions[place] = offset + 1

    @abstractmethod
    def _poll(self) -> None:
        """Take what there is, within a short while."""

    @abstractmethod
    def _close(self) -> None: ...


class ConfluentConsumer(Consumer):
    """confluent-kafka: asks at every new leader epoch whether what it read is still there (KIP-320)."""

    def __init__(self, name: str, bootstrap: str, places: Sequence[Place]) -> None:
        super().__init__(name, places)
        import confluent_kafka

        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                # An offset that is not in the log is a failure, not a reason to begin elsewhere.
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 20,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "metadata.recovery.strategy": "none",
                "log_level": 2,
                "error_cb": self._error,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in places])

    def _error(self, error: Any) -> None:
        if error.fatal():
            self._failed(str(error))

    def _poll(self) -> None:
        messages: list[Any] = self._consumer.consume(500, 0.1)
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            error = message.error()
            require(error is None, Promise.CONSUMERS, f"{self.name}, {topic}-{partition} at {offset}: {error}")
            self._read(Place(topic, partition), offset, message.value())

    def _close(self) -> None:
        self._consumer.close()


class KafkaPythonConsumer(Consumer):
    """kafka-python: where records are deleted it goes on with the first that is left."""

    def __init__(self, name: str, bootstrap: str, places: Sequence[Place]) -> None:
        super().__init__(name, places)
        from kafka import KafkaConsumer, TopicPartition

        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
        )
        assigned = [TopicPartition(*place) for place in places]
        self._consumer.assign(assigned)
        for one in assigned:
            self._consumer.seek(one, 0)

    def _poll(self) -> None:
        for records in self._consumer.poll(timeout_ms=100).values():
            for record in records:
                self._read(Place(record.topic, record.partition), record.offset, record.value)

    def _close(self) -> None:
        self._consumer.close()


def consumers(bootstrap: str) -> list[Consumer]:
    """One for what is never deleted, one for the rest."""
    kept = [place for place in PLACES if TOPICS[place.topic].keeps_everything]
    return [
        ConfluentConsumer("librdkafka's consumer", bootstrap, kept),
        KafkaPythonConsumer("kafka-python's consumer", bootstrap, [place for place in PLACES if place not in kept]),
    ]
