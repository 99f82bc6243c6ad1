"""Producers that go on through every death of the broker: stock clients, which send again what was not answered."""

from __future__ import annotations

import contextlib
import random
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from tests.crash.load import Load
from tests.crash.promises import Promise
from tests.crash.topics import (
    FLUSHED,
    LARGE,
    OFFSET_UNKNOWN,
    RECOMPRESSED,
    ROLLING,
    TRIMMED,
    Identity,
    Place,
    Stands,
    Topic,
    value_of,
)

PATIENCE_S: Final = 600.0
"""How long a client may try; far longer than a run lets it wait."""


class Producer(Load):
    """Sends bursts of numbered records to any of its topics, and notes what was acknowledged."""

    promise = Promise.ANSWERED
    is_idempotent = True

    def __init__(
        self,
        name: str,
        topics: Sequence[Topic],
        chance: random.Random,
        *,
        most_in_burst: int = 60,
        most_unanswered: int = 200,
        longest_pause_s: float = 0.2,
        most_in_life: int = 500,
    ) -> None:
        super().__init__(name)
        self._topics = topics
        self._chance = chance
        self._most_in_burst = most_in_burst
        self._most_unanswered = most_unanswered
        self._longest_pause_s = longest_pause_s
        self._most_in_life = most_in_life
        self._may_send = most_in_life
        self.sent = 0
        self.answered = 0
        self.acknowledged: deque[Stands] = deque()
        """Taken away by whoever checks them."""

    def broker_lives(self) -> None:
        """It was started and looked at. On a busy machine looking takes long, and must not be for ever more."""
        self._may_send = self.sent + self._most_in_life

    def run(self) -> None:
        while not self._stopping.is_set():
            topic = self._chance.choice(self._topics)
            place = Place(topic.name, self._chance.randrange(topic.partitions))
            for _ in range(self._chance.randint(1, self._most_in_burst)):
                identity = Identity(self.name, self.sent)
                self.sent += 1
                self._send(place, identity, value_of(identity, topic.most_value_bytes))
            self._serve(self._chance.uniform(0, self._longest_pause_s))
            while self._has_to_wait and not self._stopping.is_set():
                self._serve(0.005)
        self._finish()

    @property
    def _has_to_wait(self) -> bool:
        return self.sent >= self._may_send or self.sent - self.answered > self._most_unanswered

    def _was_acknowledged(self, place: Place, offset: int, identity: Identity) -> None:
        self.acknowledged.append(Stands(place, offset, identity))
        self.answered += 1

    def _was_refused(self, place: Place, identity: Identity, error: object) -> None:
        self._failed(f"{identity} for {place}: {error}")
        self.answered += 1

    @abstractmethod
    def _send(self, place: Place, identity: Identity, value: bytes) -> None: ...

    @abstractmethod
    def _serve(self, seconds: float) -> None:
        """Let the client work, about this long."""

    @abstractmethod
    def _finish(self) -> None:
        """Wait until everything is answered."""


class KafkaPythonProducer(Producer):
    """kafka-python."""

    def __init__(
        self, name: str, bootstrap: str, topics: Sequence[Topic], chance: random.Random, **options: Any
    ) -> None:
        super().__init__(name, topics, chance)
        from kafka import KafkaProducer

        self.is_idempotent = options.get("enable_idempotence", True)
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            linger_ms=2,
            delivery_timeout_ms=int(PATIENCE_S * 1000),
            max_block_ms=int(PATIENCE_S * 1000),
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            **options,
        )

    def _send(self, place: Place, identity: Identity, value: bytes) -> None:
        future = self._producer.send(place.topic, value, partition=place.partition)
        future.add_callback(lambda answer: self._was_acknowledged(place, answer.offset, identity))
        future.add_errback(lambda error: self._was_refused(place, identity, error))

    def _serve(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def _finish(self) -> None:
        self._producer.flush(timeout=PATIENCE_S)
        self._producer.close(timeout=5)


class ConfluentProducer(Producer):
    """confluent-kafka, which is librdkafka."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topics: Sequence[Topic],
        chance: random.Random,
        options: dict[str, Any],
        **pace: Any,
    ) -> None:
        super().__init__(name, topics, chance, **pace)
        import confluent_kafka

        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                # Else it looks for the broker once a second, and many a life is over before it comes.
                "metadata.recovery.strategy": "none",
                # That the broker is away now and then is no news.
                "log_level": 2,
                "error_cb": self._error,
                **options,
            }
        )

    def _error(self, error: Any) -> None:
        if error.fatal():
            self._failed(str(error))

    def _send(self, place: Place, identity: Identity, value: bytes) -> None:
        def answered(error: Any, message: Any) -> None:
            if error is not None:
                self._was_refused(place, identity, error)
                return
            offset = message.offset()
            self._was_acknowledged(place, OFFSET_UNKNOWN if offset is None else offset, identity)

        while True:
            with contextlib.suppress(BufferError):
                self._producer.produce(place.topic, value, partition=place.partition, on_delivery=answered)
                return
            self._producer.poll(0.01)

    def _serve(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._producer.poll(left)  # it returns as soon as it has called back

    def _finish(self) -> None:
        self._producer.flush(PATIENCE_S)


def producers(bootstrap: str, chance: random.Random) -> list[Producer]:
    """One that may write a record twice, and three that may not."""

    def own_chance() -> random.Random:
        return random.Random(chance.random())

    return [
        KafkaPythonProducer(
            "plain", bootstrap, (ROLLING, FLUSHED, TRIMMED), own_chance(), enable_idempotence=False
        ),
        KafkaPythonProducer(
            "python", bootstrap, (ROLLING, RECOMPRESSED, TRIMMED), own_chance(), compression_type="zstd"
        ),
        ConfluentProducer(
            "librdkafka", bootstrap, (ROLLING, RECOMPRESSED, FLUSHED, TRIMMED), own_chance(),
            {"compression.type": "gzip"},
        ),
        ConfluentProducer(
            "large", bootstrap, (LARGE,), own_chance(),
            {"message.max.bytes": 12 << 20, "batch.size": 10 << 20, "linger.ms": 100},
            most_in_burst=70, most_unanswered=70, longest_pause_s=0.6, most_in_life=250,
        ),
    ]  # fmt: skip
