"""A share group (KIP-932), a consumer group (KIP-848) and a classic group in a directory that Ottla and Apache Kafka
serve in turns: Kafka's tools say the same of them at each broker, and work goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from dev.broker_process import BrokerProcess
from dev.kafka_jars import NEWEST
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.share_group_state import ReadShareGroupStateRequest
from tests.interop import programs
from tests.interop.directories import SharedDirectory, complaints_of_dump_log
from tests.interop.directory_groups import GroupVisitor, Member, assign
from tests.interop.java_tools import JavaTools
from tests.support.clients import Place, Record, connect
from tests.support.clients.members import Membership, SeenMember, wait_for
from tests.support.raw_client import RawClient
from tests.support.sharing import (
    ShareTaker,
    WireMember,
    from_the_beginning,
    topic_id_of,
)

pytestmark = pytest.mark.timeout(400)  # several starts of a Java broker, on whatever machine

JOBS, SHARING, CONSUMERS, CLASSIC = "jobs", "workers", "readers", "shared"
READ = "read"
"""The topic of the consumer group and the classic group."""
ACCEPT, RELEASE, REJECT = 1, 2, 3
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4

SHARE_GROUP_KEY = 2
"""The key type of the states of share groups in FindCoordinator."""


def killed(broker: BrokerProcess) -> None:
    broker.kill()


def stopped(broker: BrokerProcess) -> None:
    broker.stop()


def test_groups_of_ottla_go_on_at_kafka_and_come_back(shared: SharedDirectory) -> None:
    shared.ottla.start()
    hand_over(shared.ottla, shared.kafka, killed, stopped)
    assert complaints_of_dump_log(programs.java(), shared.data) == []


@pytest.mark.parametrize("kafka_version", [NEWEST])
def test_groups_of_kafka_go_on_at_ottla_and_come_back(shared: SharedDirectory) -> None:
    shared.kafka.start()
    hand_over(shared.kafka, shared.ottla, stopped, killed)
    assert complaints_of_dump_log(programs.java(), shared.data) == []


def hand_over(
    first: BrokerProcess,
    second: BrokerProcess,
    leave_first: Callable[[BrokerProcess], Any],
    leave_second: Callable[[BrokerProcess], Any],
) -> None:
    """Begin work at one broker, go on at the other, and end it at the first one."""
    await_coordinators(first)
    client = connect("confluent-kafka", first.bootstrap)
    client.create_topic(JOBS)
    client.create_topic(READ, partitions=2)
    client.produce(JOBS, [Record(value=b"%d" % number, partition=0) for number in range(30)])
    client.produce(READ, [Record(value=b"%d" % number, partition=number % 2) for number in range(20)])
    from_the_beginning(first.bootstrap, SHARING)
    with ExitStack() as stack:
        worker = stack.enter_context(WireMember(first.bootstrap, SHARING, JOBS))
        worker.join()
        reader = stack.enter_context(consumer_group_member(first))
        classic = classic_member(first)
        stack.callback(classic.part)

        # Ten jobs are done, five are given back, one is refused; nothing is said of the last ones.
        assert worker.take(30) == [(0, 29, 1)]
        said = worker.said((0, 9, ACCEPT), (10, 14, RELEASE), (15, 15, REJECT), (18, 19, ACCEPT))
        assert worker.acknowledge(said).error_code == ErrorCode.NONE
        kept = {
            **dict.fromkeys(range(10, 15), (AVAILABLE, 1)),
            15: (ARCHIVED, 1),
            **dict.fromkeys((18, 19), (ACKNOWLEDGED, 1)),
        }
        assert state(first) == kept
        told = told_by_tools(first)
        [offsets] = [line.split() for line in told["offsets"] if line.startswith(SHARING)]
        assert (offsets[1:3], offsets[-1]) == ([JOBS, "0"], "17")

        leave_first(first)
        second.start()
        await_coordinators(second)
        assert told_by_tools(second) == told
        assert kept.items() <= state(second).items()

        # The members are known, and have what they had.
        worker.meet(second.bootstrap)
        worker.join()
        assert classic.meet(second).heartbeat() == ErrorCode.NONE
        again = worker.take(17)
        assert [run[:2] for run in again] == [(10, 14), (16, 17), (20, 29)]
        counts = {first: count for first, _, count in again}
        assert counts[10] == 2
        assert counts[16] == counts[20] in (1, 2), "a broker that stops may give back what is in flight, as it were new"
        # Of those that were given back, one is accepted, and the others are given back once more.
        said = worker.said((10, 10, ACCEPT), (11, 14, RELEASE), (16, 17, ACCEPT), (20, 24, RELEASE), (25, 29, ACCEPT))
        assert worker.acknowledge(said).error_code == ErrorCode.NONE
        kept = {
            10: (ACKNOWLEDGED, 2),
            **dict.fromkeys(range(11, 15), (AVAILABLE, 2)),
            15: (ARCHIVED, 1),
            **dict.fromkeys((16, 17), (ACKNOWLEDGED, counts[16])),
            **dict.fromkeys((18, 19), (ACKNOWLEDGED, 1)),
            **dict.fromkeys(range(20, 25), (AVAILABLE, counts[20])),
            **dict.fromkeys(range(25, 30), (ACKNOWLEDGED, counts[20])),
        }
        assert state(second) == kept
        client = connect("confluent-kafka", second.bootstrap)
        client.produce(READ, [Record(value=b"%d" % number, partition=number % 2) for number in range(20, 30)])
        wait_for("reading on", lambda: sum(reader.seen.committed.values()) == 30, [reader])
        assert classic.commit({(READ, 0): 7}, "at the second") == ErrorCode.NONE
        told = told_by_tools(second)

        leave_second(second)
        first.start()
        await_coordinators(first)
        assert told_by_tools(first) == told
        assert state(first) == kept
        assert classic.meet(first).heartbeat() == ErrorCode.NONE

        # What is left is worked off by a stock client, with the deliveries counted from the first broker on.
        with ShareTaker(first.bootstrap, SHARING, JOBS) as taker:
            done = taker.work_off(9)
        assert done == {
            **{b"%d" % number: 3 for number in range(11, 15)},
            **{b"%d" % number: counts[20] + 1 for number in range(20, 25)},
        }
        assert {place: one.offset for place, one in client.committed(CONSUMERS, [Place(READ, 0)]).items()} == {
            Place(READ, 0): 15
        }
    first.stop()


def await_coordinators(broker: BrokerProcess) -> None:
    """Wait until the coordinators of groups and of share groups' states have loaded their partitions."""
    with GroupVisitor(broker.bootstrap) as visitor:
        visitor.await_coordinator()
    key = f"{SHARING}:AAAAAAAAAAAAAAAAAAAAAQ:0"
    asked = FindCoordinatorRequest(key="", key_type=SHARE_GROUP_KEY, coordinator_keys=[key])
    with RawClient(broker.bootstrap) as raw:
        until(lambda: raw.ask(asked, 6).coordinators[0].error_code == 0, "a coordinator of the states")


@contextmanager
def consumer_group_member(broker: BrokerProcess) -> Iterator[SeenMember]:
    membership = Membership(group=CONSUMERS, topics=(READ,), protocol="consumer", commits="after each poll")
    with SeenMember(connect("confluent-kafka", broker.bootstrap), membership) as member:
        wait_for("reading", lambda: sum(member.seen.committed.values()) == 20, [member])
        yield member


def classic_member(broker: BrokerProcess) -> Member:
    member = Member(CLASSIC).meet(broker)
    member.join()
    assign([member])
    assert member.commit({(READ, 0): 5}, "at the first") == ErrorCode.NONE
    return member


def state(broker: BrokerProcess) -> dict[int, tuple[int, int]]:
    """State and delivery count of each job from the eleventh on, as the share coordinator has stored them."""
    of_request = ReadShareGroupStateRequest.Topic
    topic_id = topic_id_of(broker.bootstrap, JOBS)
    found: list[Any] = []
    with RawClient(broker.bootstrap) as raw:

        def is_read() -> bool:
            [topic] = raw.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=JOBS)]), 12).topics
            epoch = topic.partitions[0].leader_epoch
            partition = of_request.Partition(partition=0, leader_epoch=epoch)
            asked = ReadShareGroupStateRequest(
                group_id=SHARING, topics=[of_request(topic_id=topic_id, partitions=[partition])]
            )
            [result] = raw.ask(asked, 0).results
            found[:] = [one for one in result.partitions if one.error_code == 0]
            return bool(found)

        until(is_read, "the state of the share partition")
    return {
        offset: (batch.delivery_state, batch.delivery_count)
        for batch in found[0].state_batches
        for offset in range(max(batch.first_offset, 10), batch.last_offset + 1)
    }


def told_by_tools(broker: BrokerProcess) -> dict[str, list[str]]:
    """What Kafka's tools say of all groups."""
    tools = JavaTools(programs.java(), broker.bootstrap)
    return {
        what: sorted(" ".join(line.split()) for line in tools.lines(*words))
        for what, words in {
            "consumers": ("kafka-consumer-groups", "--describe", "--all-groups", "--members", "--verbose"),
            "committed": ("kafka-consumer-groups", "--describe", "--all-groups", "--offsets"),
            "offsets": ("kafka-share-groups", "--describe", "--all-groups", "--offsets"),
            "members": ("kafka-share-groups", "--describe", "--all-groups", "--members", "--verbose"),
        }.items()
    }
