"""One broker with producers, transactions and consumers, through kills, power cuts, bad networks and clean stops."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, Final

from tests.simulation.client import SimulatedClient
from tests.simulation.cluster import PORT, SimulatedBroker, require
from tests.simulation.consumers import READ_COMMITTED, READ_UNCOMMITTED, Consumer, Reader, committed_offset
from tests.simulation.history import History, Outcome, Partition
from tests.simulation.network import Weather
from tests.simulation.producers import IdempotentProducer, TransactionalProducer
from tests.simulation.simulation import Simulation

PATIENCE_S: Final = 120.0
"""How long everything may take to come to rest once the broker runs undisturbed, in simulated seconds."""

STORM: Final = Weather(longest_s=0.05, slow_share=0.2, slowest_s=2.0, loss_share=0.03, torn_share=0.5)

PLAIN: Final[list[Partition]] = [("plain", 0), ("plain", 1)]
LEDGER: Final[list[Partition]] = [("ledger", 0), ("ledger", 1)]


class Setting(Enum):
    """What the run disturbs the broker with, and so what it must keep."""

    KILLS = "kills"
    """Processes are killed: everything acknowledged survives in the page cache."""
    FLUSHED = "power cuts with a flush for each message"
    """Power is cut, and every acknowledgement has waited for the disk: everything acknowledged survives."""
    UNFLUSHED = "power cuts"
    """Power is cut, and nothing was promised but a broker that starts, and logs that are whole."""


@dataclass(slots=True)
class Load:
    """The clients of a run and what they know."""

    simulation: Simulation
    history: History
    setting: Setting
    working: "list[IdempotentProducer | TransactionalProducer | Consumer]"
    tasks: "list[asyncio.Task[None]]"

    @property
    def loses(self) -> bool:
        return self.setting is Setting.UNFLUSHED


async def single_node(simulation: Simulation) -> None:
    """The scenario of one seed."""
    random = simulation.chance.of("scenario")
    setting = random.choice(tuple(Setting))
    simulation.trace.add(f"setting {setting.value}")
    settings = {
        "node.id": "1",
        "log.index.interval.bytes": str(random.choice((0, 200, 4_096))),
        "metadata.log.max.record.bytes.between.snapshots": str(random.choice((2_000, 20_000_000))),
    }
    if setting is Setting.FLUSHED:
        settings["log.flush.interval.messages"] = "1"
    broker = SimulatedBroker(simulation, "broker-1", settings, segment_bytes=random.choice((1_000, 4_000, 100_000)))
    await broker.start()
    admin = SimulatedClient(simulation, "admin", [(broker.name, PORT)])
    for topic in ("plain", "ledger"):
        await _finished(admin.process.spawn(admin.create_topic(topic, 2)))
    load = _begin_load(simulation, setting, broker, random)
    for _ in range(random.randint(1, 4)):
        await asyncio.sleep(random.expovariate(1.0))
        await _disturb(simulation, broker, load, random)
    await _come_to_rest(simulation, broker, load)
    await _check(admin, load)
    if random.random() < 0.3:
        await broker.stop()
        await broker.start()
        await _check(admin, load)


def _begin_load(simulation: Simulation, setting: Setting, broker: SimulatedBroker, random: Random) -> Load:
    load = Load(simulation, History(), setting, [], [])
    history, loses = load.history, load.loses

    def client(name: str) -> SimulatedClient:
        return SimulatedClient(simulation, name, [(broker.name, PORT)])

    def begin(client: SimulatedClient, worker: IdempotentProducer | TransactionalProducer | Consumer) -> None:
        load.working.append(worker)
        load.tasks.append(client.process.spawn(worker.run(), name=client.name))

    for number in range(random.randint(1, 3)):
        one = client(f"producer-{number}")
        begin(one, IdempotentProducer(one, history, random.choice(PLAIN), may_lose=loses))
    for number in range(random.randint(0, 2)):
        one = client(f"writer-{number}")
        begin(one, TransactionalProducer(one, history, LEDGER, may_lose=loses))
    for number in range(random.randint(0, 2)):
        one = client(f"consumer-{number}")
        level = random.choice((READ_COMMITTED, READ_UNCOMMITTED))
        # Before its flush a record is visible, and a power cut may take it.
        may_change = setting is not Setting.KILLS
        begin(one, Consumer(one, history, random.choice((*PLAIN, *LEDGER)), level, may_change=may_change))
    return load


async def _disturb(simulation: Simulation, broker: SimulatedBroker, load: Load, random: Random) -> None:
    """One disturbance; the broker runs again behind it."""
    cuts_power = load.setting is not Setting.KILLS
    kind = random.choice(("kill", "kill", "stop", "storm", "partition", *(("power",) * 4 if cuts_power else ())))
    if kind == "storm":
        simulation.network.weather = STORM
        await asyncio.sleep(random.uniform(0.1, 5.0))
        simulation.network.weather = Weather()
        return
    if kind == "partition":
        others = [client for client in ("producer-0", "writer-0", "consumer-0", "admin") if random.random() < 0.6]
        for other in others:
            simulation.network.part(broker.name, other)
        await asyncio.sleep(random.uniform(0.1, 8.0))
        simulation.network.heal_all()
        return
    if kind == "stop":
        await _stop(broker, random)
    else:
        _end(broker, kind)
    # A start may be interrupted, again and again.
    while True:
        await asyncio.sleep(random.expovariate(5.0))
        starting = asyncio.get_running_loop().create_task(broker.start())
        if random.random() < 0.7:
            await starting
            return
        await asyncio.sleep(random.uniform(0.0, 0.02))
        if not broker.is_running:
            await starting
            continue
        _end(broker, "power" if cuts_power and random.random() < 0.5 else "kill")
        await starting


def _end(broker: SimulatedBroker, kind: str) -> None:
    if kind == "power":
        broker.cut_power()
    else:
        broker.kill()


async def _stop(broker: SimulatedBroker, random: Random) -> None:
    """Stop the broker in order; that may be interrupted, too."""
    stopping = asyncio.get_running_loop().create_task(broker.stop())
    if random.random() < 0.3:
        await asyncio.sleep(random.uniform(0.0, 0.02))
        if broker.is_running:
            broker.kill()
    await stopping


async def _come_to_rest(simulation: Simulation, broker: SimulatedBroker, load: Load) -> None:
    """Let every client finish what it does, on a broker that is not disturbed any more."""
    broker.check()
    simulation.network.heal_all()
    simulation.network.weather = Weather(loss_share=0.0)
    for worker in load.working:
        worker.is_over = True
    for task in load.tasks:
        await _finished(task)


async def _finished(task: "asyncio.Task[Any]") -> Any:
    """The result of a client's task, which must come within the time that is allowed."""
    done, _ = await asyncio.wait((task,), timeout=PATIENCE_S)
    require(bool(done), f"{task.get_name()} has not come to its end in {PATIENCE_S:.0f} s without a disturbance")
    return task.result()


async def _check(admin: SimulatedClient, load: Load) -> None:
    """Read everything and compare."""
    history = load.history
    is_kept = not load.loses

    def in_client(what: Awaitable[Any], name: str) -> Awaitable[Any]:
        async def wait() -> Any:
            return await what

        return _finished(admin.process.spawn(wait(), name=name))

    for partition in PLAIN:
        records = await in_client(Reader(admin, partition, READ_UNCOMMITTED).read_all(), f"the reading of {partition}")
        history.check_log(partition, records, is_kept=is_kept)
    visible = {}
    for partition in LEDGER:
        reading = Reader(admin, partition, READ_COMMITTED).read_all(waits_for_transactions=is_kept)
        records = await in_client(reading, f"the reading of {partition}")
        history.check_log(partition, records, is_kept=False)
        visible[partition] = records
    if is_kept:
        history.check_transactions(visible)
        for group, partition in history.committed_offsets:
            found = await in_client(committed_offset(admin, group, partition), f"the fetch of the offsets of {group}")
            history.check_offset(group, partition, found)
    committed = sum(one.outcome is Outcome.COMMITTED for one in history.transactions)
    load.simulation.trace.add(f"checked {history.acknowledged} records, {committed} transactions")
