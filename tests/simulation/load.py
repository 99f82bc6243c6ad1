"""Load: producers, transactional producers and consumers of a run, and what is true of the brokers' data in the end."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol

from tests.simulation.client import Address, SimulatedClient
from tests.simulation.clock import MS_PER_HOUR
from tests.simulation.cluster import require
from tests.simulation.consumers import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Consumer,
    Reader,
    committed_offset,
    start_offset,
)
from tests.simulation.deleter import Deleter
from tests.simulation.history import History, Outcome, Partition, StoredRecord
from tests.simulation.members import TEAM, Member
from tests.simulation.network import Weather
from tests.simulation.producers import IdempotentProducer, TransactionalProducer
from tests.simulation.recreator import Recreator
from tests.simulation.simulation import Simulation
from tests.simulation.tables import TableWriter

PATIENCE_S: Final = 120.0
"""How long everything may take to come to rest once nothing is disturbed any more, in simulated seconds."""

STORM: Final = Weather(longest_s=0.05, slow_share=0.2, slowest_s=2.0, loss_share=0.03, torn_share=0.5)

PLAIN: Final[list[Partition]] = [("plain", 0), ("plain", 1)]
LEDGER: Final[list[Partition]] = [("ledger", 0), ("ledger", 1)]
BRIEF: Final[Partition] = ("brief", 0)
"""Retention deletes what is older than an hour by the clock of a replica, or more than some segments."""
TABLE: Final[Partition] = ("table", 0)
"""It is compacted."""

CONFIGS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "ledger": {},
    "brief": {"retention.ms": str(MS_PER_HOUR), "retention.bytes": "3000"},
    "table": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"},
}
"""The topics that the clients use."""

ANY_OFFSET: Final = 1 << 62


class Worker(Protocol):
    """A client that works until it is told to stop."""

    is_over: bool

    async def run(self) -> None:
        """Work until `is_over`."""


@dataclass(slots=True)
class Load:
    """The clients of a run and what they know."""

    simulation: Simulation
    bootstrap: Sequence[Address]
    is_kept: bool
    """Whether the run allows for no loss of acknowledged records."""
    may_change: bool
    """Whether a record that was read may be lost, and another stand in its place."""
    deletes_for_good: bool = True
    """Whether no record that DeleteRecords has deleted may come back."""
    admin: SimulatedClient = field(init=False)
    history: History = field(default_factory=History)
    clients: list[str] = field(default_factory=list)
    """The names of the clients' machines."""
    _replicas: int = 1
    _table: TableWriter | None = None
    _working: list[Worker] = field(default_factory=list)
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admin = self.client("admin")

    def client(self, name: str) -> SimulatedClient:
        """Another client, on a machine of its own."""
        self.clients.append(name)
        return SimulatedClient(self.simulation, name, self.bootstrap)

    async def create_topics(self, *, replicas: int = 1) -> None:
        """Create the topics that the clients use."""
        self._replicas = replicas
        for topic, configs in CONFIGS.items():
            creating = self.admin.create_topic(topic, 2, replicas=replicas, configs=configs)
            await finished(self.admin.process.spawn(creating, name=f"the creation of {topic}"))

    def begin_one(self, client: SimulatedClient, worker: Worker) -> None:
        """Let one client work."""
        self._working.append(worker)
        self._tasks.append(client.process.spawn(worker.run(), name=client.name))

    def begin(self, random: Random, *, most_writers: int = 2) -> None:
        """Let some clients work; ``most_writers``: how many of them may write transactions."""
        history, loses = self.history, not self.is_kept
        for number in range(random.randint(1, 2)):
            one = self.client(f"producer-{number}")
            self.begin_one(one, IdempotentProducer(one, history, random.choice(PLAIN), may_lose=loses))
        for number in range(random.randint(0, most_writers)):
            one = self.client(f"writer-{number}")
            self.begin_one(one, TransactionalProducer(one, history, LEDGER, may_lose=loses))
        for number in range(random.randint(0, 2)):
            one = self.client(f"consumer-{number}")
            level = random.choice((READ_COMMITTED, READ_UNCOMMITTED))
            partition = random.choice((*PLAIN, *LEDGER))
            self.begin_one(one, Consumer(one, history, partition, level, may_change=self.may_change))

        self._begin_others(random)

    def _begin_others(self, random: Random) -> None:
        """Let some of those clients work that a run may have or not."""
        history, is_kept = self.history, self.is_kept
        if random.random() < 0.4:
            for number in range(random.randint(2, 3)):
                one = self.client(f"member-{number}")
                self.begin_one(one, Member(one, history, [*PLAIN, *LEDGER], is_kept=is_kept))
        if random.random() < 0.4:
            one = self.client("deleter")
            self.begin_one(one, Deleter(one, history, PLAIN, is_for_good=self.deletes_for_good))
        if random.random() < 0.3:
            one = self.client("recreator")
            self.begin_one(one, Recreator(one, replicas=self._replicas, is_kept=is_kept))
        if random.random() < 0.3:
            one = self.client("brief-producer")
            history.of(BRIEF).may_begin_at = ANY_OFFSET
            self.begin_one(one, IdempotentProducer(one, history, BRIEF, may_lose=not is_kept))
        if random.random() < 0.4:
            one = self.client("table-writer")
            self._table = TableWriter(one, history, TABLE, may_lose=not is_kept)
            self.begin_one(one, self._table)

    async def come_to_rest(self) -> None:
        """Let every client finish what it does, undisturbed."""
        self.simulation.network.heal_all()
        self.simulation.network.weather = Weather(loss_share=0.0)
        for worker in self._working:
            worker.is_over = True
        for task in self._tasks:
            await finished(task)

    async def check(self) -> None:
        """Read everything and compare."""
        history = self.history
        for partition in (*PLAIN, BRIEF):
            records = await self._whole_log(partition)
            begins_at = await self._asked(start_offset(self.admin, partition), f"the start offset of {partition}")
            history.check_log(partition, records, start_offset=begins_at, is_kept=self.is_kept)
        if self._table is not None and self.is_kept:
            self._table.check(await self._whole_log(TABLE))
        visible = {}
        for partition in LEDGER:
            reading = Reader(self.admin, partition, READ_COMMITTED).read_all(waits_for_transactions=self.is_kept)
            records = await self._asked(reading, f"the reading of {partition}")
            history.check_log(partition, records, start_offset=0, is_kept=False)
            visible[partition] = records
        if self.is_kept:
            history.check_transactions(visible)
            for group, partition in history.committed_offsets:
                asking = committed_offset(self.admin, group, partition)
                found = await self._asked(asking, f"the fetch of the offset of {group}")
                history.check_offset(group, partition, found)
            for partition in history.team.sent:
                asking = committed_offset(self.admin, TEAM, partition)
                found = await self._asked(asking, f"the fetch of the offset of {TEAM}")
                history.check_team(partition, found)
        committed = sum(one.outcome is Outcome.COMMITTED for one in history.transactions)
        self.simulation.trace.add(f"checked {history.acknowledged} records, {committed} transactions")

    async def _whole_log(self, partition: Partition) -> list[StoredRecord]:
        reading = Reader(self.admin, partition, READ_UNCOMMITTED).read_all()
        records: list[StoredRecord] = await self._asked(reading, f"the reading of {partition}")
        return records

    async def _asked(self, asking: Awaitable[Any], name: str) -> Any:
        async def ask() -> Any:
            return await asking

        return await finished(self.admin.process.spawn(ask(), name=name))


async def finished(task: "asyncio.Task[Any]") -> Any:
    """The result of a client's task, which must come within the time that is allowed."""
    done, _ = await asyncio.wait((task,), timeout=PATIENCE_S)
    require(bool(done), f"{task.get_name()} has not come to its end in {PATIENCE_S:.0f} s without a disturbance")
    return task.result()
