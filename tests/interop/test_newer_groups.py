"""Groups of the newer protocol (KIP-848): Kafka's consumer and tools with ours, and directories that change hands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dev.broker_process import BrokerProcess
from protocol.headers import decode_response
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from tests.interop.directories import SharedDirectory
from tests.interop.java_tools import JavaTools
from tests.interop.test_java_groups import table
from tests.parity.connection import Connection
from tests.support.clients import Client, Record, connect
from tests.support.clients.members import Membership, SeenMember, places, wait_for

NEWER = ("--command-property", "group.protocol=consumer")
TOPIC, GROUP = "orders", "readers"


def test_kafkas_consumer_reads_in_a_group_that_its_tools_look_at_move_and_delete(
    java: JavaTools, client: Client, topic: str
) -> None:
    client.create_topic(topic, partitions=2)
    client.produce(topic, [Record(value=b"%d" % number, partition=number % 2) for number in range(20)])
    group = f"newer-group-of-{topic}"
    reading = ("--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", "20000", *NEWER)
    read = java.lines("kafka-console-consumer", *reading, "--max-messages", "20")
    assert sorted(read, key=int) == [str(number) for number in range(20)]

    rows = table(java.lines("kafka-consumer-groups", "--describe", "--group", group))
    assert [(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in rows] == [
        ("0", "10", "0"),
        ("1", "10", "0"),
    ]
    [state] = table(java.lines("kafka-consumer-groups", "--describe", "--state", "--group", group))
    assert (state["STATE"], state["#MEMBERS"]) == ("Empty", "0")
    assert {"GROUP": group, "TYPE": "Consumer", "PROTOCOL": "consumer"} in table(java.lines("kafka-groups", "--list"))
    java.lines(
        "kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
    )
    again = java.lines("kafka-console-consumer", *reading, "--max-messages", "20")
    assert sorted(again, key=int) == sorted(read, key=int)
    java.lines("kafka-consumer-groups", "--delete", "--group", group)
    assert group not in java.lines("kafka-consumer-groups", "--list")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "leave", [lambda broker: broker.stop(), lambda broker: broker.kill()], ids=["stopped", "killed"]
)
def test_a_group_goes_on_in_kafka_and_comes_back(
    shared: SharedDirectory, leave: Callable[[BrokerProcess], Any]
) -> None:
    """Nobody leaves: each broker finds the members of the other one, with what they are assigned."""
    shared.ottla.start()
    client = connect("confluent-kafka", shared.ottla.bootstrap)
    client.create_topic(TOPIC, partitions=4)
    with member(client, "shop 1") as one, member(client, None) as other:
        share(one, other)
        before = described(shared.ottla)
        leave(shared.ottla)
    shared.kafka.start()
    assert described(shared.kafka) == before
    with member(connect("confluent-kafka", shared.kafka.bootstrap), None) as third:
        wait_for("being a member", lambda: len(described(shared.kafka)["members"]) > 2, [third])
        before = described(shared.kafka)
        leave(shared.kafka)
    shared.ottla.start()
    assert described(shared.ottla) == before


def member(client: Client, instance_id: str | None) -> SeenMember:
    return SeenMember(
        client,
        Membership(
            group=GROUP, topics=(TOPIC,), protocol="consumer", instance_id=instance_id, commits="after each poll"
        ),
    )


def share(*members: SeenMember) -> None:
    def shared() -> bool:
        held = [place for one in members for place in one.seen.assignment]
        return len(held) == 4 and set(held) == places(TOPIC, 4) and all(one.seen.assignment for one in members)

    wait_for("sharing the partitions", shared, members)


def described(broker: BrokerProcess) -> dict[str, Any]:
    """The group's epochs, and each member with its epoch and assignments."""
    connection = Connection(int(broker.bootstrap.rpartition(":")[2]))
    found: list[Any] = []

    def is_described() -> bool:
        asked = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
        connection.send(connection.encode(asked, 1, "test"))
        _, answer = decode_response(ConsumerGroupDescribeResponse, 1, connection.receive_frame(10))
        found[:] = [group for group in answer.groups if group.error_code == 0]
        return bool(found)

    wait_for("the group being loaded", is_described, [])
    connection.hang_up()
    [group] = found
    return {
        "epochs": (group.group_epoch, group.assignment_epoch, group.assignor_name),
        "members": {
            one.member_id: (
                one.member_epoch,
                one.instance_id,
                sorted((topic.topic_name, tuple(topic.partitions)) for topic in one.assignment.topic_partitions),
                sorted((topic.topic_name, tuple(topic.partitions)) for topic in one.target_assignment.topic_partitions),
            )
            for one in group.members
        },
    }
