"""Groups in a directory that goes from Ottla to Apache Kafka and back: each broker goes on where the other was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer

from dev.broker_process import BrokerProcess
from dev.waiting import until
from protocol.errors import ErrorCode
from storage.batch.records import Record
from tests.interop import programs
from tests.interop.directories import LAST_HOUR_MS, SharedDirectory, complaints_of_dump_log, records_of_groups
from tests.interop.directory_groups import (
    GroupSeen,
    GroupVisitor,
    Member,
    MemberSeen,
    OffsetSeen,
    assign,
    assignment_of,
    come_together,
)
from tests.interop.java_tools import JavaTools
from tests.parity.members import subscription
from tests.support.batches import produced
from tests.support.clients import Committed, connect
from tests.support.clients import Record as Sent
from tests.support.clients.members import Membership, SeenMember, places, wait_for, wait_until_shared

pytestmark = pytest.mark.timeout(400)  # several starts of a Java broker, on whatever machine

ENDS: dict[str, Callable[[BrokerProcess], Any]] = {"stopped": lambda b: b.stop(), "killed": lambda b: b.kill()}
LONGEST_METADATA = "größer " * 512


@pytest.fixture(params=list(ENDS))
def leave(request: pytest.FixtureRequest) -> Callable[[BrokerProcess], Any]:
    return ENDS[str(request.param)]


def test_kafka_goes_on_with_the_groups_of_ottla(shared: SharedDirectory, leave: Callable[[BrokerProcess], Any]) -> None:
    shared.ottla.start()
    with Groups(shared.ottla) as groups:
        before, told = groups.seen, told_by_the_tool(shared.ottla)
        groups.interrupt(shared.ottla)
        leave(shared.ottla)

        shared.kafka.start()
        assert groups_at(shared.kafka) == before
        assert told_by_the_tool(shared.kafka) == told
        groups.go_on(shared.kafka)
        before = groups_at(shared.kafka)
        leave(shared.kafka)

        shared.ottla.start()
        assert groups_at(shared.ottla) == before
        groups.go_on(shared.ottla)
        shared.ottla.stop()
    assert complaints_of_dump_log(programs.java(), shared.data) == []


def test_ottla_goes_on_with_the_groups_of_kafka(shared: SharedDirectory, leave: Callable[[BrokerProcess], Any]) -> None:
    shared.kafka.start()
    with Groups(shared.kafka) as groups:
        before, told = groups.seen, told_by_the_tool(shared.kafka)
        groups.interrupt(shared.kafka)
        leave(shared.kafka)

        shared.ottla.start()
        assert groups_at(shared.ottla) == before
        assert told_by_the_tool(shared.ottla) == told
        groups.go_on(shared.ottla)
        before = groups_at(shared.ottla)
        leave(shared.ottla)

        shared.kafka.start()
        assert groups_at(shared.kafka) == before
        groups.go_on(shared.kafka)
        shared.kafka.stop()
    assert complaints_of_dump_log(programs.java(), shared.data) == []


def test_kafkas_tool_reads_every_record_that_ottla_writes_of_groups(shared: SharedDirectory) -> None:
    shared.ottla.start()
    with Groups(shared.ottla) as groups:
        groups.go_on(shared.ottla)
        seen = groups_at(shared.ottla)
    shared.ottla.stop()
    stored = records_of_groups(programs.java(), shared.data)
    for name, group in seen.items():
        offsets = {key[1:]: value for key, value in stored.items() if key[0] == name and key[1:]}
        assert {at: (one["offset"], one["metadata"]) for at, one in offsets.items()} == {
            at: (one.offset, one.metadata) for at, one in group.offsets.items()
        }
        members = stored[(name,)]["members"] if group.protocol_type else []
        assert {member["memberId"] for member in members} == set(group.members)
    assert {key[0] for key in stored} == set(seen)
    assert stored[("shared",)]["generation"] == groups.shared[0].generation


def test_consumers_of_today_go_on_from_broker_to_broker(
    shared: SharedDirectory, leave: Callable[[BrokerProcess], Any]
) -> None:
    shared.ottla.start()
    client = connect("confluent-kafka", shared.ottla.bootstrap)
    client.create_topic("read", partitions=4)
    sent = 0

    def produce() -> None:
        nonlocal sent
        client.produce("read", [Sent(value=b"%d" % n, partition=n % 4) for n in range(sent, sent + 40)])
        sent += 40

    membership = Membership(group="readers", topics=("read",), commits="after each poll")
    with SeenMember(client, membership) as one, SeenMember(client, membership) as other:
        members = [one, other]
        wait_until_shared(client, "readers", places("read", 4), members)
        for now, next_one in ((shared.ottla, shared.kafka), (shared.kafka, shared.ottla)):
            produce()
            wait_for("committing", lambda: sum(sum(m.seen.committed.values()) for m in members) >= sent, members)
            leave(now)
            next_one.start()
        produce()
        everything = {place: Committed(sent // 4) for place in places("read", 4)}
        wait_for("committing", lambda: client.committed("readers", everything) == everything, members)
        wait_until_shared(client, "readers", places("read", 4), members)
    assert {*one.seen.values, *other.seen.values} == {b"%d" % n for n in range(sent)}


def test_a_group_of_the_new_protocol_is_kept_for_kafka(
    shared: SharedDirectory, leave: Callable[[BrokerProcess], Any]
) -> None:
    shared.kafka.start()
    client = connect("confluent-kafka", shared.kafka.bootstrap)
    client.create_topic("read", partitions=2)
    client.produce("read", [Sent(value=b"%d" % n, partition=n % 2) for n in range(20)])
    assert sorted(read_by_the_new_protocol(shared.kafka, 20), key=int) == [b"%d" % n for n in range(20)]
    before = groups_at(shared.kafka)
    assert before["newer"].kind == "consumer"
    leave(shared.kafka)

    shared.ottla.start()
    assert groups_at(shared.ottla) == before
    client.produce("read", [Sent(value=b"%d" % n, partition=n % 2) for n in range(20, 30)])
    with GroupVisitor(shared.ottla.bootstrap) as ottla:
        ottla.commit("newer", {("read", 0): 8}, "set back")
    leave(shared.ottla)

    shared.kafka.start()
    with GroupVisitor(shared.kafka.bootstrap) as kafka:
        assert kafka.groups()["newer"].kind == "consumer"
        assert {at: (one.offset, one.metadata) for at, one in kafka.offsets("newer").items()} == {
            ("read", 0): (8, "set back"),
            ("read", 1): (10, ""),
        }
    expected = [*range(16, 30, 2), *range(21, 30, 2)]
    assert sorted(map(int, read_by_the_new_protocol(shared.kafka, len(expected)))) == sorted(expected)
    shared.kafka.stop()
    assert complaints_of_dump_log(programs.java(), shared.data) == []


# Groups of every kind, and what goes on of them


class Groups:
    """What a broker can be left with, by members and administrators that go on at the next one."""

    def __init__(self, broker: BrokerProcess) -> None:
        with GroupVisitor(broker.bootstrap) as visitor:
            visitor.create("read", partitions=3)
            for partition in range(3):
                records = [Record(timestamp=LAST_HOUR_MS, key=None, value=b"%d" % n) for n in range(20)]
                visitor.produce("read", produced(records), partition=partition)
            visitor.await_coordinator()
            self.rounds = 0
            self.shared = self._members_of_a_stable_group(broker)
            self._left(broker)
            self.worker = self._of_another_protocol(broker)
            self._without_members(visitor)
            self.seen = visitor.groups()
        first, second = self.shared
        assert set(self.seen) == {"shared", "left", "workers", "simple", "fewer"}
        assert self.seen["shared"].members == {
            first.id: MemberSeen("first", ("raw", "/127.0.0.1"), subscription("read"), assignment_of("read", 0)),
            second.id: MemberSeen(None, ("raw", "/127.0.0.1"), subscription("read"), assignment_of("read", 1)),
        }
        self.interrupted = Member("shared")

    def __enter__(self) -> Groups:
        return self

    def __exit__(self, *_: object) -> None:
        for member in (*self.shared, self.worker, self.interrupted):
            member.part()

    def interrupt(self, broker: BrokerProcess) -> None:
        """Begin a rebalance that this broker will not see end: what comes along is the last generation."""
        self.interrupted.meet(broker).begin_join()
        until(lambda: self.shared[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance")

    def go_on(self, broker: BrokerProcess) -> None:
        """Everybody is known at the next broker, and what is out of date is refused; then the group changes."""
        self.rounds += 1
        first, second = (member.meet(broker) for member in self.shared)
        generation = first.generation
        assert [first.heartbeat(), second.heartbeat()] == [ErrorCode.NONE] * 2
        assert second.commit({("read", 1): 2}, generation=generation - 1) == ErrorCode.ILLEGAL_GENERATION
        assert second.commit({("read", 1): 10 + self.rounds}, f"round {self.rounds}") == ErrorCode.NONE

        # The static member starts again: no rebalance, and who has its old id is fenced.
        old, again = first, Member("shared", instance_id="first").meet(broker)
        again.join()
        assert again.generation == generation
        assert second.heartbeat() == ErrorCode.NONE
        assert old.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
        again.assignment = old.assignment
        old.part()

        # The dynamic one leaves, another one comes.
        second.leave()
        second.part()
        come_together(again, newcomer := Member("shared").meet(broker))
        assert again.generation > generation
        assert newcomer.commit({("read", 2): self.rounds}) == ErrorCode.NONE
        self.shared = (again, newcomer)

        assert self.worker.meet(broker).heartbeat() == ErrorCode.NONE
        with GroupVisitor(broker.bootstrap) as visitor:
            visitor.commit("simple", {("read", 0): 5 + self.rounds}, f"simply {self.rounds}")
            assert visitor.offsets("simple")["read", 0] == OffsetSeen(5 + self.rounds, -1, f"simply {self.rounds}")
            assert visitor.offsets("shared")["read", 1].metadata == f"round {self.rounds}"
            visitor.commit(f"new in round {self.rounds}", {("read", 0): 1})
            if self.rounds > 1:
                visitor.delete_group(f"new in round {self.rounds - 1}")
            assert "deleted" not in visitor.groups()

    def _members_of_a_stable_group(self, broker: BrokerProcess) -> tuple[Member, Member]:
        first, second = Member("shared", instance_id="first").meet(broker), Member("shared").meet(broker)
        first.join()
        assign([first])
        come_together(first, second)
        assert first.commit({("read", 0): 7}, "größer") == ErrorCode.NONE
        assert second.commit({("read", 1): 3}) == ErrorCode.NONE
        return first, second

    def _left(self, broker: BrokerProcess) -> None:
        member = Member("left").meet(broker)
        member.join()
        assign([member])
        assert member.commit({("read", 0): 4, ("read", 2): 20}) == ErrorCode.NONE
        member.leave()
        member.part()

    def _of_another_protocol(self, broker: BrokerProcess) -> Member:
        worker = Member("workers", protocol_type="connect").meet(broker)
        worker.join()
        assign([worker])
        return worker

    def _without_members(self, visitor: GroupVisitor) -> None:
        visitor.commit("simple", {("read", 0): 5, ("read", 1): 0}, LONGEST_METADATA)
        visitor.commit("fewer", {("read", 0): 1, ("read", 1): 2})
        visitor.delete_offset("fewer", "read", 0)
        visitor.commit("deleted", {("read", 0): 1})
        visitor.delete_group("deleted")


def groups_at(broker: BrokerProcess) -> dict[str, GroupSeen]:
    with GroupVisitor(broker.bootstrap) as visitor:
        return visitor.groups()


def told_by_the_tool(broker: BrokerProcess) -> dict[str, list[str]]:
    """What kafka-consumer-groups says of all groups' offsets and members."""
    with GroupVisitor(broker.bootstrap) as visitor:
        visitor.await_coordinator()
    tools = JavaTools(programs.java(), broker.bootstrap)
    return {
        what: sorted(" ".join(line.split()) for line in tools.lines("kafka-consumer-groups", "--describe", *words))
        for what, words in {
            "offsets": ("--all-groups", "--offsets"),
            "members": ("--all-groups", "--members", "--verbose"),
        }.items()
    }


def read_by_the_new_protocol(broker: BrokerProcess, count: int) -> list[bytes]:
    """What a member of the group `newer` reads from where the group is; it commits that."""
    with contextlib.closing(
        Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "newer",
                "group.protocol": "consumer",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
    ) as member:
        member.subscribe(["read"])
        values: list[bytes] = []
        while len(values) < count:
            message = member.poll(30)
            assert message is not None, f"{len(values)} of {count} records, then nothing for 30 s"
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
        member.commit(asynchronous=False)
    return values
