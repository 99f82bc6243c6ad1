"""A topic that worker processes transform into another one in transactions, while they and the broker are killed.

A worker of any client takes the arguments BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID. It reads the source in the
group and writes `<value>` for each value, to the partition of the same number, in transactions that commit the offsets,
too. So the target has each value once and in order, whatever was killed.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dev.broker_process import BrokerProcess
from dev.repository import REPOSITORY
from dev.waiting import until
from tests.support.clients import COORDINATOR_NOT_YET, Committed, Place, Record, connect
from tests.support.clients.transactions import FENCE, read
from tests.support.clients.transforming_worker import PARTITIONS, WORKERS
from tests.support.groups import fetch_offsets_request
from tests.support.raw_client import RawClient

SOURCE: Final = "source"
TARGET: Final = "target"
GROUP: Final = "transformers"
SETTINGS: Final = {"group.min.session.timeout.ms": "1000"}
"""The broker's settings: a group waits for a killed worker until its session times out."""


def worker_command(client: str) -> tuple[str, ...]:
    """The command of a worker that is a client of this name, without its arguments."""
    return sys.executable, "-m", "tests.support.clients.transforming_worker", client


_BACKLOG: Final = 1_000
"""So many records wait to be transformed at least, less those between two kills, when something is killed."""
_MOST_RECORDS_BETWEEN_KILLS: Final = 200


class Workers:
    """Worker processes, each started again when it has ended. Their output is appended to a file."""

    def __init__(self, command: Sequence[str], bootstrap: str, log_path: Path) -> None:
        self._command = command
        self._bootstrap = bootstrap
        self._log_path = log_path
        self.revived = 0
        """How many processes were started again."""
        self._processes = [self._start(number) for number in range(WORKERS)]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        arguments = (self._bootstrap, SOURCE, TARGET, GROUP, f"worker-{number}")
        with self._log_path.open("ab") as log:
            return subprocess.Popen(
                [*self._command, *arguments], cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def revive(self) -> None:
        """Start the processes that have ended."""
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                self._processes[number] = self._start(number)
                self.revived += 1

    def kill(self, chance: random.Random) -> None:
        """Kill a process by SIGKILL."""
        victim = chance.choice(self._processes)
        victim.kill()
        victim.wait()

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()
            process.wait()


class Transformation:
    """The source of which some is transformed before each kill. To be used in a `with`, on a broker that runs.

    ``directory`` gets the output of the workers, ``command`` starts a worker when its arguments are appended.
    """

    def __init__(self, broker: BrokerProcess, command: Sequence[str], directory: Path, chance: random.Random) -> None:
        self._broker = broker
        self._chance = chance
        self._client = connect("confluent-kafka", broker.bootstrap)
        for topic in (SOURCE, TARGET):
            self._client.create_topic(topic, partitions=PARTITIONS)
        self._client.commit(GROUP, {Place(SOURCE, number): Committed(0) for number in range(PARTITIONS)})
        self.produced = 0
        """How many records the source has."""
        self.transformed = 0
        """How many of them were transformed when this was last asked for."""
        self._workers = Workers(command, broker.bootstrap, directory / "workers.log")

    def __enter__(self) -> Transformation:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    @property
    def revived(self) -> int:
        """How many workers were started again."""
        return self._workers.revived

    def kill_something(self) -> str:
        """Wait until some more records are transformed, then kill the broker, a worker or both. The broker is started
        again, and workers are whenever this class waits. Returns what was killed."""
        self._look()
        self._produce_up_to(self.transformed + _BACKLOG)
        self._wait_for(self.transformed + self._chance.randrange(_MOST_RECORDS_BETWEEN_KILLS))
        (victims,) = self._chance.choices(("the broker", "a worker", "the broker and a worker"), (2, 2, 1))
        if "broker" in victims:
            self._broker.kill()
        if "worker" in victims:
            self._workers.kill(self._chance)
        if "broker" in victims:
            self._broker.start()
        return victims

    def finish(self) -> list[str]:
        """Wait until everything is transformed. Returns what is wrong with the target, nothing if it is exact."""
        self._wait_for(self.produced)
        self._client.produce(TARGET, [Record(value=FENCE, partition=number) for number in range(PARTITIONS)])
        places = [Place(TARGET, number) for number in range(PARTITIONS)]
        found = read(self._broker.bootstrap, "confluent-kafka", places, isolation="read_committed")
        return differences(found, self.produced)

    def _produce_up_to(self, count: int) -> None:
        numbers = range(self.produced, count)
        self._client.produce(
            SOURCE, [Record(value=b"%d" % number, partition=number % PARTITIONS) for number in numbers], idempotent=True
        )
        self.produced = max(count, self.produced)

    def _wait_for(self, count: int) -> None:
        def are_transformed() -> bool:
            self._look()
            return self.transformed >= count

        until(are_transformed, f"transforming {count} records of {self.produced}")

    def _look(self) -> None:
        """Revive the workers, and ask for the group's offsets. A stock client would wait for the end of transactions
        here, and so for a worker that is to be revived."""
        self._workers.revive()
        with RawClient(self._broker.bootstrap) as client:
            (group,) = client.ask(fetch_offsets_request(9, group_id=GROUP), 9).groups
        assert group.error_code in (0, *COORDINATOR_NOT_YET), group
        offsets = [partition.committed_offset for topic in group.topics for partition in topic.partitions]
        self.transformed = max(self.transformed, sum(offsets))


def differences(found: Sequence[bytes], produced: int) -> list[str]:
    """How the committed values of the target differ from the source's, which are the numbers up to ``produced``."""
    expected = {b"<%d>" % number: number % PARTITIONS for number in range(produced)}
    counts = Counter(found)
    in_order = sorted(expected, key=expected.__getitem__)
    sentences = {
        "are missing": [value for value in expected if value not in counts],
        "are there more than once": [value for value, count in counts.items() if count > 1],
        "come from no record": [value for value in counts if value not in expected],
    }
    said = [f"{len(values)} values {what}: {values[:10]}" for what, values in sentences.items() if values]
    if not said and sorted(found, key=expected.__getitem__) != in_order:  # sorting keeps the order in a partition
        said.append("a partition has its values in another order than the source")
    return said
