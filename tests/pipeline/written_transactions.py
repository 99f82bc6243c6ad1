"""A topic with transactions that our own broker wrote: committed, aborted, of several producers in one partition, with
markers at the edges of segments, and one that is still open."""

from __future__ import annotations

import shutil
from pathlib import Path

from protocol.errors import ErrorCode as E
from tests.support.broker import InProcessBroker, running_broker
from tests.unit.broker.handlers.transactional_client import TransactionalClient, with_coordinators

TOPIC = "ledger"

COMMITTED = [0, 1, 3, 7, 10, 13]
"""The offsets that a read_committed consumer gets."""
ABORTED = [2, 5, 8, 9]
BEHIND = [14, 15, 16]
"""The offsets of the records of the open transaction, and behind it of no transaction, and of one that is committed."""
LAST_STABLE_OFFSET = 14
END_OFFSET = 18
FIRST_OFFSETS = [0, 4, 7, 11, 12]
"""Of the segments. Markers are the first batches of a segment at 4, 11 and 12, and the last ones at 6, 11 and 17."""

NO_RETENTION = {"retention_ms": -1}

NO_TIMEOUTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "86400000"}
"""A setting for brokers that open the directory: the open transaction is years old for them."""

OLD, NEW = (9, 4), (12, 5)
"""The versions of Produce and EndTxn that clients of transaction versions 1 and 2 use (KIP-890)."""


class Ledger:
    """The producers. The third has a transaction open when the broker stops, and can end it in the next one."""

    def __init__(self, directory: Path, versions: tuple[int, int] = OLD) -> None:
        self.directory = directory
        self._producing, self._ending = versions
        with running_broker(directory) as broker:
            with_coordinators(broker)
            broker.create_topic(TOPIC, **NO_RETENTION)
            self._clients = {name: TransactionalClient(broker, name).begun() for name in ("a", "b", "open")}
            self._write(broker)
            # What a killed process leaves is what is in its files at that moment.
            shutil.copytree(directory, self.killed, ignore=shutil.ignore_patterns("*.tmp"))

    @property
    def killed(self) -> Path:
        """The same directory as it would be if the broker had been killed."""
        return self.directory.with_name(f"{self.directory.name}-killed")

    @property
    def open_producer_id(self) -> int:
        """The id of the producer whose transaction is open."""
        return self._clients["open"].producer_id

    def go_on(self, *, commit: bool) -> None:
        """End the open transaction."""
        with running_broker(self.directory) as broker:
            components = broker.server.components
            broker.wait_until(lambda: bool(components.transaction_coordinator.transactions.active))
            self._clients["open"].broker = broker
            self._end("open", commit=commit)

    def _write(self, broker: InProcessBroker) -> None:
        self._produce("a", 2)
        self._produce("b", 1)
        self._produce("a", 1)
        self._roll(broker)
        self._end("a", commit=True)
        self._produce("b", 1)
        self._end("b", commit=False)
        self._roll(broker)
        broker.produce(TOPIC, b"of no transaction")
        self._produce("a", 2)
        self._produce("b", 1)
        self._roll(broker)
        self._end("a", commit=False)
        self._roll(broker)
        self._end("b", commit=True)
        broker.produce(TOPIC, b"of no transaction")
        self._produce("open", 1)
        broker.produce(TOPIC, b"of no transaction")
        self._produce("a", 1)
        self._end("a", commit=True)

    def _produce(self, name: str, records: int) -> None:
        client = self._clients[name]
        if self._producing < NEW[0]:
            assert client.add(3, (TOPIC, [0])) == [E.NONE]
        assert client.produce(self._producing, topic=TOPIC, records=records).error_code == E.NONE

    def _end(self, name: str, *, commit: bool) -> None:
        client = self._clients[name]
        log = client.broker.log(TOPIC)
        end_offset = log.log_end_offset
        assert client.end(self._ending, commit=commit) is E.NONE
        # Whatever follows has to wait until the coordinator has noted that the marker was written.
        coordinator = client.broker.server.components.transaction_coordinator
        client.broker.wait_until(
            lambda: (
                log.log_end_offset > end_offset
                and coordinator.transactions.of(name).shard.describe(name).state.startswith("Complete")
            )
        )

    def _roll(self, broker: InProcessBroker) -> None:
        broker.log(TOPIC).roll(broker.clock.now_ms())
