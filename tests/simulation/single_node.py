"""One broker with producers, transactions and consumers, through kills, power cuts, bad networks and clean stops."""

import asyncio
from enum import Enum
from random import Random

from tests.simulation.cluster import LOG_DIRS, LOSABLE, PORT, SimulatedBroker
from tests.simulation.load import BRIEF, LEDGER, PLAIN, STORM, TABLE, Load
from tests.simulation.network import Weather
from tests.simulation.operator import Operator
from tests.simulation.simulation import Simulation
from tests.simulation.worker import Pace


class Setting(Enum):
    """What the run disturbs the broker with, and so what it must keep."""

    KILLS = "kills"
    """Processes are killed: everything acknowledged survives in the page cache."""
    FLUSHED = "power cuts with a flush for each message"
    """Power is cut, and every acknowledgement has waited for the disk: everything acknowledged survives."""
    UNFLUSHED = "power cuts"
    """Power is cut, and nothing was promised but a broker that starts, and logs that are whole."""


async def single_node(simulation: Simulation) -> None:
    """The scenario of one seed."""
    random = simulation.chance.of("scenario")
    setting = random.choice(tuple(Setting))
    simulation.trace.add(f"setting {setting.value}")
    settings = {
        "node.id": "1",
        "log.dirs": random.choice(LOG_DIRS),
        "log.index.interval.bytes": str(random.choice((0, 200, 4_096))),
        "metadata.log.max.record.bytes.between.snapshots": str(random.choice((2_000, 20_000_000))),
    }
    if setting is Setting.FLUSHED:
        settings["log.flush.interval.messages"] = "1"
    broker = SimulatedBroker(simulation, "broker-1", settings, segment_bytes=random.choice((1_000, 4_000, 100_000)))
    await broker.start()
    load = Load(
        simulation,
        [(broker.name, PORT)],
        is_kept=setting is not Setting.UNFLUSHED,
        # Before its flush a record is visible, and a power cut may take it.
        may_change=setting is not Setting.KILLS,
    )
    await load.create_topics()
    load.begin(random)
    if random.random() < 0.3:
        operator = load.client("operator")
        log_dirs = broker.settings.log_dirs
        load.begin_one(operator, Operator(operator, [*PLAIN, *LEDGER, BRIEF, TABLE], [1], log_dirs))
    for _ in range(random.randint(1, 4)):
        await asyncio.sleep(random.expovariate(1.0))
        await _disturb(simulation, broker, load, random, cuts_power=setting is not Setting.KILLS)
    broker.check()
    broker.pace.slow_share = Pace().slow_share
    await load.come_to_rest()
    await load.check()
    if random.random() < 0.3:
        await broker.stop()
        await broker.start()
        await load.check()


async def _disturb(
    simulation: Simulation, broker: SimulatedBroker, load: Load, random: Random, *, cuts_power: bool
) -> None:
    """One disturbance; the broker runs again behind it."""
    powers = ("power",) * 4 if cuts_power else ()
    kinds = ("kill", "kill", "stop", "storm", "partition", "slow disk", "full disk", "lost disk", "clock", *powers)
    kind = random.choice(kinds)
    if kind == "slow disk":
        broker.pace.slow_share = 0.8
        if random.random() < 0.5:
            await asyncio.sleep(random.uniform(0.1, 3.0))
            broker.pace.slow_share = Pace().slow_share
        return
    if kind == "full disk":
        broker.disk.bytes_left = random.randrange(3_000)
        await asyncio.sleep(random.uniform(0.1, 3.0))
        broker.disk.bytes_left = None
        return
    if kind == "clock":
        broker.set_clock()
        return
    if kind == "storm":
        simulation.network.weather = STORM
        await asyncio.sleep(random.uniform(0.1, 5.0))
        simulation.network.weather = Weather()
        return
    if kind == "partition":
        for client in load.clients:
            if random.random() < 0.6:
                simulation.network.part(broker.name, client)
        await asyncio.sleep(random.uniform(0.1, 8.0))
        simulation.network.heal_all()
        return
    if kind == "lost disk":
        broker.disk.lost = LOSABLE
        await asyncio.sleep(random.uniform(0.1, 5.0))
        broker.disk.lost = None  # its directory stays offline until the next start
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
        if broker.is_running:
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
