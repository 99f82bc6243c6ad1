"""A coordinator that keeps a value for each key, over a topic of its own."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import NamedTuple

from broker.coordinators.result import CoordinatorResult, ProducerIdAndEpoch
from broker.coordinators.runtime import CoordinatorRuntime, RuntimeSettings
from broker.coordinators.shard import ShardType, Submit
from broker.replication.transaction_marker import TransactionMarker
from broker.runtime.time_slices import TimeSlices
from broker.runtime.worker_thread import WorkerThread
from protocol.errors import ErrorCode
from protocol.primitives import Malformed, Unencodable
from storage.batch.record_batch import Codec
from tests.support.broker import InProcessBroker

TOPIC = "__transaction_state"
UNENCODABLE = "unencodable"
"""A key for which no record can be made."""


class Entry(NamedTuple):
    """A key and its value from now on."""

    key: str
    value: str | None


def encode(entry: Entry) -> tuple[bytes, bytes | None]:
    if entry.key == UNENCODABLE:
        raise Unencodable("a key that has no bytes")
    return entry.key.encode(), None if entry.value is None else entry.value.encode()


def decode(key: bytes, value: bytes | None) -> Entry:
    if key.startswith(b"\xff"):
        raise Malformed(f"a key of {len(key)} bytes that begins with 255")
    if value == b"\xff":
        raise Malformed("a value that is 255")
    return Entry(key.decode(), None if value is None else value.decode())


@dataclass
class Register:
    """The shard."""

    submit: Submit
    values: dict[str, str] = field(default_factory=dict)
    in_transactions: dict[int, dict[str, str]] = field(default_factory=dict)
    replayed: list[Entry] = field(default_factory=list)
    is_loaded: bool = False
    unloaded_with: ErrorCode | None = None

    def put(self, key: str, value: str | None, reply: Callable[[ErrorCode], None]) -> CoordinatorResult[Entry]:
        return CoordinatorResult([Entry(key, value)], reply)

    def remove_all(self) -> Iterator[CoordinatorResult[Entry] | None]:
        for key in list(self.values):
            yield CoordinatorResult([Entry(key, None)], lambda _: None)
        yield None

    def replay(self, record: Entry, *, producer_id: int = -1, offset: int = -1) -> None:
        self.replayed.append(record)
        values = self.values if producer_id < 0 else self.in_transactions.setdefault(producer_id, {})
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value

    def replay_marker(self, producer_id: int, *, commits: bool) -> None:
        decided = self.in_transactions.pop(producer_id, {})
        if commits:
            self.values.update(decided)

    def loaded(self) -> None:
        self.is_loaded = True

    def unload(self, code: ErrorCode) -> None:
        self.unloaded_with = code


class Toy:
    """The runtime, and how a test uses it."""

    def __init__(
        self,
        broker: InProcessBroker,
        *,
        topic: str = TOPIC,
        codec: Codec = Codec.NONE,
        load_buffer_bytes: int = 1 << 20,
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        self.broker = broker
        self.shards: list[Register] = []
        """Every shard ever made, in this order."""

        async def make() -> CoordinatorRuntime[Register]:
            loop = asyncio.get_running_loop()
            self.reader = WorkerThread("reader", loop, broker.clock)
            return CoordinatorRuntime(
                topic,
                settings=RuntimeSettings(
                    partitions=1,
                    codec=codec,
                    base_sequence=0,
                    write_timeout_ms=5_000,
                    load_buffer_bytes=load_buffer_bytes,
                ),
                metadata=broker.server.components.metadata,
                replicas=broker.server.components.replicas,
                clock=broker.clock,
                slices=TimeSlices(loop.call_soon, now_ns),
                reader=self.reader,
                later=lambda after_ms, job: broker.clock.call_at(broker.clock.monotonic_ms() + after_ms, job),
                shard_type=lambda: ShardType(self._make_shard, decode, encode),
            )

        self.runtime: CoordinatorRuntime[Register] = broker.run(make())

    def _make_shard(self, submit: Submit) -> Register:
        self.shards.append(Register(submit))
        return self.shards[-1]

    def start(self) -> None:
        """Let it load, and wait until it has."""
        self.begin()
        self.wait_until_loaded()

    def begin(self) -> None:
        """Let it load."""

        async def start() -> None:
            self.runtime.start()

        self.broker.run(start())

    def wait_until_loaded(self) -> None:
        stats = self.runtime.loading_stats
        self.broker.wait_until(lambda: stats.partitions_loaded == stats.partitions_total)

    def stop(self) -> None:
        async def stop() -> None:
            self.runtime.stop()
            await self.reader.stop()

        self.broker.run(stop())

    def put(self, *entries: tuple[str, str | None]) -> list[ErrorCode]:
        """Set values in one turn of the loop; the answers come into the list."""
        answers: list[ErrorCode] = []

        async def put() -> None:
            for key, value in entries:
                coordinator = self.runtime.of(key)
                coordinator.write(coordinator.shard.put(key, value, answers.append))

        self.broker.run(put())
        self.broker.settle()
        return answers

    def put_in_transaction(self, producer: ProducerIdAndEpoch, *entries: tuple[str, str | None]) -> list[ErrorCode]:
        """Set values in the producer's transaction, each in a batch of its own."""
        answers: list[ErrorCode] = []

        async def put() -> None:
            for key, value in entries:
                result = CoordinatorResult([Entry(key, value)], answers.append, producer)
                self.runtime.of(key).write(result)

        self.broker.run(put())
        self.broker.settle()
        return answers

    def end_transaction(self, marker: TransactionMarker, index: int = 0) -> list[ErrorCode]:
        """Write a marker into a partition; the answer comes into the list."""
        answers: list[ErrorCode] = []

        async def append() -> None:
            self.runtime.append_marker(index, marker, answers.append)

        self.broker.run(append())
        self.broker.settle()
        return answers

    def value(self, key: str) -> str | None:
        return self.runtime.of(key).shard.values.get(key)

    @property
    def values(self) -> dict[str, str]:
        """What all shards together hold."""
        return {key: value for one in self.runtime.all() for key, value in one.shard.values.items()}
