"""Updates of a table that are produced to a compacted topic, and what was sent at each offset."""

from __future__ import annotations

import random
import time
from typing import Any

from confluent_kafka import Producer

from tests.support.clients import Record

TOPIC = "table"
DELETIONS = 0.1
"""The part of the updates that delete their key."""


class Updates:
    """Updates by one producer. Number N has offset N, and each key comes once in as many as there are keys."""

    def __init__(self, bootstrap: str, keys: int) -> None:
        # Batches are shorter than segments.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "batch.num.messages": 100,
                "log_level": 0,
            }
        )  # fmt: skip
        self._chance = random.Random(29)
        self._keys = [b"key %d" % number for number in range(keys)]
        self._now_ms = int(time.time() * 1000) - 86_400_000
        self.sent: list[Record] = []
        self.stored = 0
        """How many of them are in the log."""

    def write(self, count: int) -> None:
        """Produce more, by timestamps one each millisecond. Does not wait until they are stored."""
        for _ in range(count):
            number = len(self.sent)
            if not number % len(self._keys):
                self._chance.shuffle(self._keys)
            is_deletion = self._chance.random() < DELETIONS
            record = Record(
                key=self._keys[number % len(self._keys)],
                value=None if is_deletion else b"%050d" % number,
                timestamp_ms=self._now_ms,
            )
            self._now_ms += 1
            self.sent.append(record)
            self._producer.produce(
                TOPIC, record.value, record.key, timestamp=record.timestamp_ms, on_delivery=self._delivered
            )  # fmt: skip
        self._producer.poll(0)

    def begin_segment(self) -> None:
        """Let the next update be so late that it begins a segment."""
        self._now_ms += 60_000

    def flush(self) -> None:
        """Wait until all of them are stored."""
        self._producer.flush(60)
        assert self.stored == len(self.sent)

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        assert message.offset() == self.stored
        self.stored += 1
