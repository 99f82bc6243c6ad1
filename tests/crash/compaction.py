"""A compacted topic is updated while the broker and the process that cleans for it are killed.

In the end the topic has the last value of each key, and few other records.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from dev.broker_process import BrokerProcess, port_below_client_ports
from tests.crash.offline import verify
from tests.crash.promises import Promise, require
from tests.support.cleaner_processes import await_cleaned, cleaner_processes
from tests.support.cleaning import table
from tests.support.clients import connect

TOPIC: Final = "table"
KEYS: Final = 1_000
UPDATES_IN_A_ROUND: Final = 400
DELETIONS: Final = 0.1
"""The part of the updates that delete their key."""

SETTINGS: Final = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "300",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "log.cleaner.io.max.bytes.per.second": "300000",
    "log.segment.delete.delay.ms": "100",
}
"""The cleaner works all the time, and a round takes long enough to be interrupted."""
CONFIGS: Final = {"cleanup.policy": "compact", "segment.ms": "1000"}
MS_BETWEEN_UPDATES: Final = 10
"""By timestamps: so a segment has a hundred updates."""

ROUNDS_BETWEEN_CHECKS: Final = 20
_MOST_CLEANER_KILLS: Final = 2
"""In a row: a log in which three have died is given up until the broker starts again."""
_PATIENCE_S: Final = 5.0
"""How long a cleaner is waited for; then the broker is killed without one."""
_MOST_RECORDS_LEFT: Final = KEYS + UPDATES_IN_A_ROUND + 100


@dataclass(slots=True, kw_only=True)
class CompactionSummary:
    """What a run has come through."""

    broker_kills: int = 0
    cleaner_kills: int = 0
    updates: int = 0
    keys: int = 0
    """How many keys have a value in the end."""
    records_left: int = 0


class CompactionRun:
    """One run, to be used in a `with`."""

    def __init__(self, directory: Path, *, seed: int, report: Callable[[str], None]) -> None:
        self._broker = BrokerProcess(directory, settings=SETTINGS, port=port_below_client_ports())
        self._chance = random.Random(seed)
        self._report = report
        self._summary = CompactionSummary()
        self._table: dict[bytes, bytes] = {}
        self._refused: list[str] = []
        self._began_ms = int(time.time() * 1000) - 86_400_000
        self._cleaner_kills_in_a_row = 0

    def __enter__(self) -> CompactionRun:
        self._broker.start()
        connect("confluent-kafka", self._broker.bootstrap).create_topic(TOPIC, configs=CONFIGS)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._broker.close()

    def go(self, kills: int) -> CompactionSummary:
        """Kill so many times. Raises PromiseBroken."""
        # An idempotent producer tries again through every kill: all that it was given arrives, once and in order.
        producer = Producer(
            {
                "bootstrap.servers": self._broker.bootstrap, "enable.idempotence": True, "message.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 200, "batch.num.messages": 100, "log_level": 0,
            }
        )  # fmt: skip
        for number in range(1, kills + 1):
            self._update(producer)
            self._wait_for_a_moment(producer)
            victim = self._kill()
            self._report(f"{number:5} of {kills}  killed {victim}: {self._summary.updates:,} updates")
            if number % ROUNDS_BETWEEN_CHECKS == 0 or number == kills:
                self._check(producer)
        self._broker.kill()
        log = self._broker.log_path.read_text(errors="replace")
        require(" ERROR " not in log and "Traceback" not in log, Promise.LIVES, f"the broker's log has trouble\n{log}")
        verify(self._broker.data_directory)
        return self._summary

    def _update(self, producer: Producer) -> None:
        for _ in range(UPDATES_IN_A_ROUND):
            number = self._summary.updates
            self._summary.updates += 1
            key = b"%d" % self._chance.randrange(KEYS)
            value = None if self._chance.random() < DELETIONS else b"%d" % number
            self._table.pop(key, None)
            if value is not None:
                self._table[key] = value
            timestamp = self._began_ms + number * MS_BETWEEN_UPDATES
            producer.produce(TOPIC, value, key, timestamp=timestamp, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(f"{message.key()!r}: {error}")

    def _wait_for_a_moment(self, producer: Producer) -> None:
        """Mostly until a log is being cleaned, and some time more."""
        if self._chance.random() < 0.8:
            deadline = time.monotonic() + _PATIENCE_S
            while not cleaner_processes(self._broker) and time.monotonic() < deadline:
                producer.poll(0.01)
        time.sleep(self._chance.uniform(0, 0.3))

    def _kill(self) -> str:
        cleaners = cleaner_processes(self._broker)
        if cleaners and self._cleaner_kills_in_a_row < _MOST_CLEANER_KILLS and self._chance.random() < 0.5:
            with suppress(ProcessLookupError):  # it was done
                os.kill(cleaners[0], signal.SIGKILL)
            self._cleaner_kills_in_a_row += 1
            self._summary.cleaner_kills += 1
            return "the cleaner"
        self._broker.kill()
        self._broker.start()
        self._cleaner_kills_in_a_row = 0
        self._summary.broker_kills += 1
        return "the broker" + ", while it cleaned" * bool(cleaners)

    def _check(self, producer: Producer) -> None:
        """Look at the topic when all updates are there and all of it has been cleaned."""
        left = producer.flush(600)
        require(not left and not self._refused, Promise.ANSWERED, f"{left} updates wait; refused: {self._refused[:5]}")
        await_cleaned(self._broker.data_directory, TOPIC)
        received = connect("confluent-kafka", self._broker.bootstrap).consume_all(TOPIC)
        found = table(received)
        differing = sorted(
            key for key in found.keys() | self._table.keys() if found.get(key) != self._table.get(key)
        )  # fmt: skip
        text = f"{len(differing)} of {len(self._table)} keys differ, such as {differing[:5]}"
        require(not differing, Promise.TABLE, text)
        require(len(received) <= _MOST_RECORDS_LEFT, Promise.TABLE, f"{len(received)} records for {len(found)} keys")
        self._summary.keys, self._summary.records_left = len(found), len(received)
