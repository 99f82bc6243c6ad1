"""Three brokers that replicate to each other, one of them with the controller, through kills and bad networks.

Records are acknowledged by all replicas in sync, two at least. So whatever is killed: an acknowledged record is in the
log of every later leader, what a consumer has read stays as it was, and in the end all replicas have the same logs.

In some runs the controller keeps eligible leader replicas (KIP-966). In some runs every message is flushed; then an
acknowledged record stays even if all machines lose their power at once.
"""

import asyncio
from dataclasses import replace
from random import Random
from typing import Final

from config.release_versions import NEWEST
from storage.batch.record_batch import computed_crc, read_header
from storage.batch.records import iterate_records
from storage.log import Log
from tests.simulation.cluster import LOG_DIRS, LOSABLE, PORT, SimulatedBroker, require
from tests.simulation.load import BRIEF, LEDGER, PATIENCE_S, PLAIN, STORM, TABLE, Load
from tests.simulation.network import Weather
from tests.simulation.operator import Operator
from tests.simulation.simulation import Broken, Simulation
from tests.simulation.worker import Pace

CONTROLLER_PORT: Final = 9093
NODES: Final = (1, 2, 3)

SETTINGS: Final = {
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}


def make_cluster(
    simulation: Simulation, random: Random, *, flushes: bool, release_version: str
) -> list[SimulatedBroker]:
    """The machines of a cluster whose controller is the first of them."""
    interval_bytes = str(random.choice((0, 200, 4_096)))
    snapshot_bytes = str(random.choice((2_000, 20_000_000)))
    segment_bytes = random.choice((1_000, 4_000, 100_000))
    log_dirs = random.choice(LOG_DIRS)
    fetchers = {
        "num.replica.fetchers": str(random.choice((1, 1, 3))),
        "replica.fetch.max.bytes": str(random.choice((1_048_576, 200))),
        "replica.fetch.response.max.bytes": str(random.choice((10_485_760, 1_000))),
    }
    brokers = []
    for node_id in NODES:
        name = f"broker-{node_id}"
        settings = {
            **SETTINGS,
            **fetchers,
            "node.id": str(node_id),
            "log.dirs": log_dirs,
            "log.index.interval.bytes": interval_bytes,
            "metadata.log.max.record.bytes.between.snapshots": snapshot_bytes,
        }
        if flushes:
            settings["log.flush.interval.messages"] = "1"
        if node_id == NODES[0]:
            settings["listeners"] = f"PLAINTEXT://{name}:{PORT},CONTROLLER://{name}:{CONTROLLER_PORT}"
            settings["ottla.release.version"] = release_version
        else:
            settings["process.roles"] = "broker"
            settings["controller.quorum.bootstrap.servers"] = f"broker-{NODES[0]}:{CONTROLLER_PORT}"
        brokers.append(SimulatedBroker(simulation, name, settings, segment_bytes=segment_bytes))
    return brokers


async def replicated(simulation: Simulation) -> None:
    """The scenario of one seed."""
    random = simulation.chance.of("scenario")
    flushes = random.random() < 0.3
    simulation.trace.add("every message is flushed" if flushes else "messages are not flushed")
    has_eligible_leaders = random.random() < 0.5
    brokers = make_cluster(
        simulation, random, flushes=flushes, release_version=NEWEST.name if has_eligible_leaders else "4.0"
    )
    for broker in brokers:
        await _started(broker)
    load = Load(simulation, [(broker.name, PORT) for broker in brokers], is_kept=True, may_change=flushes)
    # An eligible replica that was away when records were deleted has them still when it leads.
    load.deletes_for_good = not has_eligible_leaders
    await load.create_topics(replicas=len(NODES))
    load.begin(random)
    if random.random() < 0.5:
        operator = load.client("operator")
        log_dirs = brokers[0].settings.log_dirs
        load.begin_one(operator, Operator(operator, [*PLAIN, *LEDGER, BRIEF, TABLE], NODES, log_dirs))
    behind: list[SimulatedBroker] | None = None if flushes else []
    for _ in range(random.randint(1, 5)):
        await asyncio.sleep(random.expovariate(0.7))
        await _disturb(simulation, brokers, load, random, behind)
    simulation.network.heal_all()
    for broker in brokers:
        broker.check()
        if broker.disk.lost is not None and broker.is_running:
            broker.kill()  # a directory that has failed stays offline until the next start
        broker.disk.lost = None
        if not broker.is_running:
            _start(broker)
    try:
        await load.come_to_rest()
    finally:
        for broker in brokers:
            broker.check()  # a broker that has ended by itself is why clients wait
    await _all_in_sync(brokers)
    await load.check()
    _compare_logs(brokers)


async def _started(broker: SimulatedBroker) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await broker.start()


def _start(broker: SimulatedBroker) -> None:
    """Start without waiting: a member waits for its controller, which may be down."""
    task = asyncio.get_running_loop().create_task(broker.start())
    broker.starting = task


async def _disturb(
    simulation: Simulation,
    brokers: list[SimulatedBroker],
    load: Load,
    random: Random,
    behind: list[SimulatedBroker] | None,
) -> None:
    """One disturbance, and sometimes the end of those before it.

    ``behind`` are the brokers that have lost records with their power, and may have to be given them by the others:
    until then the others stay alive. Else all of those in sync could fail but the one that has lost something, and
    Kafka, too, makes the last one in sync the leader again, whatever it has lost. It is None where every message is
    flushed: a broker loses nothing that matters then.
    """
    network = simulation.network
    if behind and have_caught_up(brokers):
        behind.clear()
    broker = random.choice(brokers)
    kinds = ("kill", "kill", "kill", "power", "power", "stop", "storm", "part", "cut off", "heal", "clock", "damage",
             "full disk", "slow disk", "lost disk")  # fmt: skip
    kind = random.choice(kinds if behind is not None else (*kinds, "power", "power", "power"))
    if kind == "storm":
        network.weather = replace(STORM, damage_share=0.2)
        await asyncio.sleep(random.uniform(0.1, 5.0))
        network.weather = Weather()
    elif kind == "part":
        other = random.choice([one for one in brokers if one is not broker])
        network.part(broker.name, other.name)
        await asyncio.sleep(random.uniform(0.1, 6.0))
    elif kind == "cut off":
        for name in (*(one.name for one in brokers if one is not broker), *load.clients):
            if random.random() < 0.8:
                network.part(broker.name, name)
        await asyncio.sleep(random.uniform(0.1, 8.0))
    elif kind == "damage":
        network.weather = Weather(damage_share=0.5)
        await asyncio.sleep(random.uniform(0.1, 3.0))
        network.weather = Weather()
    elif kind == "clock":
        broker.set_clock()
    elif kind == "full disk" and _is_ready(broker):  # a start may need some space
        broker.disk.bytes_left = random.randrange(3_000)
        await asyncio.sleep(random.uniform(0.1, 6.0))
        broker.disk.bytes_left = None
    elif kind == "lost disk":
        broker.disk.lost = LOSABLE
        await asyncio.sleep(random.uniform(0.1, 6.0))
    elif kind == "slow disk":
        broker.pace.slow_share = 0.8
        await asyncio.sleep(random.uniform(0.1, 6.0))
        broker.pace.slow_share = Pace().slow_share
    elif kind == "heal":
        network.heal_all()
    elif kind == "power" and behind is None:
        for one in random.sample(brokers, random.randint(1, len(brokers))):
            if one.is_running:
                one.cut_power()
    elif broker.is_running and not behind:
        if kind == "power" and behind is not None and have_caught_up(brokers) and not _asks_for_an_isr(broker):
            # What it loses is on the others, and it does not lead before it has caught up.
            network.heal_all()
            trusted = _registration(brokers, broker)
            broker.cut_power()
            behind.append(broker)
            if broker is brokers[0] or random.random() < 0.5:
                _start(broker)
            # If the others were cut off before the controller has noticed, it alone would be left in sync.
            async with asyncio.timeout(PATIENCE_S):
                while _registration(brokers, broker) in (None, trusted):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        elif kind != "stop":
            broker.kill()
        else:
            broker.begin_stop()
            await asyncio.sleep(random.uniform(0.0, 3.0))
            if broker.is_running:
                broker.kill()
    if random.random() < 0.5:
        network.heal_all()
    for one in brokers:
        if not one.is_running and random.random() < 0.6:
            await asyncio.sleep(random.expovariate(3.0))
            _start(one)


def _registration(brokers: list[SimulatedBroker], broker: SimulatedBroker) -> tuple[int, bool] | None:
    """The epoch of a broker's registration, and whether it is fenced, as the controller has it; None while that is
    away."""
    controller = brokers[0].server
    if controller is None or not controller.readiness.is_ready:
        return None
    found = controller.metadata.image.cluster.brokers[broker.node_id]
    return found.broker_epoch, found.fenced


def _is_ready(broker: SimulatedBroker) -> bool:
    return broker.server is not None and broker.server.readiness.is_ready


def have_caught_up(brokers: list[SimulatedBroker]) -> bool:
    """Whether every broker is registered for its present run, and every replica in sync since then."""
    for broker in brokers:
        if broker.server is None or not broker.server.readiness.is_ready or broker.server.broker_epoch < 0:
            return False
    controller = brokers[0].server
    assert controller is not None
    topics = controller.metadata.image.topics.by_name.values()
    return all(set(one.isr) == set(one.replicas) for topic in topics for one in topic.partitions)


def _asks_for_an_isr(broker: SimulatedBroker) -> bool:
    """Whether a change of an ISR is on its way to the controller, which would leave the broker alone in sync."""
    assert broker.server is not None
    followers = [one.followers for one in broker.server.components.replicas.partitions()]
    return any(one is not None and one.pending is not None for one in followers)


async def _all_in_sync(brokers: list[SimulatedBroker]) -> None:
    """Wait until every replica of every partition is in sync, which must come by itself."""
    deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
    while missing := _not_in_sync(brokers):
        require(asyncio.get_running_loop().time() < deadline_s, f"after {PATIENCE_S:.0f} s {missing}")
        await asyncio.sleep(0.2)


def _not_in_sync(brokers: list[SimulatedBroker]) -> str:
    """Which replica is not in sync, as a sentence; empty if all are."""
    for broker in brokers:
        broker.check()
        if broker.server is None or not broker.server.readiness.is_ready:
            return f"{broker.name} is not ready"
        image = broker.server.metadata.image
        for topic, index in (*PLAIN, *LEDGER, BRIEF, TABLE):
            found = image.topics.by_name.get(topic)
            partition = None if found is None else found.partition(index)
            if partition is None:
                return f"{broker.name} does not know {topic}-{index}"
            if (
                set(partition.isr) != set(partition.replicas)
                or partition.adding_replicas
                or partition.removing_replicas
            ):
                return f"{broker.name} says that of {topic}-{index} only {sorted(partition.isr)} are in sync"
            if broker.node_id not in partition.replicas:
                continue
            log = broker.server.components.replicas.partition(topic, index).log
            if log.high_watermark < log.log_end_offset:
                return (
                    f"{broker.name} has the high watermark {log.high_watermark} of {topic}-{index}, "
                    f"whose log ends at {log.log_end_offset}"
                )
    return ""


def _compare_logs(brokers: list[SimulatedBroker]) -> None:
    """Every replica has the same batches from the last of the logs' beginnings up to the high watermark. A log that is
    compacted has the same last value of each key, since each broker cleans its own."""
    for topic, index in (*PLAIN, *LEDGER, BRIEF, TABLE):
        logs = {}
        for broker in brokers:
            assert broker.server is not None
            image = broker.server.metadata.image.topics.by_name[topic].partition(index)
            assert image is not None
            if broker.node_id in image.replicas:
                logs[broker.name] = broker.server.components.replicas.partition(topic, index).log
        first_offset = max(log.log_start_offset for log in logs.values())
        end_offset = min(log.high_watermark for log in logs.values())
        contents = {
            name: _table_of(log) if (topic, index) == TABLE else _batches_of(log, first_offset, end_offset)
            for name, log in logs.items()
        }
        (first_name, first), *others = contents.items()
        for name, content in others:
            differing = {key for key in first.keys() | content.keys() if first.get(key) != content.get(key)}
            for key in differing:
                raise Broken(f"{topic}-{index}: {name} has {content.get(key)} where {first_name} has {first.get(key)}")


def _batches_of(log: Log, first_offset: int, end_offset: int) -> dict[object, object]:
    """The batches between two offsets, which are whole, by their base offsets: epoch and CRC."""
    batches: dict[object, object] = {}
    for _, data in log.batches():
        header = read_header(data)
        if first_offset <= header.base_offset < end_offset:
            require(
                computed_crc(data, 0, header.size) == header.crc,
                f"{log.topic_partition} has a batch with a wrong CRC at offset {header.base_offset}",
            )
            batches[header.base_offset] = header.partition_leader_epoch, header.crc
    return batches


def _table_of(log: Log) -> dict[object, object]:
    """The last value of each key; a key whose last value is a tombstone is not there, whether it was cleaned or not."""
    table: dict[object, object] = {}
    for _, data in log.batches():
        for record in iterate_records(data):
            table[record.key] = record.value
    return {key: value for key, value in table.items() if value is not None}
