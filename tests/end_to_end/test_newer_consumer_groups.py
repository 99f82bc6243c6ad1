"""Groups of the newer protocol (KIP-848) with a stock client, and groups that change their protocol while they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.broker_process import BrokerProcess, broker_for_tests
from tests.end_to_end.test_consumer_groups import numbered, numbers, read_by
from tests.support.clients import Client, connect
from tests.support.clients.members import Membership, SeenMember, places, wait_for

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

    def start(protocol: str = "consumer", **options: Any) -> SeenMember:
        membership = Membership(
            group=GROUP,
            topics=(TOPIC,),
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
