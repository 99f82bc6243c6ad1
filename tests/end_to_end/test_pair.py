"""A node and its standby: clients, groups and transactions go through the ends of either, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final

import pytest

from dev.broker_process import BrokerProcess
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.elections import ElectLeadersRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.clients import CLIENTS, Place, Record, connect
from tests.support.clients.members import Membership, SeenMember
from tests.support.clients.transactions import FENCE, ConfluentProducer, read
from tests.support.clusters import Admin, Cluster, Load, numbers_in
from tests.support.loads import LOADS
from tests.support.metrics import Page, http_get
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="a standby of another broker is not ours to judge",
)

PRIMARY: Final = 1
STANDBY: Final = 2
THIRD: Final = 3
TRANSACTION: Final = 1
"""The key type of transactional ids in FindCoordinator."""
BOTH: Final = {PRIMARY, STANDBY}

ENDS: Final = {
    "the standby stops": (STANDBY, BrokerProcess.stop),
    "the primary stops": (PRIMARY, BrokerProcess.stop),
    "the standby is killed": (STANDBY, BrokerProcess.kill),
    "the primary is killed": (PRIMARY, BrokerProcess.kill),
}

QUICK: Final = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
"""A dead broker is missed soon."""
PAUSE_S: Final = 30.0
"""The longest pause of a client that a death may cause here; on a quiet machine it is 3 s."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node and its standby. A test that ends one of them starts it again."""
    with Cluster(tmp_path_factory.mktemp("pair")) as cluster:
        cluster.add_primary(PRIMARY, QUICK)
        cluster.add_member(STANDBY, QUICK)
        yield cluster


def log_of(node: BrokerProcess, topic: str, partition: int) -> bytes:
    """The bytes of all segments of a partition on a node."""
    segments = sorted((node.data_directory / f"{topic}-{partition}").glob("*.log"))
    return b"".join(segment.read_bytes() for segment in segments)


def are_in_sync(admin: Admin, topic: str, brokers: set[int] = BOTH) -> None:
    admin.until(lambda: all(isr == brokers for isr in admin.isrs(topic)), f"{topic} is in sync on {brokers}")


def have_the_same(pair: Cluster, topic: str, partitions: int) -> None:
    """Wait until each partition has the same bytes on the node and on its standby."""
    for partition in range(partitions):

        def is_same(partition: int = partition) -> bool:
            primary, standby = (log_of(pair.nodes[node], topic, partition) for node in (PRIMARY, STANDBY))
            return bool(primary) and primary == standby

        until(is_same, f"{topic}-{partition} is the same on both")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("end", ENDS)
def test_clients_of_three_kinds_and_their_groups_go_through_the_end_of_either(pair: Cluster, end: str) -> None:
    admin, bootstrap = Admin(pair.bootstrap), pair.bootstrap
    leaves, end_it = ENDS[end]
    (stays,) = BOTH - {leaves}
    topic = end.replace(" ", "-")
    admin.create(topic, 3 * [[PRIMARY, STANDBY], [STANDBY, PRIMARY]])
    loads: list[Load] = []
    with ExitStack() as stack:
        for number, name in enumerate(CLIENTS):
            of_client = partial(LOADS[name], bootstrap, topic, acks="all", rate_s=100)
            loads += [of_client(partition=2 * number), of_client(partition=2 * number + 1)]
        members = {
            name: stack.enter_context(
                SeenMember(connect(name, bootstrap), Membership(group=f"{topic}-{name}", topics=(topic,)))
            )
            for name in CLIENTS
        }
        go_on(loads)
        for name, member in members.items():
            until(lambda member=member: bool(member.seen.received), f"the group of {name} reads")  # type: ignore[misc]

        end_it(pair.nodes[leaves])
        if end != "the primary is killed":  # then what both had has nobody to lead it: the only controller is away
            go_on(loads)
            assert admin.leaders(topic) == 6 * [stays]
        pair.nodes[leaves].start()
        are_in_sync(admin, topic)
        elect_preferred(pair.nodes[leaves])
        go_on(loads)

        for load in loads:
            load.end()
        for name, member in members.items():
            until(partial(has_seen_all, member, loads), f"the group of {name} has everything")

    for partition, load in enumerate(loads):
        assert load.errors == []
        assert load.acknowledged == list(range(load.sent))  # all, in order
        assert numbers_in(bootstrap, topic, partition) == load.acknowledged  # once, in order
        assert load.longest_pause_s < PAUSE_S
    have_the_same(pair, topic, 6)


def go_on(loads: list[Load]) -> None:
    for load in loads:
        load.wait_for(20)


def has_seen_all(member: SeenMember, loads: list[Load]) -> bool:
    seen = {(one.partition, int(one.value or b"")) for one in list(member.seen.received)}
    return all((partition, number) in seen for partition, load in enumerate(loads) for number in load.acknowledged)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ends", ["the primary stops", "the standby is killed"])
def test_a_transaction_is_ended_whose_coordinator_has_moved(pair: Cluster, ends: str) -> None:
    admin, bootstrap = Admin(pair.bootstrap), pair.bootstrap
    leaves = PRIMARY if ends == "the primary stops" else STANDBY
    (stays,) = BOTH - {leaves}
    topic = f"transactions-of-{leaves}"
    admin.create(topic, [[PRIMARY, STANDBY], [STANDBY, PRIMARY]])
    ConfluentProducer(bootstrap, "first").close()  # which makes the topic of the coordinators
    elect_preferred(pair.nodes[STANDBY])
    transactional_id = id_at(leaves, pair.nodes[PRIMARY])
    producer = ConfluentProducer(bootstrap, transactional_id)
    places = [Place(topic, 0), Place(topic, 1)]

    values: list[bytes] = []
    for number in range(4):
        producer.begin()
        for place in places:
            value = b"%d %d" % (number, place.partition)
            producer.send(place, value)
            values += [value] * (number != 1)
        producer.flush()
        if number == 2:
            if leaves == PRIMARY:
                pair.nodes[leaves].stop()
            else:
                pair.nodes[leaves].kill()
        if number == 1:
            producer.abort()
        else:
            producer.commit()
    assert coordinator_of(transactional_id, pair.nodes[stays]) == stays
    producer.close()
    pair.nodes[leaves].start()
    are_in_sync(admin, topic)

    client = connect("confluent-kafka", bootstrap)
    client.produce(topic, [Record(value=FENCE, partition=place.partition) for place in places])
    for name in CLIENTS:
        assert sorted(read(bootstrap, name, places, isolation="read_committed")) == sorted(values)
    have_the_same(pair, topic, 2)


@pytest.mark.timeout(300)
def test_a_standby_fetches_again_what_its_disk_has_lost_and_can_lead_with_it(pair: Cluster) -> None:
    admin, standby = Admin(pair.bootstrap), pair.nodes[STANDBY]
    admin.create("lost", [[PRIMARY, STANDBY]])
    load = Load(pair.bootstrap, "lost", acks="all")
    load.wait_for(300)
    standby.stop()
    segment = standby.data_directory / "lost-0" / f"{0:020d}.log"
    with segment.open("rb+") as file:
        file.truncate(segment.stat().st_size * 2 // 3)
    standby.start()
    are_in_sync(admin, "lost")
    assert "are fetched again from node 1, since the disk has lost some" in standby.log_text()
    pair.nodes[PRIMARY].stop()
    load.wait_for(100)
    load.end()
    found = numbers_in(standby.bootstrap, "lost")
    pair.nodes[PRIMARY].start()

    assert load.errors == []
    assert found == load.acknowledged == list(range(load.sent))
    are_in_sync(admin, "lost")
    have_the_same(pair, "lost", 1)


def elect_preferred(node: BrokerProcess) -> None:
    """Have every partition led by the first of its replicas again."""
    with RawClient(node.bootstrap) as raw:
        answer = raw.ask(ElectLeadersRequest(topic_partitions=None), 2)
    assert answer.error_code == ErrorCode.NONE


def coordinator_of(transactional_id: str, node: BrokerProcess) -> int:
    """The broker that a node names as the coordinator, -1 if it names none."""
    with RawClient(node.bootstrap) as raw:
        answer = raw.ask(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id]), 4)
    return int(answer.coordinators[0].node_id)


def id_at(broker: int, asked: BrokerProcess) -> str:
    """A transactional id that this broker coordinates."""
    found: list[str] = []

    def is_found() -> bool:
        ids = (f"of-{broker}-{number}" for number in range(20))
        found.extend(one for one in ids if coordinator_of(one, asked) == broker)
        return bool(found)

    until(is_found, f"a transactional id has its coordinator on broker {broker}")
    return found[0]


@pytest.mark.timeout(300)
def test_producers_wait_until_enough_replicas_are_in_sync_again(pair: Cluster) -> None:
    admin, primary = Admin(pair.bootstrap), pair.nodes[PRIMARY]
    admin.create("enough", len(CLIENTS) * [[PRIMARY, STANDBY]], min_insync_replicas="2")
    loads = [
        LOADS[name](pair.bootstrap, "enough", acks="all", rate_s=50, partition=number)
        for number, name in enumerate(CLIENTS)
    ]
    go_on(loads)
    pair.nodes[STANDBY].kill()
    are_in_sync(admin, "enough", {PRIMARY})
    written = [len(load.acknowledged) for load in loads]

    refused = times_refused(primary)
    until(lambda: times_refused(primary) > refused + 2 * len(loads), "the producers are refused, and ask again")
    assert [len(load.acknowledged) for load in loads] == written
    pair.nodes[STANDBY].start()
    go_on(loads)
    for load in loads:
        load.end()

    for partition, load in enumerate(loads):
        assert load.errors == []
        assert numbers_in(pair.bootstrap, "enough", partition) == load.acknowledged == list(range(load.sent))
    have_the_same(pair, "enough", len(loads))


def times_refused(node: BrokerProcess) -> float:
    """How many answers of a node have told producers that too few replicas are in sync."""
    page = Page(http_get(node.metrics_port, "/metrics").text)
    series = 'kafka_network_requestmetrics_errors_total{request="Produce",error="NOT_ENOUGH_REPLICAS"}'
    return page.get(series) or 0


@pytest.mark.timeout(300)
def test_a_third_node_joins_and_with_two_in_sync_any_of_the_three_may_die(pair: Cluster) -> None:
    third = pair.add_member(THIRD, QUICK)
    admin = Admin(pair.bootstrap)
    admin.create("three", [[THIRD, STANDBY, PRIMARY]], min_insync_replicas="2")
    load = Load(pair.bootstrap, "three")
    load.wait_for(100)

    third.kill()
    load.wait_for(100)
    assert admin.isrs("three") == [BOTH]
    third.start()
    are_in_sync(admin, "three", {*BOTH, THIRD})
    pair.nodes[STANDBY].kill()
    load.wait_for(100)
    pair.nodes[STANDBY].start()
    are_in_sync(admin, "three", {*BOTH, THIRD})
    load.end()

    assert load.errors == []
    assert numbers_in(pair.bootstrap, "three") == load.acknowledged == list(range(load.sent))
    third.stop()
