"""A node and its standby are killed, again and again, while clients produce and workers transform in transactions.

The producers are idempotent and wait for all replicas in sync; the workers read what is committed. In the end both
nodes have the same bytes, every acknowledged record is there once and in order, and so is what the workers have made.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.crash.offline import verify
from tests.crash.promises import Promise, require
from tests.crash.run import TROUBLE
from tests.support.clients import Committed, Place, Record, connect
from tests.support.clients.transactions import FENCE, read
from tests.support.clients.transforming import GROUP, SOURCE, TARGET, Workers, worker_command
from tests.support.clients.transforming_worker import PARTITIONS
from tests.support.clusters import Admin, Cluster, Load, numbers_in

PRIMARY: Final = 1
STANDBY: Final = 2
SETTINGS: Final = {
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "250",
    "group.min.session.timeout.ms": "1000",
    "transaction.state.log.min.isr": "1",
}
QUICK_CLIENT: Final = {
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "message.timeout.ms": 600_000,
    # With 5, the default, librdkafka 2.16.0 uses a whole core while 5 requests are unanswered, as where a leader waits
    # for a dead follower. The start of the node took up to 11 s beside it, instead of 0.7 s.
    "max.in.flight.requests.per.connection": 4,
}
RATE_S: Final = 10
"""Records a second for each partition: the workers, who send them one by one, keep up."""
LONGEST_AWAY_S: Final = 2.0
"""Above the session's time-out: in some rounds the other node has become the leader when the killed one comes back."""
ROUNDS_BETWEEN_REUNIONS: Final = 3
"""So often all replicas are waited for; in the other rounds a node is killed with whatever it has caught up with."""


@dataclass(slots=True, kw_only=True)
class PairSummary:
    """What a run has come through."""

    kills: Counter[str] = field(default_factory=Counter)
    """By what was killed."""
    records: int = 0
    """Acknowledged, and transformed."""
    revived: int = 0
    """Workers that were started again, also those that had ended by themselves."""
    longest_pause_s: float = 0.0
    """Between two acknowledgements of a partition."""


class PairRun:
    """One run, to be used in a `with`."""

    def __init__(self, directory: Path, *, seed: int, report: Callable[[str], None]) -> None:
        self._cluster = Cluster(directory)
        self._chance = random.Random(seed)
        self._report = report

    def __enter__(self) -> PairRun:
        self._cluster.add_primary(PRIMARY, SETTINGS)
        self._cluster.add_member(STANDBY, SETTINGS)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._cluster.close()

    def go(self, kills: int) -> PairSummary:
        """Kill so many times. Raises `PromiseBroken`."""
        summary = PairSummary()
        bootstrap = self._cluster.bootstrap
        admin = Admin(bootstrap)
        turns = [[PRIMARY, STANDBY], [STANDBY, PRIMARY]]
        for number, topic in enumerate((SOURCE, TARGET)):
            admin.create(topic, [turns[(number + partition) % 2] for partition in range(PARTITIONS)])
        connect("confluent-kafka", bootstrap).commit(
            GROUP, {Place(SOURCE, number): Committed(0) for number in range(PARTITIONS)}
        )
        workers = Workers(worker_command("confluent-kafka"), bootstrap, self._cluster.directory / "workers.log")
        try:
            loads = [
                Load(bootstrap, SOURCE, partition=partition, rate_s=RATE_S, **QUICK_CLIENT)
                for partition in range(PARTITIONS)
            ]
            for number in range(1, kills + 1):
                victims = self._kill(workers)
                summary.kills[victims] += 1
                if number % ROUNDS_BETWEEN_REUNIONS == 0:
                    self._reunite(admin)
                    for load in loads:
                        load.wait_for(self._chance.randrange(1, 30))
                workers.revive()
                acknowledged = sum(len(load.acknowledged) for load in loads)
                self._report(f"{number:5} of {kills}  killed {victims}: {acknowledged:,} records acknowledged")
            self._reunite(admin)
            for load in loads:
                load.end()
            self._check_source(loads)
            self._check_target(loads, workers)
        finally:
            workers.close()
        self._reunite(admin)
        self._check_files()
        summary.records = sum(len(load.acknowledged) for load in loads)
        summary.revived = workers.revived
        summary.longest_pause_s = max(load.longest_pause_s for load in loads)
        return summary

    def _kill(self, workers: Workers) -> str:
        time.sleep(self._chance.uniform(0, 0.5))
        victims = self._chance.choice(("the node", "the standby", "a worker", "the node and a worker", "both nodes"))
        nodes = {"the node": [PRIMARY], "the standby": [STANDBY], "both nodes": [PRIMARY, STANDBY]}
        killed: list[BrokerProcess] = []
        for number in nodes.get(victims.removesuffix(" and a worker"), []):
            node = self._cluster.nodes[number]
            node.kill()
            killed.append(node)
        if "worker" in victims:
            workers.kill(self._chance)
        if killed:
            time.sleep(self._chance.uniform(0, LONGEST_AWAY_S))
        for node in killed:
            node.start()
        return victims

    def _reunite(self, admin: Admin) -> None:
        for topic in (SOURCE, TARGET):
            admin.until(lambda topic=topic: all(isr == {1, 2} for isr in admin.isrs(topic)), f"{topic} is in sync")  # type: ignore[misc]

    def _check_source(self, loads: list[Load]) -> None:
        for partition, load in enumerate(loads):
            name = f"{SOURCE}-{partition}"
            text = f"{name}: {load.sent} records sent, {len(load.acknowledged)} acknowledged, {load.errors[:3]}"
            require(not load.errors and load.sent == len(load.acknowledged), Promise.ANSWERED, text)
            found = numbers_in(self._cluster.bootstrap, SOURCE, partition)
            missing = sorted(set(load.acknowledged).difference(found))
            require(not missing, Promise.NOTHING_MISSING, f"{name}: {len(missing)} records, such as {missing[:5]}")
            text = f"{name}: {len(found)} records for {load.sent} sent"
            require(found == list(range(load.sent)), Promise.NOTHING_DOUBLED, text)

    def _check_target(self, loads: list[Load], workers: Workers) -> None:
        client = connect("confluent-kafka", self._cluster.bootstrap)

        def is_transformed() -> bool:
            workers.revive()
            committed = client.committed(GROUP, [Place(SOURCE, number) for number in range(PARTITIONS)])
            return sum(one.offset for one in committed.values()) == sum(load.sent for load in loads)

        until(is_transformed, "all records are transformed")
        for partition, load in enumerate(loads):
            client.produce(TARGET, [Record(value=FENCE, partition=partition)])
            place = Place(TARGET, partition)
            found = read(self._cluster.bootstrap, "confluent-kafka", [place], isolation="read_committed")
            text = f"{place}: {len(found)} values for {load.sent} records"
            require(found == [b"<%d>" % number for number in range(load.sent)], Promise.TRANSFORMED, text)

    def _check_files(self) -> None:
        nodes = [self._cluster.nodes[number] for number in (PRIMARY, STANDBY)]
        for topic in (SOURCE, TARGET):
            for partition in range(PARTITIONS):

                def is_same(name: str = f"{topic}-{partition}") -> bool:
                    first, second = (_bytes_of(node.data_directory / name) for node in nodes)
                    return first == second

                until(is_same, f"the bytes of {topic}-{partition} are the same on both nodes")
        for node in nodes:
            node.kill()
            log = node.log_path.read_text(errors="replace")
            require(not TROUBLE.search(log), Promise.LIVES, f"the log of {node.directory} has trouble\n{log}")
            verify(node.data_directory)


def _bytes_of(directory: Path) -> bytes:
    return b"".join(segment.read_bytes() for segment in sorted(directory.glob("*.log")))
