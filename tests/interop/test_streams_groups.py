"""Streams groups (KIP-1071): a stock Kafka Streams application with ``group.protocol=streams`` whose instances and
whose broker are killed, Kafka's own tool for such groups, and directories that change hands."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.headers import decode_response
from protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicInfo,
)
from tests.interop import programs
from tests.interop.clusters import Cluster
from tests.interop.conftest import installed
from tests.interop.directories import SharedDirectory, complaints_of_dump_log
from tests.interop.directory_groups import GroupVisitor
from tests.interop.java_tools import JavaTools
from tests.interop.programs import Running
from tests.interop.test_java_groups import table
from tests.interop.test_kafka_streams import APPLICATION, COUNTS, LINES, PLACES, Lines, Watcher
from tests.parity.connection import Connection
from tests.support.clients import Committed, Place, Record, connect
from tests.support.clients.transactions import FENCE, read
from tests.support.clusters import Admin

GROUP: Final = "word-counts"
TOOL: Final = "kafka-streams-groups"
SETTINGS: Final = {
    "group.streams.min.session.timeout.ms": "2000",
    "group.streams.session.timeout.ms": "2000",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.num.standby.replicas": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture
def command() -> list[str]:
    """How the application is started."""
    words: list[str] = installed(lambda: programs.java_source(APPLICATION, programs.kafka_streams_libraries()))
    return words


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that soon gives up what was killed."""
    process = broker_for_tests(tmp_path, settings=SETTINGS)
    process.start()
    client = connect("confluent-kafka", process.bootstrap)
    for topic in (LINES, COUNTS):
        client.create_topic(topic, partitions=len(PLACES))
    try:
        yield process
    finally:
        process.close()


class Application:
    """Instances of the application, by the names of their state directories."""

    def __init__(self, command: list[str], bootstrap: str, directory: Path) -> None:
        self._words = [*command, bootstrap, LINES, COUNTS]
        self._directory = directory

    def instance(self, name: str) -> Running:
        """An instance; what it is asked about its state would come to its name."""
        settings = ("group.protocol=streams", f"application.server={name}:1234")
        return Running([*self._words, str(self._directory / name), *settings])


@pytest.mark.timeout(600)
def test_words_are_counted_exactly_once_though_an_instance_and_the_broker_are_killed(
    command: list[str], own_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap = own_broker.bootstrap
    application = Application(command, bootstrap, tmp_path)
    with (
        closing(Watcher(bootstrap)) as watcher,
        Lines(bootstrap, random.Random(1071)) as lines,
        application.instance("kept") as kept,
    ):
        watcher.await_counts(200, kept)
        with application.instance("killed") as killed:
            until(lambda: are_at_work(own_broker, processes=2), "both instances have tasks")
            members = group_of(own_broker, GROUP).members
            assert {member.user_endpoint.host for member in members} == {"kept", "killed"}
            assert len(holders(members)) == 3
            assert all(sorted(names) == ["kept", "killed"] for names in holders(members).values()), (
                "with a standby task"
            )
            watcher.await_counts(watcher.seen + 200, killed)
        until(lambda: are_at_work(own_broker, processes=1), "the instance that is left has all tasks")
        watcher.await_counts(watcher.seen + 200, kept)
        own_broker.kill()
        own_broker.start()
        watcher.await_counts(watcher.seen + 200, kept)
        lines.stop()
        watcher.await_counts(lines.words.total(), kept)
    assert lines.failures == []
    assert counted(bootstrap) == {word: list(range(1, count + 1)) for word, count in lines.words.items()}


def are_at_work(broker: BrokerProcess, *, processes: int) -> bool:
    """Whether the threads of so many instances share the six tasks, and have them."""
    group = group_of(broker, GROUP)
    tasks = [
        (one.subtopology_id, number)
        for member in group.members
        for one in member.assignment.active_tasks
        for number in one.partitions
    ]
    workers = {member.process_id for member in group.members if member.assignment.active_tasks}
    return group.group_state == "Stable" and len(workers) == processes and len(tasks) == len(set(tasks)) == 6


def holders(members: Any) -> dict[int, list[str]]:
    """The instances that have a task with state, as the active or as a standby task, by its partition."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for member in members:
        for one in (*member.assignment.active_tasks, *member.assignment.standby_tasks):
            for number in one.partitions if one.subtopology_id == "1" else ():
                found[number].append(member.user_endpoint.host)
    return found


def counted(bootstrap: str) -> dict[str, list[int]]:
    """The counts of each word in the order in which they were written."""
    client = connect("confluent-kafka", bootstrap)
    client.produce(COUNTS, [Record(value=FENCE, partition=place.partition) for place in PLACES])
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for value in read(bootstrap, "confluent-kafka", PLACES, isolation="read_committed"):
        word, count = value.decode().split()
        counts[word].append(int(count))
    return counts


@pytest.mark.timeout(400)
def test_kafkas_tool_looks_at_a_group_moves_its_offsets_and_deletes_it(
    command: list[str], own_broker: BrokerProcess, tmp_path: Path
) -> None:
    java = JavaTools(installed(programs.java), own_broker.bootstrap)
    client = connect("confluent-kafka", own_broker.bootstrap)
    words = Counter({"one": 3, "two": 2})
    client.produce(
        LINES, [Record(value=word.encode(), partition=number % 3) for number, word in enumerate(words.elements())]
    )
    with Application(command, own_broker.bootstrap, tmp_path).instance("only") as instance:
        with closing(Watcher(own_broker.bootstrap)) as watcher:
            watcher.await_counts(words.total(), instance)
        until(lambda: are_at_work(own_broker, processes=1), "the group is stable")
        assert GROUP in java.lines(TOOL, "--list")
        assert {"GROUP": GROUP, "STATE": "Stable"} in table(java.lines(TOOL, "--list", "--state"))
        describe = ("--describe", "--group", GROUP)
        [state] = table(java.lines(TOOL, *describe, "--state"))
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "2")
        members = java.lines(TOOL, *describe, "--members")
        assert sum(line.count("ACTIVE:") for line in members) == 2
        rows = table(java.lines(TOOL, *describe, "--offsets"))
        assert {row["TOPIC"] for row in rows} == {LINES, f"{GROUP}-counts-repartition"}
        assert {(row["TOPIC"], row["PARTITION"]) for row in rows} >= {(LINES, "0"), (LINES, "2")}
        refused = java.run(TOOL, "--delete", "--group", GROUP)
        assert "is not EMPTY" in refused.output + refused.errors
    until(lambda: group_of(own_broker, GROUP).group_state == "Empty", "the group has no members")
    reset = ("--reset-offsets", "--group", GROUP, "--input-topic", LINES, "--to-earliest", "--execute")
    assert [row["NEW-OFFSET"] for row in table(java.lines(TOOL, *reset))] == ["0", "0", "0"]
    assert client.committed(GROUP, [Place(LINES, 0)])[Place(LINES, 0)].offset == 0
    java.lines(TOOL, "--delete", "--group", GROUP)
    assert GROUP not in java.lines(TOOL, "--list")


# Clusters -------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_controllers_of_kafka_create_the_internal_topics_of_a_members_groups(tmp_path: Path) -> None:
    settings = {"offsets.topic.replication.factor": "1", "group.streams.initial.rebalance.delay.ms": "0"}
    with closing(Cluster(tmp_path, str(installed(programs.kafka_libraries)))) as cluster:
        cluster.add_controller()
        member = cluster.add_member(1, settings)
        connect("confluent-kafka", member.bootstrap).create_topic(LINES, partitions=4)
        with GroupVisitor(member.bootstrap) as visitor:
            visitor.await_coordinator()
        anna = Thread("anna")

        anna.joins(member)
        settle(member, anna)

        assert sorted(anna.tasks) == [("0", 0), ("0", 1), ("0", 2), ("0", 3)]
        assert len(Admin(member.bootstrap).partitions(CHANGELOG)) == 4


# Directories ----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "leave", [lambda broker: broker.stop(), lambda broker: broker.kill()], ids=["stopped", "killed"]
)
def test_a_group_goes_on_in_kafka_and_comes_back(
    shared: SharedDirectory, leave: Callable[[BrokerProcess], Any]
) -> None:
    """Nobody leaves: each broker finds the members of the other one, with their tasks and offsets."""
    shared.ottla.start()
    client = connect("confluent-kafka", shared.ottla.bootstrap)
    client.create_topic(LINES, partitions=4)
    with GroupVisitor(shared.ottla.bootstrap) as visitor:
        visitor.await_coordinator()
    anna, berta = Thread("anna"), Thread("berta")
    anna.joins(shared.ottla)
    berta.joins(shared.ottla)
    settle(shared.ottla, anna, berta)
    assert sorted(anna.tasks + berta.tasks) == [("0", 0), ("0", 1), ("0", 2), ("0", 3)]
    before = described(shared.ottla)
    leave(shared.ottla)

    shared.kafka.start()
    assert described(shared.kafka) == before
    settle(shared.kafka, anna, berta)
    assert described(shared.kafka) == before
    carla = Thread("carla")
    carla.joins(shared.kafka)
    settle(shared.kafka, anna, berta, carla)
    assert carla.tasks
    before = described(shared.kafka)
    leave(shared.kafka)

    shared.ottla.start()
    assert described(shared.ottla) == before
    settle(shared.ottla, anna, berta, carla)
    assert described(shared.ottla) == before
    for thread in (anna, berta, carla):
        thread.leaves(shared.ottla)
    client = connect("confluent-kafka", shared.ottla.bootstrap)
    client.commit(APP, {Place(LINES, 0): Committed(7)})
    assert group_of(shared.ottla, APP).group_state == "Empty"
    shared.ottla.stop()
    assert complaints_of_dump_log(programs.java(), shared.data) == []
    shared.kafka.start()
    assert group_of(shared.kafka, APP).group_state == "Empty"
    client = connect("confluent-kafka", shared.kafka.bootstrap)
    assert client.committed(APP, [Place(LINES, 0)])[Place(LINES, 0)].offset == 7


APP: Final = "app"
CHANGELOG: Final = "app-store-changelog"


class Thread:
    """A member that takes what it is given, and gives up what it loses. It asks in the first version, which Kafka 4.2
    has, too."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.tasks: list[tuple[str, int]] = []

    def joins(self, broker: BrokerProcess) -> None:
        subtopology = StreamsGroupHeartbeatRequest.Topology.Subtopology
        store = TopicInfo(name=CHANGELOG, partitions=0, replication_factor=1, topic_configs=[])
        topology = StreamsGroupHeartbeatRequest.Topology(
            epoch=0,
            subtopologies=[
                subtopology(
                    subtopology_id="0",
                    source_topics=[LINES],
                    source_topic_regex=[],
                    state_changelog_topics=[store],
                    repartition_sink_topics=[],
                    repartition_source_topics=[],
                    copartition_groups=[],
                )
            ],
        )
        self._beats(
            broker, 0, rebalance_timeout_ms=60_000, topology=topology, process_id=self.name, client_tags=[],
        )  # fmt: skip

    def goes_on(self, broker: BrokerProcess) -> None:
        self._beats(broker, self.epoch)

    def leaves(self, broker: BrokerProcess) -> None:
        self._ask(broker, -1)

    def _beats(self, broker: BrokerProcess, epoch: int, **about: Any) -> None:
        owned = [TaskIds(subtopology_id="0", partitions=[number for _, number in self.tasks])] if self.tasks else []
        answer = self._ask(broker, epoch, active_tasks=owned, standby_tasks=[], warmup_tasks=[], **about)
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.tasks = [(one.subtopology_id, number) for one in answer.active_tasks for number in one.partitions]

    def _ask(self, broker: BrokerProcess, epoch: int, **about: Any) -> Any:
        asked = StreamsGroupHeartbeatRequest(
            group_id=APP, member_id=self.name, member_epoch=epoch, endpoint_information_epoch=0, **about
        )
        found: list[Any] = []

        def is_answered() -> bool:
            found[:] = [ask(broker, asked, 0, StreamsGroupHeartbeatResponse)]
            return found[0].error_code not in (
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            )

        until(is_answered, "the coordinator answers")
        return found[0]


def settle(broker: BrokerProcess, *threads: Thread) -> None:
    """Let members send heartbeats until the group is stable, and each has its target."""

    def is_settled() -> bool:
        for thread in threads:
            thread.goes_on(broker)
        group = group_of(broker, APP)
        return group.group_state == "Stable" and all(
            one.assignment == one.target_assignment and one.member_epoch == group.assignment_epoch
            for one in group.members
        )

    until(is_settled, "the members have their tasks")


def described(broker: BrokerProcess) -> dict[str, Any]:
    """The group's epochs, and each member with its epoch and tasks."""
    group = group_of(broker, APP)
    return {
        "epochs": (group.group_state, group.group_epoch, group.assignment_epoch),
        "members": {
            one.member_id: (
                one.member_epoch,
                one.process_id,
                one.topology_epoch,
                [(tasks.subtopology_id, tasks.partitions) for tasks in one.assignment.active_tasks],
                one.assignment == one.target_assignment,
            )
            for one in group.members
        },
    }


# Requests -------------------------------------------------------------------------------------------------------------


def group_of(broker: BrokerProcess, group_id: str) -> Any:
    """The group as StreamsGroupDescribe has it, once its coordinator answers."""
    asked = StreamsGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    found: list[Any] = []

    def is_described() -> bool:
        answer = ask(broker, asked, 0, StreamsGroupDescribeResponse)
        found[:] = [group for group in answer.groups if group.error_code == ErrorCode.NONE]
        return bool(found)

    until(is_described, "the group is loaded")
    return found[0]


def ask(broker: BrokerProcess, request: Any, version: int, response: Any) -> Any:
    connection = Connection(int(broker.bootstrap.rpartition(":")[2]))
    try:
        connection.send(connection.encode(request, version, "test"))
        _, answer = decode_response(response, version, connection.receive_frame(10))
        return answer
    finally:
        connection.hang_up()
