"""The loads of kafka-python and aiokafka, beside that of confluent-kafka: each client as it is by default."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from tests.support.clusters import Load

MOST_UNANSWERED: Final = 2_000
"""A load waits for answers when so many records have none."""


class ConfluentLoad(Load):
    """An idempotent producer of confluent-kafka, which waits for all replicas in sync."""


class KafkaPythonLoad(Load):
    """A producer of kafka-python, which is idempotent by default."""

    def _run(self) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=self._bootstrap.split(","), **self._settings)
        while not self._ends.is_set():
            number = self.sent
            future = producer.send(self._topic, str(number).encode(), partition=self._partition)
            future.add_callback(lambda _, number=number: self._delivered(None, number))
            future.add_errback(lambda error, number=number: self._delivered(error, number))
            self.sent += 1
            while self._ends.wait(self._pause_s) is False and self._unanswered > MOST_UNANSWERED:
                continue
        if not self._is_abandoned:
            producer.flush(timeout=130)
        producer.close(timeout=10)

    @property
    def _unanswered(self) -> int:
        return self.sent - len(self.acknowledged) - len(self.errors)


class AiokafkaLoad(Load):
    """An idempotent producer of aiokafka."""

    def _run(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        from aiokafka import AIOKafkaProducer

        settings: dict[str, Any] = {"enable_idempotence": True, **self._settings}
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap.split(","), **settings) as producer:
            last: asyncio.Future[Any] | None = None
            while not self._ends.is_set():
                last = await producer.send(self._topic, str(self.sent).encode(), partition=self._partition)
                last.add_done_callback(partial(self._answered, self.sent))
                self.sent += 1
                await asyncio.sleep(self._pause_s)
            if last is not None and not self._is_abandoned:
                await asyncio.wait((last,), timeout=130)

    def _answered(self, number: int, future: asyncio.Future[Any]) -> None:
        self._delivered(future.exception(), number)


LOADS: Final[dict[str, type[Load]]] = {
    "confluent-kafka": ConfluentLoad,
    "kafka-python": KafkaPythonLoad,
    "aiokafka": AiokafkaLoad,
}
