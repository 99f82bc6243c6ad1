"""Twenty of Kafka's consumers of the newer protocol, and ten of its share consumers, come and go under load, while
their processes and the broker are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until
from tests.interop import programs
from tests.interop.conftest import installed
from tests.interop.programs import Running
from tests.support.clients import connect
from tests.support.clusters import Load
from tests.support.sharing import QUICK, from_the_beginning

MEMBERS: Final = Path(__file__).with_name("NewerMembers.java")
TOPIC, GROUP = "orders", "workers"
SETTINGS: Final = {
    **QUICK,
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "100",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose groups notice soon what has changed."""
    with broker_for_tests(tmp_path, settings=SETTINGS) as process:
        yield process


class Event(NamedTuple):
    """A member has read a record, or is done with it."""

    at_us: int
    partition: int
    number: int


class Members:
    """Processes of members, and what all of them have printed."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._running: list[Running] = []
        self._lines: list[str] = []
        """Of processes that were killed."""

    def start(self) -> None:
        """Start a process."""
        self._running.append(Running(self._command))

    def kill(self) -> None:
        """Kill the newest process: its members leave no group."""
        process = self._running.pop()
        with process:
            self._lines += process.kill()

    def kill_all(self) -> None:
        """Kill every process."""
        while self._running:
            self.kill()

    @property
    def begun(self) -> int:
        """How many members there have been."""
        return sum(line.startswith("member ") for line in self._all_lines())

    def events(self, what: str) -> list[Event]:
        """What has happened, by the first word of the lines."""
        lines = [line.split(" ") for line in self._all_lines() if line.startswith(f"{what} ")]
        return [Event(*map(int, words[1:])) for words in lines]

    def done(self) -> set[tuple[int, int]]:
        """The partitions and numbers of the records that are done."""
        return {one[1:] for one in self.events("done")}

    def go_on(self, partitions: int) -> None:
        """Wait until more records of every partition are done."""
        before = self.done()

        def have_gone_on() -> bool:
            more = Counter(partition for partition, _ in self.done() - before)
            return all(more[partition] >= 20 for partition in range(partitions))

        until(have_gone_on, "all partitions go on")

    def _all_lines(self) -> list[str]:
        return [*self._lines, *(line for process in self._running for line in process.lines)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("kind", "partitions", "members"), [("consumer", 12, 10), ("share", 3, 5)])
def test_nothing_is_lost_or_comes_back_while_members_and_the_broker_are_killed(
    broker: BrokerProcess, kind: str, partitions: int, members: int
) -> None:
    command = installed(lambda: programs.java_source(MEMBERS, programs.kafka_libraries()))
    connect("confluent-kafka", broker.bootstrap).create_topic(TOPIC, partitions=partitions)
    if kind == "share":
        from_the_beginning(broker.bootstrap, GROUP)
    loads = [Load(broker.bootstrap, TOPIC, partition=number, rate_s=120 / partitions) for number in range(partitions)]
    group = Members([*command, kind, broker.bootstrap, TOPIC, GROUP, str(members)])
    try:
        group.start()
        group.start()
        group.go_on(partitions)
        for _ in range(2):
            broker.kill()
            broker.start()
            group.go_on(partitions)
            group.kill()
            group.start()
            group.go_on(partitions)
        for load in loads:
            load.end()
        sent = {(partition, number) for partition, load in enumerate(loads) for number in load.acknowledged}
        until(lambda: sent <= {one[1:] for one in group.events("read")}, "everything is read")
    finally:
        group.kill_all()

    assert [load.errors for load in loads] == [[]] * partitions
    last_read = {one[1:]: one for one in sorted(group.events("read"))}
    for one in group.events("done"):
        assert last_read[one[1:]].at_us <= one.at_us, f"{one} was read again: {last_read[one[1:]]}"
    assert group.begun > 4 * members, "members have come and gone by themselves"
