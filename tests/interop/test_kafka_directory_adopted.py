"""Ottla takes over a directory that Apache Kafka has written, stopped cleanly or killed, and gives it back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientsPartition

from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.interop import programs
from tests.interop.directories import (
    FIRST_SNAPSHOT,
    METADATA_DIRECTORY,
    Picture,
    SharedDirectory,
    Visitor,
    complaints_of_dump_log,
)
from tests.interop.directory_groups import GroupVisitor
from tests.interop.java_tools import JavaTools
from tests.interop.test_kafka_directory import SNAPSHOTS_OFTEN, Written, go_on, look_again, write_everything

pytestmark = pytest.mark.timeout(400)  # several starts of a Java broker, on whatever machine

FEATURES = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "kraft.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
FEATURES_OF = {
    "4.3.1": FEATURES | {"metadata.version": 30, "share.version": 1},
    "4.4.0": FEATURES | {"metadata.version": 33, "share.version": 2},
}
"""What each Kafka formats a directory with."""

GROUP_OFFSETS = {0: 4, 1: 2}

INTERNAL = ("__consumer_offsets-*", "__transaction_state-*")


@pytest.mark.parametrize(
    "leave", [lambda broker: broker.stop(), lambda broker: broker.kill()], ids=["stopped", "killed"]
)
def test_ottla_starts_on_a_directory_that_kafka_left(
    shared: SharedDirectory, kafka_version: str, leave: Callable[[BrokerProcess], Any]
) -> None:
    shared.kafka.start()
    written, before = write_with_kafka(shared.kafka)
    leave(shared.kafka)
    internal = logs_of_coordinators(shared)

    shared.ottla.start()
    look_again(shared.ottla, before)
    read_committed(shared.ottla, before)
    look_at_groups(shared.ottla)
    go_on(shared.ottla, written)
    with Visitor(shared.ottla.bootstrap) as ottla:
        before = ottla.picture()
    shared.ottla.stop()
    assert logs_of_coordinators(shared) == internal, "Ottla has changed what is in the coordinators' topics"
    assert complaints_of_dump_log(programs.java(), shared.data) == []

    shared.kafka.start()
    look_again(shared.kafka, before)
    read_committed(shared.kafka, before)
    with Visitor(shared.kafka.bootstrap) as kafka:
        assert kafka.features() == FEATURES_OF[kafka_version]
    look_at_groups(shared.kafka)
    end_open_transaction(shared.kafka)
    look_at_groups(shared.kafka)
    go_on(shared.kafka, written)
    shared.kafka.stop()


def test_the_first_broker_on_a_directory_that_kafka_has_formatted_may_be_ottla(
    shared: SharedDirectory, kafka_version: str
) -> None:
    """The first controller writes the features into the log: those in the formatted files are not read again."""
    shared.kafka.format()

    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        written = write_everything(ottla)
        before = ottla.picture()
    shared.ottla.stop()

    shared.kafka.start()
    look_again(shared.kafka, before)
    with Visitor(shared.kafka.bootstrap) as kafka:
        assert kafka.features() == FEATURES_OF[kafka_version]
    go_on(shared.kafka, written)
    shared.kafka.stop()


@pytest.mark.parametrize("first", ["ottla", "kafka"])
def test_a_transaction_that_one_broker_left_open_is_ended_by_the_other(shared: SharedDirectory, first: str) -> None:
    begins, ends = (shared.ottla, shared.kafka) if first == "ottla" else (shared.kafka, shared.ottla)
    begins.start()
    written, before = write_with_kafka(begins)
    begins.kill()

    ends.start()
    look_again(ends, before)
    read_committed(ends, before)
    look_at_groups(ends)
    end_open_transaction(ends)
    look_at_groups(ends)
    go_on(ends, written)
    in_transactions(ends)
    ends.stop()
    assert complaints_of_dump_log(programs.java(), shared.data) == []

    begins.start()
    look_at_groups(begins)
    end_open_transaction(begins, end=4)
    look_at_groups(begins)
    begins.stop()
    assert complaints_of_dump_log(programs.java(), shared.data) == []


def test_ottla_starts_on_metadata_snapshots_of_kafka_and_kafka_on_those_of_ottla(
    shared: SharedDirectory, kafka_version: str
) -> None:
    shared.kafka.settings |= SNAPSHOTS_OFTEN
    shared.kafka.start()
    written, before = write_with_kafka(shared.kafka)
    tools = JavaTools(programs.java(), shared.kafka.bootstrap)
    alice = ("--entity-type", "users", "--entity-name", "alice")
    for config in ("producer_byte_rate=12345", "SCRAM-SHA-256=[iterations=4096,password=secret]"):
        tools.run("kafka-configs", "--alter", "--add-config", config, *alice).done()
    of_alice = tools.lines("kafka-configs", "--describe", *alice)
    assert "12345" in str(of_alice)
    assert "SCRAM-SHA-256" in str(of_alice)
    shared.kafka.stop()
    of_kafka = snapshots_in(shared)
    assert of_kafka[-1] != FIRST_SNAPSHOT, "Kafka has written no snapshot but the first"

    shared.ottla.settings |= SNAPSHOTS_OFTEN
    shared.ottla.start()
    look_again(shared.ottla, before)
    look_at_groups(shared.ottla)
    go_on(shared.ottla, written)
    with Visitor(shared.ottla.bootstrap) as ottla:
        for number in range(30):
            ottla.create(f"more-{number}")
        before = ottla.picture()
    shop = ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", "shop")
    with_ottla = JavaTools(programs.java(), shared.ottla.bootstrap)
    assert with_ottla.lines("kafka-configs", "--describe", *alice) == of_alice
    with_ottla.run("kafka-configs", "--alter", "--add-config", "request_percentage=12.5", *shop).done()
    of_shop = with_ottla.lines("kafka-configs", "--describe", *shop)
    assert "12.5" in str(of_shop)
    shared.ottla.stop()
    assert snapshots_in(shared)[-1] > of_kafka[-1], "Ottla has written no snapshot"
    assert complaints_of_dump_log(programs.java(), shared.data) == []

    shared.kafka.start()
    look_again(shared.kafka, before)
    with Visitor(shared.kafka.bootstrap) as kafka:
        assert kafka.features() == FEATURES_OF[kafka_version]
    assert tools.lines("kafka-configs", "--describe", *alice) == of_alice
    assert tools.lines("kafka-configs", "--describe", *shop) == of_shop
    look_at_groups(shared.kafka)
    shared.kafka.stop()


def test_a_directory_of_several_log_dirs_changes_hands(shared: SharedDirectory) -> None:
    directories = [shared.data, shared.data.with_name("more"), shared.data.with_name("metadata")]
    several = {
        "log.dirs": ",".join(map(str, directories[:2])),
        "metadata.log.dir": str(directories[2]),
    }
    shared.kafka.settings |= several
    shared.ottla.settings |= several
    shared.kafka.start()
    written, before = write_with_kafka(shared.kafka)
    shared.kafka.stop()
    places = placement(directories)
    assert all(any(place == directory.name for place in places.values()) for directory in directories)

    shared.ottla.start()
    look_again(shared.ottla, before)
    go_on(shared.ottla, written)
    with Visitor(shared.ottla.bootstrap) as ottla:
        ottla.create("spread", partitions=6)
        before = ottla.picture()
    shared.ottla.kill()

    shared.kafka.start()
    look_again(shared.kafka, before)
    go_on(shared.kafka, written)
    shared.kafka.stop()
    now = placement(directories)
    assert {name: now[name] for name in places} == places, "partitions have moved"
    assert {now[f"spread-{partition}"] for partition in range(6)} == {"data", "more"}


def write_with_kafka(broker: BrokerProcess) -> tuple[Written, Picture]:
    """Records of all kinds, a group's offsets, and transactions: committed, aborted, and one that is left open."""
    with Visitor(broker.bootstrap) as kafka:
        written = write_everything(kafka)
        kafka.create("paid", partitions=2)
        kafka.create("pending")
    in_transactions(broker)
    commit_offsets(broker)
    with Visitor(broker.bootstrap) as kafka:
        return written, kafka.picture()


def in_transactions(broker: BrokerProcess) -> None:
    """Committed, aborted and left open."""
    client = transactional(broker, "cashier")
    for turn, end in enumerate((client.commit_transaction, client.abort_transaction, client.commit_transaction)):
        client.begin_transaction()
        for n in range(4):
            client.produce("paid", b"%d of turn %d" % (n, turn), partition=n % 2)
        client.flush()
        client.send_offsets_to_transaction([ClientsPartition("paid", 0, turn + 1)], group_in_transactions(broker))
        end()
    open_one = transactional(broker, "waiting")
    open_one.begin_transaction()
    open_one.produce("pending", b"nobody knows yet", partition=0)
    open_one.flush()
    open_one.send_offsets_to_transaction([ClientsPartition("pending", 0, 1)], group_in_transactions(broker))


def end_open_transaction(broker: BrokerProcess, *, end: int = 2) -> None:
    """Its producer comes back, which aborts what it had left open: the coordinator knows of it, and the log too. The
    marker is the record before ``end``."""
    transactional(broker, "waiting")
    with Visitor(broker.bootstrap) as kafka:
        until(lambda: kafka.fetch("pending", 0, committed=True).last_stable_offset == end, "the abort marker")
        assert kafka.picture().topics["pending"].partitions[0].aborted


def transactional(broker: BrokerProcess, name: str) -> Producer:
    client = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_000}
    )
    client.init_transactions(60)
    return client


def group_in_transactions(broker: BrokerProcess) -> Any:
    with contextlib.closing(group_member(broker, "in transactions")) as member:
        return member.consumer_group_metadata()


def group_member(broker: BrokerProcess, group: str = "readers") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def commit_offsets(broker: BrokerProcess) -> None:
    member = group_member(broker)
    offsets = [ClientsPartition("paid", partition, offset) for partition, offset in GROUP_OFFSETS.items()]
    member.commit(offsets=offsets, asynchronous=False)
    member.close()


def committed_offsets(broker: BrokerProcess) -> dict[int, int]:
    member = group_member(broker)
    places = [ClientsPartition("paid", partition) for partition in GROUP_OFFSETS]
    found: list[ClientsPartition] = []

    def is_answered() -> bool:
        try:
            found[:] = member.committed(places, timeout=60)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return False  # a Kafka that has just started has no coordinators yet
        return True

    until(is_answered, "the coordinator of the group")
    member.close()
    return {one.partition: one.offset for one in found}


def look_at_groups(broker: BrokerProcess) -> None:
    """Every offset is there but those that were in an aborted transaction, or are in an open one."""
    assert committed_offsets(broker) == GROUP_OFFSETS
    with GroupVisitor(broker.bootstrap) as visitor:
        found = {at: one.offset for at, one in visitor.groups()["in transactions"].offsets.items()}
    assert found == {("paid", 0): 3}


def read_committed(broker: BrokerProcess, before: Picture) -> None:
    """A consumer gets what was committed, and waits in front of what is open."""
    pending = before.topics["pending"].partitions[0]
    assert pending.last_stable == 0 < pending.end
    paid = [before.topics["paid"].partitions[partition] for partition in (0, 1)]
    assert all(partition.aborted for partition in paid)
    member = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,  # it only looks
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    member.assign([ClientsPartition("paid", 0, 0), ClientsPartition("paid", 1, 0), ClientsPartition("pending", 0, 0)])
    values, ends = [], 0
    while ends < 3:
        message = member.poll(30)
        assert message is not None, f"{len(values)} records and {ends} ends of partitions, then nothing for 30 s"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ends += 1
        else:
            values.append(message.value())
    member.close()
    assert sorted(values) == sorted(b"%d of turn %d" % (n, turn) for turn in (0, 2) for n in range(4))


def logs_of_coordinators(shared: SharedDirectory) -> dict[str, bytes]:
    """The segments of the internal topics, whole."""
    found = {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for pattern in INTERNAL
        for path in sorted(shared.data.glob(f"{pattern}/*.log"))
    }
    assert any(found.values())
    return found


def snapshots_in(shared: SharedDirectory) -> list[str]:
    return sorted(path.name for path in (shared.data / METADATA_DIRECTORY).glob("*.checkpoint"))


def placement(directories: list[Path]) -> dict[str, str]:
    """In which directory each partition stands."""
    return {
        path.name: directory.name
        for directory in directories
        for path in directory.iterdir()
        if path.is_dir() and "." not in path.name
    }
