"""What a standby cannot be: each way to start one wrongly ends with one clear line, and the running nodes go on."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dev.broker_process import BrokerDidNotStart, BrokerProcess, port_below_client_ports
from dev.waiting import until
from tests.support.clusters import Admin, Cluster, Load, Member, Primary, member_settings
from tests.support.small_disk import BrokerOnSmallDisk, NoSmallDisk

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="a standby of another broker is not ours to judge",
)

PRIMARY: Final = 1
STANDBY: Final = 2
OTHER: Final = 3
QUICK: Final = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
IMPATIENT: Final = {**QUICK, "initial.broker.registration.timeout.ms": "1500"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("pair")) as cluster:
        cluster.add_primary(PRIMARY, {**QUICK, "replica.lag.time.max.ms": "2000"})
        cluster.add_member(STANDBY, QUICK)
        Admin(cluster.bootstrap).create("kept", [[PRIMARY, STANDBY], [STANDBY, PRIMARY]])
        yield cluster


def refusal(node: BrokerProcess) -> str:
    """Start a node that is refused, and return its last line."""
    with pytest.raises(BrokerDidNotStart, match="exit code 1 before `ready`"):
        node.start()
    return node.log_text(last_lines=1).removeprefix("ottla: ")


def member(directory: Path, pair: Cluster, *, node_id: int = OTHER, **settings: str) -> Member:
    """A member that waits 1.5 s for its registration."""
    changed = {key.replace("_", "."): value for key, value in settings.items()}
    return Member(directory, node_id=node_id, controllers=pair.controllers, settings={**IMPATIENT, **changed})


@pytest.mark.parametrize(
    ("node_id", "reason"),
    [
        (PRIMARY, "a controller of the cluster has the node.id 1 too"),
        (STANDBY, "broker 2 could not be registered within 1500 ms: another process is this broker"),
    ],
)
def test_a_node_id_that_is_taken_is_refused_and_its_owner_goes_on(
    pair: Cluster, tmp_path: Path, node_id: int, reason: str
) -> None:
    load = Load(pair.bootstrap, "kept", partition=node_id - 1)
    load.wait_for(20)

    assert refusal(member(tmp_path / "same", pair, node_id=node_id)) == reason

    load.wait_for(20)
    load.end()
    assert load.errors == []
    assert Admin(pair.bootstrap).leaders("kept") == [PRIMARY, STANDBY]


def test_a_directory_has_one_user_and_one_node_id(pair: Cluster, tmp_path: Path) -> None:
    standby = pair.nodes[STANDBY]
    directory = standby.data_directory
    assert f"{directory} is in use by another broker" in refusal(member(tmp_path / "a", pair, log_dirs=str(directory)))

    standby.stop()
    belongs = f"{directory} belongs to node 2, and node.id is 3"
    assert refusal(member(tmp_path / "b", pair, log_dirs=str(directory))) == belongs
    alone = BrokerProcess(tmp_path / "c", settings={"node.id": "2", "log.dirs": str(directory)})
    assert f"{directory}/.ottla_member says that this node was a member of a cluster" in refusal(alone)
    standby.start()


def test_a_single_node_of_another_cluster_does_not_join_and_of_this_cluster_keeps_its_topics_aside(
    pair: Cluster, tmp_path: Path
) -> None:
    theirs = BrokerProcess(tmp_path / "theirs", settings={"node.id": str(OTHER)})
    theirs.start()
    theirs.stop()
    reason = f"the controllers do not belong to the cluster {theirs.cluster_id} of this broker"
    assert refusal(member(tmp_path / "a", pair, log_dirs=str(theirs.data_directory))) == reason

    ours = BrokerProcess(
        tmp_path / "ours", settings={"node.id": str(OTHER), "ottla.cluster.id": pair.nodes[PRIMARY].cluster_id}
    )
    ours.start()
    Admin(ours.bootstrap).create("kept", [[OTHER]])
    ours.stop()
    (record_file,) = ours.data_directory.glob("kept-0/*.log")
    before = record_file.read_bytes()
    joined = member(tmp_path / "b", pair, log_dirs=str(ours.data_directory))
    joined.start()
    (aside,) = ours.data_directory.glob("kept-0.*-stray")
    assert (aside / record_file.name).read_bytes() == before
    joined.stop()


def test_a_standby_that_is_started_first_waits_for_the_node(tmp_path: Path) -> None:
    primary = Primary(tmp_path / "primary", settings=QUICK)
    standby = Member(tmp_path / "standby", node_id=STANDBY, controllers=[primary.controller_port], settings=QUICK)
    standby.port = port_below_client_ports(above=primary.controller_port)
    with Cluster(tmp_path) as cluster:
        cluster.nodes = {PRIMARY: primary, STANDBY: standby}
        standby.launch()
        until(lambda: "cannot be reached" in standby.log_text(), "the standby has looked for its controllers")
        primary.start()

        admin = Admin(primary.bootstrap)
        admin.until(lambda: len(admin.client.list_topics(timeout=10).brokers) == 2, "both are there")


def test_controllers_that_answer_with_garbage_are_not_joined(tmp_path: Path) -> None:
    answers = [os.urandom(200), b"\x7f\xff\xff\xff" + bytes(100), bytes(4), b"\x00\x00\x00\x04\x00\x00\x00\x01", b""]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for number in range(1_000):
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1_000)
                    connection.sendall(answers[number % len(answers)])

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        controllers = [server.getsockname()[1]]
        node = Member(tmp_path, node_id=OTHER, controllers=controllers, settings=IMPATIENT)

        assert refusal(node).startswith("no controller has told the id of the cluster: asked was ")
        server.shutdown(socket.SHUT_RDWR)
    assert "Traceback" not in node.log_path.read_text()


def test_a_follower_whose_disk_is_full_leaves_the_isr_and_comes_back(pair: Cluster, tmp_path: Path) -> None:
    settings = {**member_settings(OTHER, pair.controllers), **QUICK}
    try:
        node = BrokerOnSmallDisk(tmp_path, megabytes=48, settings=settings)
    except NoSmallDisk as reason:
        pytest.skip(str(reason))
    admin = Admin(pair.bootstrap)
    try:
        node.start()
        admin.create("large", [[PRIMARY, OTHER]])
        load = Load(pair.bootstrap, "large")
        load.wait_for(50)
        node.disk.fill_up()
        admin.until(lambda: admin.isrs("large") == [{PRIMARY}], "the follower has left the ISR")
        load.wait_for(50)
        assert node.is_running

        node.disk.make_room()
        admin.until(lambda: admin.isrs("large") == [{PRIMARY, OTHER}], "the follower is back")
        load.end()
        assert load.errors == []
    finally:
        node.close()
