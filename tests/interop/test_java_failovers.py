"""Kafka's Java clients, as they are by default, go through the end of any node: nothing is lost, nothing is doubled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from dev.broker_process import BrokerProcess
from dev.kafka_jars import KAFKA_VERSION
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.elections import ElectLeadersRequest
from tests.interop import programs
from tests.interop.clusters import Cluster
from tests.interop.conftest import installed
from tests.interop.programs import Running
from tests.support.clients import Place, Record, connect
from tests.support.clients.transactions import FENCE, read
from tests.support.clusters import Admin, Primary, await_in_sync, numbers_in
from tests.support.raw_client import RawClient

CLIENTS: Final = Path(__file__).with_name("FailOverClients.java")
PLAIN: Final = "plain"
TRANSACTIONAL: Final = "transactional"
TRANSACTIONAL_ID: Final = "through-fail-overs"
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
PARTITIONS: Final = (0, 1)
FIRST: Final = 1
OTTLA: Final = 2
"""Of a pair the standby, beside Kafka the only one."""
BOTH: Final = {FIRST, OTTLA}
QUICK: Final = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "transaction.state.log.min.isr": "1",
}
ENDS: Final = [(OTTLA, "is killed"), (FIRST, "stops"), (FIRST, "is killed"), (OTTLA, "stops")]


@pytest.fixture(params=["a pair", "beside Kafka"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A node and its standby, or a broker of Kafka and this broker below a controller of Kafka."""
    cluster = Cluster(tmp_path, str(installed(lambda: programs.kafka_libraries(KAFKA_VERSION))))
    try:
        if request.param == "a pair":
            cluster.add_primary(FIRST, QUICK)
        else:
            cluster.add_controller(settings=QUICK)
            cluster.add_kafka(FIRST, QUICK)
        cluster.add_member(OTTLA, QUICK)
        yield cluster
    finally:
        cluster.close()


class Told:
    """What the clients have printed, by the first word of its lines."""

    def __init__(self, clients: Running) -> None:
        self._clients = clients

    def of(self, word: str) -> list[list[str]]:
        """The other words of each such line."""
        return [words[1:] for words in (line.split(" ") for line in self._clients.lines) if words[0] == word]

    def numbers(self, word: str) -> dict[int, list[int]]:
        """The numbers of each partition."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for partition, number in self.of(word):
            found[int(partition)].append(int(number))
        return found

    def go_on(self, since: str) -> None:
        """Wait until all clients have got further, in both partitions. A failure names the clients that have not."""
        wanted = {what: count + 20 for what, count in self._counts().items()}

        def late() -> list[str]:
            return [what for what, count in self._counts().items() if count < wanted[what]]

        try:
            until(lambda: not late())
        except AssertionError:
            raise AssertionError(f"since {since} these did not go on: {', '.join(late())}") from None

    def _counts(self) -> dict[str, int]:
        counts = {"committed": len(self.of("committed"))}
        for word in ("acknowledged", "read"):
            numbers = self.numbers(word)
            counts |= {f"{word} in partition {partition}": len(numbers[partition]) for partition in PARTITIONS}
        return counts


def elect_preferred(node: BrokerProcess) -> None:
    with RawClient(node.bootstrap) as raw:
        answer = raw.ask(ElectLeadersRequest(topic_partitions=None), 2)
    assert answer.error_code == ErrorCode.NONE


@pytest.mark.timeout(290)
def test_default_clients_go_through_the_end_of_each_node(cluster: Cluster) -> None:
    command = installed(lambda: programs.java_source(CLIENTS, programs.kafka_libraries()))
    admin, bootstrap = Admin(cluster.bootstrap), cluster.bootstrap
    brokers = {number: cluster.nodes[number] for number in BOTH}
    turns = [[FIRST, OTTLA], [OTTLA, FIRST]]
    for topic in (PLAIN, TRANSACTIONAL):
        admin.create(topic, turns)
    with Running([*command, bootstrap, "readers", PLAIN, TRANSACTIONAL]) as clients:
        told = Told(clients)
        told.go_on("the start")
        for number, end in ENDS:
            node = brokers[number]
            if end == "stops":
                node.stop()
            else:
                node.kill()
            if end == "stops" or not has_the_controller(node):
                told.go_on(f"node {number} {end}")
            node.start()
            await_in_sync(brokers, PLAIN, TRANSACTIONAL, *INTERNAL)
            elect_preferred(node)
            told.go_on(f"node {number} is back")
        acknowledged = told.numbers("acknowledged")
        until(
            lambda: all(set(acknowledged[one]) <= set(told.numbers("read")[one]) for one in PARTITIONS),
            "everything is read",
        )
        assert told.of("failed") == []
        acknowledged, committed, aborted = (
            told.numbers("acknowledged"),
            {words[0] for words in told.of("committed")},
            {words[0] for words in told.of("aborted")},
        )
        assert told.of("unknown") == []

    # The last transaction may be open: whoever takes the id over aborts it, long before its timeout.
    Producer({"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID}).init_transactions(60)
    for partition in PARTITIONS:
        found = numbers_in(bootstrap, PLAIN, partition)
        assert found == list(range(len(found)))  # once, in order
        # Where an answer is lost, the producer hears of a later record first.
        assert sorted(acknowledged[partition]) == found[: len(acknowledged[partition])]
    places = [Place(TRANSACTIONAL, partition) for partition in PARTITIONS]
    fences = [Record(value=FENCE, partition=place.partition) for place in places]
    connect("confluent-kafka", bootstrap).produce(TRANSACTIONAL, fences)
    first, second = (
        [value.decode() for value in read(bootstrap, "confluent-kafka", [place], isolation="read_committed")]
        for place in places
    )
    assert first == second
    assert len(set(first)) == len(first)
    assert committed <= set(first)
    assert not aborted & set(first)


def has_the_controller(node: BrokerProcess) -> bool:
    """Whether a node is the only controller, without which nobody replaces a dead leader."""
    return isinstance(node, Primary)
