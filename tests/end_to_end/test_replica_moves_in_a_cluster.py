"""Replicas move between the data directories of their brokers, below the leader and below a follower (KIP-113)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from kafka.admin import KafkaAdminClient

from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.support.clusters import Admin, Cluster, Load, numbers_in

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="a cluster of our own is moved about",
)

PRIMARY: Final = 1
MEMBER: Final = 2
BOTH: Final = {PRIMARY, MEMBER}
NAMES: Final = ("data", "other")
QUICK: Final = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}


def with_two(directory: Path) -> dict[str, str]:
    return {**QUICK, "log.dirs": ",".join(str(directory / name) for name in NAMES)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as cluster:
        cluster.add_primary(PRIMARY, with_two(tmp_path / f"primary-{PRIMARY}"))
        cluster.add_member(MEMBER, with_two(tmp_path / f"member-{MEMBER}"))
        yield cluster


def place(node: BrokerProcess, partition: int) -> Path | None:
    """The directory of the partition's log, if there is one and no copy is made of it."""
    found = [path for name in NAMES for path in (node.directory / name).glob(f"orders-{partition}")]
    copies = [path for name in NAMES for path in (node.directory / name).glob(f"orders-{partition}.*-future")]
    return found[0] if len(found) == 1 and not copies else None


def bytes_of(node: BrokerProcess, partition: int) -> bytes:
    """The records of a partition on a node."""
    path = place(node, partition)
    return b"" if path is None else b"".join(one.read_bytes() for one in sorted(path.glob("*.log")))


def moves(cluster: Cluster, node_id: int, partition: int) -> Path:
    """Have a node move a replica to its other directory; where it will be."""
    node = cluster.nodes[node_id]
    until(lambda: place(node, partition) is not None, "one log")
    here = place(node, partition)
    assert here is not None
    there = node.directory / (NAMES[1] if here.parent.name == NAMES[0] else NAMES[0])
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        admin.alter_replica_log_dirs({("orders", partition, node_id): str(there)})
    finally:
        admin.close()
    return there / f"orders-{partition}"


@pytest.mark.timeout(300)
def test_leaders_and_followers_move_and_are_killed_and_have_the_same_in_the_end(cluster: Cluster) -> None:
    admin = Admin(cluster.bootstrap)
    admin.create("orders", [[PRIMARY, MEMBER], [MEMBER, PRIMARY]], segment_bytes=str(1 << 20))
    loads = [Load(cluster.bootstrap, "orders", partition=partition, acks="all", rate_s=300) for partition in (0, 1)]
    for load in loads:
        load.wait_for(100)
    for node_id in (MEMBER, PRIMARY):
        for partition in (0, 1):
            there = moves(cluster, node_id, partition)
            until(lambda there=there, node_id=node_id, partition=partition: (  # type: ignore[misc]
                place(cluster.nodes[node_id], partition) == there
            ), f"the move on {node_id}")  # fmt: skip
            for load in loads:
                load.wait_for(50)

    for _ in range(2):
        for partition in (0, 1):
            moves(cluster, MEMBER, partition)
        cluster.nodes[MEMBER].kill()
        for load in loads:
            load.wait_for(50)
        cluster.nodes[MEMBER].start()
        admin.until(lambda: all(isr == BOTH for isr in admin.isrs("orders")), "all are in sync")
        until(lambda: None not in [place(cluster.nodes[MEMBER], one) for one in (0, 1)], "the moves go on")

    for load in loads:
        load.end()
    for partition, load in enumerate(loads):
        assert load.errors == []
        assert numbers_in(cluster.bootstrap, "orders", partition) == load.acknowledged
        until(
            lambda partition=partition: (  # type: ignore[misc]
                len({bytes_of(node, partition) for node in cluster.nodes.values()}) == 1
            ),
            f"partition {partition} is the same on both",
        )
    for node in cluster.nodes.values():
        assert "Traceback" not in node.log_text(last_lines=100_000)
