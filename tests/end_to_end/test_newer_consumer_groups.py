"""Groups of the newer protocol (KIP-848) with a stock client, and groups that change their protocol while they run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tests.end_to_end.test_consumer_groups import numbered, numbers, read_by
from tests.support.clients import Client, Place, Record, connect
from tests.support.clients.member_process import MemberProcess
from tests.support.clients.members import Membership, Seen, SeenMember, places, wait_for
from tests.support.raw_client import RawClient

TOPIC, GROUP = "orders", "readers"

QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "0",
}

Join = Callable[..., SeenMember]


@pytest.fixture
def quick_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose members of the newer protocol send a heartbeat every 200 ms."""
    with broker_for_tests(tmp_path, settings=QUICK) as process:
        yield process


@pytest.fixture
def confluent(quick_broker: BrokerProcess) -> Client:
    client = connect("confluent-kafka", quick_broker.bootstrap)
    client.create_topic(TOPIC, partitions=4)
    return client


@pytest.fixture
def enter(confluent: Client) -> Iterator[Join]:
    """Start a member of the group; in the end all are closed."""
    members: list[SeenMember] = []

    def start(protocol: str = "consumer", topics: tuple[str, ...] = (TOPIC,), **options: Any) -> SeenMember:
        membership = Membership(
            group=GROUP,
            topics=topics,
            protocol=protocol,
            commits="after each poll",
            **options,  # type: ignore[arg-type]
        )
        members.append(SeenMember(confluent, membership))
        return members[-1]

    yield start
    for member in members:
        member.begin_closing()
    for member in members:
        member.close()


def share(members: list[SeenMember]) -> None:
    """Wait until the members share all partitions, and each has some."""

    def shared() -> bool:
        held = [place for member in members for place in member.seen.assignment]
        return Counter(held) == Counter(places(TOPIC, 4)) and all(member.seen.assignment for member in members)

    wait_for("sharing the partitions", shared, members)


def read_up_to(count: int, members: list[SeenMember]) -> None:
    """Wait until the members have read so many records together."""
    wait_for("reading", lambda: set(read_by(*members)) == numbers(count), members)


def test_members_share_the_partitions_and_read_every_record_once(confluent: Client, enter: Join) -> None:
    one, another = enter(), enter()
    share([one, another])
    confluent.produce(TOPIC, numbered(0, 200))
    wait_for("reading", lambda: len(read_by(one, another)) >= 200, [one, another])
    assert Counter(read_by(one, another)) == Counter(numbers(200))

    another.close()
    share([one])
    confluent.produce(TOPIC, numbered(200, 40))
    wait_for("reading on", lambda: set(read_by(one, another)) == numbers(240), [one])


def test_a_group_goes_on_after_its_broker_was_killed(
    quick_broker: BrokerProcess, confluent: Client, enter: Join
) -> None:
    one, another = enter(), enter(instance_id="shop 1")
    share([one, another])
    confluent.produce(TOPIC, numbered(0, 40))
    wait_for("reading", lambda: set(read_by(one, another)) == numbers(40), [one, another])

    quick_broker.kill()
    quick_broker.start()

    confluent.produce(TOPIC, numbered(40, 40))
    wait_for("reading on", lambda: set(read_by(one, another)) == numbers(80), [one, another])
    share([one, another])


def test_a_running_group_changes_its_protocol_and_changes_back(confluent: Client, enter: Join) -> None:
    """One member after another is replaced, as when a program is rolled out, while records come."""
    members = [enter("classic"), enter("classic")]
    share(members)
    everyone = list(members)
    count = 0
    for protocol in ("consumer", "consumer", "classic", "classic"):
        confluent.produce(TOPIC, numbered(count, 40))
        count += 40
        newcomer = enter(protocol)
        everyone.append(newcomer)
        members.append(newcomer)
        share(members)
        confluent.produce(TOPIC, numbered(count, 40))
        count += 40
        read_up_to(count, everyone)
        leaving = members.pop(0)
        leaving.close()
        share(members)

    confluent.produce(TOPIC, numbered(count, 40))
    count += 40
    read_up_to(count, everyone)
    doubled = {value: times for value, times in Counter(read_by(*everyone)).items() if times > 1}
    assert not doubled, "what was committed before a partition moved was read again"


# What a consumer may rely on -----------------------------------------------------------------------------------------


def test_topics_that_come_get_partitions_and_go_are_noticed(
    quick_broker: BrokerProcess, confluent: Client, enter: Join
) -> None:
    confluent.create_topic("letters", partitions=2)
    one, another = (enter(topics=(TOPIC, "letters")) for _ in range(2))

    def wait_until_shared(what: str, expected: frozenset[Place]) -> None:
        wait_for(
            what, lambda: Counter((*one.seen.assignment, *another.seen.assignment)) == Counter(expected), [one, another]
        )

    wait_until_shared("both topics", places(TOPIC, 4) | places("letters", 2))
    admin = AdminClient({"bootstrap.servers": quick_broker.bootstrap})
    admin.create_partitions([NewPartitions("letters", 5)])["letters"].result(30)
    wait_until_shared("three more partitions", places(TOPIC, 4) | places("letters", 5))
    # A member that still asks for the first offset of a partition whose topic is deleted ends by an error.
    confluent.produce("letters", [Record(value=b"%d" % number, partition=number) for number in range(5)])
    wait_for(
        "reading the letters",
        lambda: one.seen.committed.keys() | another.seen.committed.keys() == places("letters", 5),
        [one, another],
    )
    confluent.delete_topic("letters")
    wait_until_shared("the topic that is left", places(TOPIC, 4))
    confluent.produce(TOPIC, numbered(5, 20))
    read_up_to(25, [one, another])


def test_a_pattern_matches_topics_that_come_later(confluent: Client, enter: Join) -> None:
    confluent.create_topic("shop-1", partitions=1)
    member = enter(topics=("^shop-[0-9]+$",))
    wait_for("the topic that is there", lambda: member.seen.assignment == places("shop-1", 1), [member])

    confluent.create_topic("shop-2", partitions=2)
    confluent.create_topic("shop-x", partitions=1)

    both = places("shop-1", 1) | places("shop-2", 2)
    wait_for("the topic that has come", lambda: member.seen.assignment == both, [member])  # as with Kafka after 10 s


def test_a_static_member_that_comes_back_keeps_its_partitions_and_nobody_else_notices(enter: Join) -> None:
    one, another = enter(instance_id="shop 1"), enter(instance_id="shop 2")
    share([one, another])
    its_part, rebalances = one.seen.assignment, another.seen.rebalances

    one.close()
    again = enter(instance_id="shop 1")

    share([again, another])
    assert again.seen.assignment == its_part
    assert another.seen.rebalances == rebalances


def test_the_partitions_of_a_member_that_dies_go_to_the_others(
    quick_broker: BrokerProcess, confluent: Client, enter: Join
) -> None:
    survivor = enter()
    membership = Membership(group=GROUP, topics=(TOPIC,), protocol="consumer", commits="after each poll")
    doomed = MemberProcess("confluent-kafka", quick_broker.bootstrap, membership)
    try:
        both: list[Seen] = [survivor, doomed]
        wait_for("sharing", lambda: len(survivor.seen.assignment) == len(doomed.seen.assignment) == 2, both)
        confluent.produce(TOPIC, numbered(0, 20))
        wait_for("reading", lambda: set(read_by(*both)) == numbers(20), both)
        wait_for(
            "committing", lambda: sum((*survivor.seen.committed.values(), *doomed.seen.committed.values())) == 20, both
        )
    finally:
        doomed.kill()

    share([survivor])
    confluent.produce(TOPIC, numbered(20, 20))
    wait_for("reading on", lambda: set(read_by(survivor, doomed)) == numbers(40), [survivor])
    assert max(Counter(read_by(survivor, doomed)).values()) == 1, "what was committed was read again"


# Many members ---------------------------------------------------------------------------------------------------------

MANY = int(os.environ.get("OTTLA_TEST_MANY_MEMBERS", "2000"))
"""The members of a large group."""
WINDOW = 500
"""How many of their requests are sent before the first is answered."""
WIDE, NARROW = "read-by-thousands", "read-beside-thousands"


def test_a_group_of_thousands_of_members_shares_its_partitions_beside_others(
    broker: BrokerProcess,
) -> None:
    small = Membership(group="small", topics=(NARROW,), protocol="consumer", commits="after each poll")
    client = connect("confluent-kafka", broker.bootstrap)
    client.create_topic(NARROW, partitions=4)
    client.create_topic(WIDE, partitions=MANY // 2)
    with SeenMember(client, small) as other, RawClient(broker.bootstrap) as raw:
        wait_for("the other group", lambda: other.seen.assignment == places(NARROW, 4), [other])
        members = {f"member {number}": LargeGroupsMember() for number in range(MANY)}

        def all_beat() -> None:
            everyone = list(members.items())
            for window in (everyone[first : first + WINDOW] for first in range(0, MANY, WINDOW)):
                for member_id, member in window:
                    raw.send(member.request(member_id), 1)
                for member_id, member in window:
                    member.takes(member_id, raw.receive())

        def have_settled() -> bool:
            all_beat()
            epochs = {member.epoch for member in members.values()}
            owned = Counter(partition for member in members.values() for partition in member.partitions)
            return len(epochs) == 1 and set(owned) == set(range(MANY // 2)) and owned.total() == MANY // 2

        client.produce(NARROW, numbered(0, 20))
        until(have_settled, "the large group has shared its partitions")
        client.produce(NARROW, numbered(20, 20))
        wait_for("reading beside the large group", lambda: set(read_by(other)) == numbers(40), [other])


class LargeGroupsMember:
    """A member that takes over what it is given, and has nothing to give up."""

    def __init__(self) -> None:
        self.epoch = 0
        self.partitions: frozenset[int] = frozenset()
        self._topic_id = b""

    def request(self, member_id: str) -> ConsumerGroupHeartbeatRequest:
        """Its next heartbeat; the first one joins."""
        if not self.epoch:
            return ConsumerGroupHeartbeatRequest(
                group_id="large",
                member_id=member_id,
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[WIDE],
                topic_partitions=[],
            )
        of_topic = ConsumerGroupHeartbeatRequest.TopicPartition
        owned = [of_topic(topic_id=self._topic_id, partitions=sorted(self.partitions))] if self.partitions else []
        return ConsumerGroupHeartbeatRequest(
            group_id="large", member_id=member_id, member_epoch=self.epoch, topic_partitions=owned
        )

    def takes(self, member_id: str, answer: ConsumerGroupHeartbeatResponse) -> None:
        """Remember an answer."""
        assert answer.error_code == ErrorCode.NONE, f"{member_id}: {answer}"
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self._topic_id = topics[0].topic_id if topics else b""
            self.partitions = frozenset(topics[0].partitions if topics else ())
