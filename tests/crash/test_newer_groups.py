"""A group of the newer protocol (KIP-848) whose members come and go while its broker is killed again and again."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.coordinators.group.consumer.group import ConsumerGroup
from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from protocol.headers import decode_response
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from tests.parity.connection import Connection
from tests.support.clients import Client, Record, connect
from tests.support.clients.members import Membership, Seen, SeenMember, places, wait_for
from tests.support.group_records import StoredGroups

TOPIC, GROUP, PARTITIONS = "orders", "readers", 12
MEMBERS = int(os.environ.get("OTTLA_TEST_GROUP_MEMBERS", "20"))
KILLS = int(os.environ.get("OTTLA_TEST_GROUP_KILLS", "2"))

REBALANCE_TIMEOUT_MS = 10_000
"""librdkafka 2.16.0 never acknowledges a revocation if the broker dies while it looks up the offsets of the partitions
that it keeps: it waits for the lookup, which has failed. After this time the broker takes the partitions from it."""

SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "100",
}


def test_nothing_is_lost_and_the_log_is_what_the_broker_knows(tmp_path: Path) -> None:
    broker = broker_for_tests(tmp_path, settings=SETTINGS)
    broker.start()
    members: list[SeenMember] = []
    try:
        storm(broker, members)
    finally:
        for member in members:
            member.begin_closing()
        for member in members:
            member.close()
        broker.close()


def storm(broker: BrokerProcess, members: list[SeenMember]) -> None:
    chance = random.Random(848)
    client = connect("confluent-kafka", broker.bootstrap)
    client.create_topic(TOPIC, partitions=PARTITIONS)
    everyone: list[SeenMember] = []
    produced = 0

    def produce(count: int) -> None:
        nonlocal produced
        client.produce(
            TOPIC,
            [
                Record(value=b"%d" % number, partition=number % PARTITIONS)
                for number in range(produced, produced + count)
            ],
        )
        produced += count

    def enter(instance_id: str | None) -> SeenMember:
        membership = Membership(
            group=GROUP,
            topics=(TOPIC,),
            protocol="consumer",
            instance_id=instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            commits="after each poll",
        )
        everyone.append(SeenMember(client, membership))
        return everyone[-1]

    def wait_until(what: str, condition: Callable[[], bool]) -> None:
        def is_so() -> bool:
            for seat, member in enumerate(members):
                if _is_shut_out(member):
                    members[seat] = enter(member.membership.instance_id)
            return condition()

        wait_for(what, is_so, members, excused=_is_shut_out)

    members += [enter(f"instance-{number}" if number % 4 == 0 else None) for number in range(MEMBERS)]
    for _ in range(KILLS):
        produce(120)
        for _ in range(MEMBERS // 4):
            leaving = members.pop(chance.randrange(len(members)))
            leaving.begin_closing()
        broker.kill()
        broker.start()
        produce(120)
        members += [enter(None) for _ in range(MEMBERS // 4)]
    wait_until("reading", lambda: _read(everyone) >= {b"%d" % number for number in range(produced)})
    wait_until("committing", lambda: _is_committed(client))
    wait_until("the log to be what the broker knows", lambda: _stored(broker) == _described(broker))
    hanging = KILLS  # a client that hangs does not join again, either: `REBALANCE_TIMEOUT_MS`
    assert len(_described(broker)["members"]) >= len(members) - hanging


def _is_shut_out(member: Seen) -> bool:
    """Whether a static member gave up because the broker was killed between the record of its join and the answer.

    As in Apache Kafka, the member then waits for its own session to end; librdkafka takes the answer for fatal.
    """
    ended = member.seen.ended
    return ended is not None and "instance ID is still used" in ended.reason


def _read(members: list[SeenMember]) -> set[bytes | None]:
    return {value for member in members for value in member.seen.values}


def _is_committed(client: Client) -> bool:
    ends = {place: client.offsets(TOPIC)[place.partition][1] for place in places(TOPIC, PARTITIONS)}
    found = client.committed(GROUP, places(TOPIC, PARTITIONS))
    return {place: one.offset for place, one in found.items()} == ends


def _stored(broker: BrokerProcess) -> dict[str, Any]:
    """The group as its records add up to it."""
    stored = StoredGroups(broker.data_directory)
    stored.read_on()
    [group] = [image.modern[GROUP] for image in stored.images.values() if GROUP in image.modern]
    assert isinstance(group, ConsumerGroup)
    return {
        "state": group.state.value,
        "epochs": (group.epoch, group.assignment_epoch),
        "members": {
            member.member_id: (
                member.epoch,
                {topic_id: sorted(partitions) for topic_id, partitions in member.assigned.items()},
            )
            for member in group.members.values()
        },
    }


def _described(broker: BrokerProcess) -> dict[str, Any]:
    """The group as the broker describes it."""
    connection = Connection(int(broker.bootstrap.rpartition(":")[2]))
    asked = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
    connection.send(connection.encode(asked, 1, "test"))
    _, answer = decode_response(ConsumerGroupDescribeResponse, 1, connection.receive_frame(10))
    connection.hang_up()
    [group] = answer.groups
    return {
        "state": group.group_state,
        "epochs": (group.group_epoch, group.assignment_epoch),
        "members": {
            member.member_id: (
                member.member_epoch,
                {topic.topic_id: topic.partitions for topic in member.assignment.topic_partitions},
            )
            for member in group.members
        },
    }
