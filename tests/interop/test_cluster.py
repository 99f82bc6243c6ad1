"""A cluster of Kafka's nodes and this broker's: replicas, leaders that come and go, reassignment, controllers."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from dev.broker_process import BrokerProcess
from dev.kafka_jars import BEFORE, KAFKA_VERSION
from tests.interop import programs
from tests.interop.clusters import Cluster
from tests.interop.conftest import installed
from tests.interop.java_tools import JavaTools
from tests.support.clusters import Admin, Load, numbers_in

KAFKA: Final = 1
OTTLA: Final = 7
BOTH: Final = {KAFKA, OTTLA}

ANSWERED: Final = 999
"""A record that answers the waiting fetch of a stopped follower, which may therefore have it."""


@pytest.fixture(scope="module")
def libraries() -> str:
    return str(installed(lambda: programs.kafka_libraries(KAFKA_VERSION)))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, libraries: str) -> Iterator[Cluster]:
    """A controller and a broker of Kafka, and this broker."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), libraries)
    try:
        cluster.add_controller()
        cluster.add_kafka(KAFKA)
        cluster.add_member(OTTLA)
        yield cluster
    finally:
        cluster.close()


def records_of(node: BrokerProcess, topic: str, partition: int = 0) -> bytes:
    """The bytes of all segments of a partition on a node."""
    segments = sorted((node.data_directory / f"{topic}-{partition}").glob("*.log"))
    return b"".join(segment.read_bytes() for segment in segments)


def are_the_same(cluster: Cluster, topic: str, partition: int = 0) -> bool:
    kafkas, ours = (records_of(cluster.nodes[node], topic, partition) for node in (KAFKA, OTTLA))
    return bool(ours) and ours == kafkas


def send(bootstrap: str, topic: str, values: Sequence[int], **settings: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=0)
    assert producer.flush(60) == 0


@pytest.mark.timeout(300)
def test_a_partition_has_the_same_bytes_on_both_whoever_leads_and_whatever_the_codec(cluster: Cluster) -> None:
    admin = Admin(cluster.bootstrap)
    for leader, follower in ((KAFKA, OTTLA), (OTTLA, KAFKA)):
        topic = f"codecs-of-{leader}"
        admin.create(topic, [[leader, follower]], min_insync_replicas="2")

        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            send(cluster.bootstrap, topic, range(200), acks="all", **{"compression.type": codec})

        admin.until(lambda topic=topic: are_the_same(cluster, topic), f"{topic} is the same on both")  # type: ignore[misc]
        assert numbers_in(cluster.bootstrap, topic) == 5 * list(range(200))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", [KAFKA, OTTLA])
def test_what_a_dead_leader_alone_had_is_removed_when_it_comes_back(cluster: Cluster, first: int) -> None:
    (second,) = BOTH - {first}
    topic = f"diverging-from-{first}"
    admin = Admin(cluster.bootstrap)
    admin.create(topic, [[first, second]])
    send(cluster.bootstrap, topic, range(100), acks="all")
    leader, follower = cluster.nodes[first], cluster.nodes[second]

    follower.process.send_signal(signal.SIGSTOP)
    # The answer to the fetch that waits at the leader: the follower finds it in its socket when it goes on.
    send(leader.bootstrap, topic, [ANSWERED], acks="1")
    send(leader.bootstrap, topic, range(1000, 1100), acks="1")  # which only the leader has
    leader.kill()
    follower.process.send_signal(signal.SIGCONT)
    admin.until(lambda: admin.leaders(topic) == [second], f"{second} leads")
    send(follower.bootstrap, topic, range(100, 200), acks="all")
    leader.start()
    admin.until(lambda: admin.isrs(topic) == [BOTH], f"{first} is in sync again")

    admin.until(lambda: are_the_same(cluster, topic), f"{topic} is the same on both")
    assert [number for number in numbers_in(cluster.bootstrap, topic) if number != ANSWERED] == list(range(200))


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_while_the_leaders_are_killed_in_turn(cluster: Cluster) -> None:
    admin = Admin(cluster.bootstrap)
    admin.create("killed", [[OTTLA, KAFKA], [KAFKA, OTTLA]])
    loads = [Load(cluster.bootstrap, "killed", partition=partition) for partition in (0, 1)]
    for victim in (OTTLA, KAFKA):
        for load in loads:
            load.wait_for(200)
        cluster.nodes[victim].kill()
        for load in loads:
            load.wait_for(200)
        cluster.nodes[victim].start()
        admin.until(lambda: admin.isrs("killed") == [BOTH, BOTH], f"{victim} is in sync again")
    for load in loads:
        load.end()

    for partition, load in enumerate(loads):
        assert load.errors == []
        found = numbers_in(cluster.bootstrap, "killed", partition)
        assert found == list(range(len(found)))
        assert set(load.acknowledged) <= set(found)
        admin.until(lambda partition=partition: are_the_same(cluster, "killed", partition), "both have the same")  # type: ignore[misc]


@pytest.mark.timeout(300)
def test_a_partition_moves_to_kafka_and_back_below_its_clients(cluster: Cluster, tmp_path: Path) -> None:
    admin = Admin(cluster.bootstrap)
    admin.create("moving", [[OTTLA]])
    load = Load(cluster.bootstrap, "moving")
    for place in (KAFKA, OTTLA, KAFKA):
        load.wait_for(200)
        reassign(cluster, tmp_path, "moving", [place])
        admin.until(lambda place=place: admin.isrs("moving") == [{place}], f"it is on {place}")  # type: ignore[misc]
    load.wait_for(200)
    load.end()

    assert load.errors == []
    found = numbers_in(cluster.bootstrap, "moving")
    assert found == list(range(len(found)))
    assert set(load.acknowledged) <= set(found)
    admin.until(lambda: not (cluster.nodes[OTTLA].data_directory / "moving-0").exists(), "its log is gone here")


def reassign(cluster: Cluster, directory: Path, topic: str, replicas: list[int]) -> None:
    """Move a partition with Kafka's own tool."""
    plan = directory / "plan.json"
    plan.write_text(f'{{"version": 1, "partitions": [{{"topic": "{topic}", "partition": 0, "replicas": {replicas}}}]}}')
    JavaTools(installed(programs.java), cluster.nodes[OTTLA].bootstrap).run(
        "kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--execute"
    ).done()


@pytest.mark.timeout(300)
def test_a_broker_that_is_stopped_hands_its_leaderships_over_first(cluster: Cluster) -> None:
    admin = Admin(cluster.bootstrap)
    admin.create("handed-over", [[OTTLA, KAFKA]])
    load = Load(cluster.bootstrap, "handed-over")
    load.wait_for(200)

    cluster.nodes[OTTLA].stop()
    load.wait_for(200)
    assert admin.leaders("handed-over") == [KAFKA]
    cluster.nodes[OTTLA].start()
    admin.until(lambda: admin.isrs("handed-over") == [BOTH], "it is in sync again")
    load.end()

    assert load.errors == []
    assert load.longest_pause_s < 9.0  # no session had to end


@pytest.mark.timeout(300)
def test_a_member_that_loses_its_controllers_goes_on_and_is_led_by_the_next_ones(cluster: Cluster) -> None:
    admin = Admin(cluster.bootstrap)
    admin.create("without-controller", [[OTTLA, KAFKA]])
    load = Load(cluster.bootstrap, "without-controller")
    load.wait_for(200)
    controller = cluster.nodes[100]

    controller.kill()
    load.wait_for(2_000)
    controller.start()
    admin.until(lambda: can_create(admin), "the controller answers again")
    load.wait_for(200)
    load.end()

    assert load.errors == []
    assert admin.isrs("without-controller") == [BOTH]


def can_create(admin: Admin) -> bool:
    try:
        admin.create(f"after-{time.monotonic_ns()}", [[OTTLA, KAFKA]])
    except Exception:  # noqa: BLE001 - a controller that does not answer yet, in whichever way
        return False
    return True


@pytest.mark.timeout(300)
def test_a_cluster_goes_on_while_its_controllers_die_in_turn(tmp_path: Path, libraries: str) -> None:
    cluster = Cluster(tmp_path, libraries)
    try:
        cluster.add_quorum(100, 101, 102)
        first, second = cluster.add_member(OTTLA), cluster.add_member(8)
        admin = Admin(cluster.bootstrap)
        admin.create("orders", [[OTTLA, 8]], min_insync_replicas="2")
        load = Load(cluster.bootstrap, "orders")
        for is_killed in (True, False):
            load.wait_for(100)
            leader = leading_controller(first)
            if is_killed:
                cluster.nodes[leader].kill()
            else:
                cluster.nodes[leader].stop()
            admin.until(lambda leader=leader: leading_controller(first) != leader, "another one leads")  # type: ignore[misc]
            admin.create(f"without-{leader}", [[8, OTTLA]])
            cluster.nodes[leader].launch()
            cluster.await_ports()
        load.wait_for(100)
        load.end()

        assert load.errors == []
        assert admin.isrs("orders") == [{OTTLA, 8}]
        assert numbers_in(cluster.bootstrap, "orders") == list(range(load.sent))
        assert second.is_running
    finally:
        cluster.close()


def leading_controller(member: BrokerProcess) -> int:
    """The leader that a member has logged last."""
    return int(re.findall(r"the controllers' leader is node (\d+)", member.log_text())[-1])


@pytest.mark.timeout(300)
def test_with_the_version_of_kafka_before_nothing_is_different(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, str(installed(lambda: programs.kafka_libraries(BEFORE))))
    try:
        cluster.add_controller()
        cluster.add_kafka(KAFKA)
        cluster.add_member(OTTLA)
        admin = Admin(cluster.bootstrap)
        admin.create("orders", [[KAFKA, OTTLA]])
        for codec in ("none", "zstd"):
            send(cluster.bootstrap, "orders", range(200), acks="all", **{"compression.type": codec})
        load = Load(cluster.bootstrap, "orders", rate_s=200)
        load.wait_for(100)
        cluster.nodes[KAFKA].kill()
        load.wait_for(100)
        cluster.nodes[KAFKA].start()
        admin.until(lambda: admin.isrs("orders") == [BOTH], "Kafka is in sync again")
        cluster.nodes[OTTLA].stop()
        load.wait_for(100)
        cluster.nodes[OTTLA].start()
        admin.until(lambda: admin.isrs("orders") == [BOTH], "this broker is in sync again")
        load.end()

        assert load.errors == []
        assert numbers_in(cluster.bootstrap, "orders") == [*range(200), *range(200), *range(load.sent)]
        admin.until(lambda: are_the_same(cluster, "orders"), "orders is the same on both")
    finally:
        cluster.close()
