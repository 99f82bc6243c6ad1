"""TableWriter: updates the keys of a compacted topic, whose log must keep the last value of each key."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from storage.batch.records import Record
from tests.simulation.client import SimulatedClient
from tests.simulation.cluster import require
from tests.simulation.history import History, Partition, StoredRecord
from tests.simulation.producers import Producer

KEYS: Final = tuple(b"key-%d" % number for number in range(5))


@dataclass(slots=True)
class KeyHistory:
    """What was written for a key: values, and None for a tombstone."""

    sent: list[bytes | None] = field(default_factory=lambda: [None])
    """In the order of writing; before the first there is no value."""
    acknowledged: int = 0
    """The place in `sent` of the last that was acknowledged."""


class TableWriter:
    """Writes one update after the other, until it is told to stop."""

    def __init__(self, client: SimulatedClient, history: History, partition: Partition, *, may_lose: bool) -> None:
        self._client = client
        self._partition = partition
        self._producer = Producer(client, history, may_lose=may_lose)
        self.keys = {key: KeyHistory() for key in KEYS}
        self.is_over = False

    async def run(self) -> None:
        """Write until `is_over`."""
        client, producer, random = self._client, self._producer, self._client.random
        await producer.identify()
        number = 0
        while not self.is_over:
            records = []
            for key in random.sample(KEYS, random.randint(1, 3)):
                value = None if random.random() < 0.15 else b"%s:%d" % (client.name.encode(), number)
                number += 1
                self.keys[key].sent.append(value)
                records.append(Record(timestamp=client.clock.now_ms(), key=key, value=value))
            if await producer.send(self._partition, records) is None:
                require(producer.may_lose, f"{client.name} lost its identity though no record may be lost")
                await producer.identify()
                continue
            for record in records:
                assert isinstance(record.key, bytes)
                self.keys[record.key].acknowledged = len(self.keys[record.key].sent) - 1
            if random.random() < 0.3:
                await client.pause()

    def check(self, records: Sequence[StoredRecord]) -> None:
        """Compare with the whole log, read in the end."""
        table: dict[bytes, bytes | None] = dict.fromkeys(KEYS)
        for record in records:
            table[record.key] = record.value or None
        for key, found in table.items():
            history = self.keys[key]
            allowed = history.sent[history.acknowledged :]
            require(found in allowed, f"{self._partition} has {found!r} for {key!r}, expected one of {allowed}")
