"""Fault rules that change a leader's epoch or move a coordinator: what raw requests are answered, and that stock
clients go on without losing a record."""

from __future__ import annotations

import pytest

from dev.waiting import until
from ottla.testing import Broker, BrokerError
from protocol.errors import ErrorCode as E
from protocol.messages.committed_offsets import OffsetCommitRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.group_membership import HeartbeatRequest, JoinGroupRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.messages.produce import ProduceRequest
from storage.batch.records import Record as LogRecord
from storage.batch.records import encode_batch
from tests.support.clients import CLIENTS, Place, Record, connect, values
from tests.support.clients.members import Membership, SeenMember
from tests.support.clients.transactions import FENCE, PRODUCERS, read
from tests.support.raw_client import RawClient


def produce(client: RawClient) -> int:
    """Write a record into partition 0 of "orders"; the error code."""
    data = ProduceRequest.TopicData.PartitionData(index=0, records=memoryview(encode_batch([LogRecord(value=b"1")])))
    topic = ProduceRequest.TopicData(name="orders", partition_data=[data])
    [answered] = client.ask(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic]), 9).responses
    code: int = answered.partition_responses[0].error_code
    return code


def fetch(epoch: int, *, offset: int = 0, wait_ms: int = 0) -> FetchRequest:
    """A request for partition 0 of "orders" by a consumer that knows this leader epoch."""
    partition = FetchRequest.Topic.Partition(
        partition=0, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, topics=[FetchRequest.Topic(topic="orders", partitions=[partition])]
    )


def fetched(client: RawClient, epoch: int) -> int:
    """The error code that a consumer gets that knows this leader epoch."""
    code: int = client.ask(fetch(epoch), 11).responses[0].partitions[0].error_code
    return code


def leader_epochs(client: RawClient) -> list[int]:
    """The leader epochs of the partitions of "orders"."""
    [topic] = client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]), 9).topics
    return [one.leader_epoch for one in sorted(topic.partitions, key=lambda one: one.partition_index)]


@pytest.mark.kafka(topics={"orders": 2})
@pytest.mark.parametrize("when", ["before", "after"])
def test_clients_of_the_former_leader_epoch_are_fenced(kafka: Broker, when: str) -> None:
    with RawClient(kafka.bootstrap_servers) as client, RawClient(kafka.bootstrap_servers) as waiting:
        assert produce(client) == E.NONE
        assert leader_epochs(client) == [0, 0]
        with kafka.fail(api="Produce", topic="orders", when=when, new_leader_epoch=True, times=1) as rule:
            waiting.send(fetch(0, offset=1, wait_ms=60_000), 11)
            until(lambda: len(kafka.requests(api="Fetch")) == 1, "the waiting request")
            assert produce(client) == E.NONE
            assert rule.applied == 1
        assert leader_epochs(client) == [1, 0]
        assert [fetched(client, epoch) for epoch in (-1, 0, 1, 2)] == [
            E.NONE,
            E.FENCED_LEADER_EPOCH,
            E.NONE,
            E.UNKNOWN_LEADER_EPOCH,
        ]
        [answered] = waiting.receive().responses[0].partitions
        # After the act, the new record has woken the consumer before.
        assert answered.error_code == (E.FENCED_LEADER_EPOCH if when == "before" else E.NONE)
        asked = OffsetForLeaderEpochRequest.Topic.Partition(partition=0, current_leader_epoch=1, leader_epoch=0)
        topic = OffsetForLeaderEpochRequest.Topic(topic="orders", partitions=[asked])
        [topic] = client.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]), 4).topics
        assert topic.partitions[0].end_offset == (1 if when == "before" else 2)
    assert len(kafka.records("orders")) == 2


@pytest.mark.kafka(settings={"ottla.clock": "manual"}, topics={"orders": 1})
def test_a_leader_may_be_away_for_a_while(kafka_broker: Broker) -> None:
    with RawClient(kafka_broker.bootstrap_servers) as client:
        kafka_broker.fail(api="Produce", topic="orders", new_leader_epoch=True, away_ms=5_000, times=1)
        assert produce(client) == E.NOT_LEADER_OR_FOLLOWER
        [topic] = client.ask(MetadataRequest(topics=None), 9).topics
        assert topic.partitions[0].error_code == E.LEADER_NOT_AVAILABLE
        kafka_broker.advance(seconds=5)
        assert produce(client) == E.NONE
        assert leader_epochs(client) == [2]


@pytest.mark.kafka(settings={"ottla.clock": "manual"}, topics={"orders": 1})
def test_a_coordinator_that_moves_is_away_and_comes_back_with_its_groups(kafka_broker: Broker) -> None:
    def commit(client: RawClient, group: str) -> int:
        partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=7)
        topic = OffsetCommitRequest.Topic(name="orders", partitions=[partition])
        [answered] = client.ask(OffsetCommitRequest(group_id=group, topics=[topic]), 7).topics
        code: int = answered.partitions[0].error_code
        return code

    def find(client: RawClient, group: str) -> int:
        code: int = client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0].error_code
        return code

    with RawClient(kafka_broker.bootstrap_servers) as client, RawClient(kafka_broker.bootstrap_servers) as member:
        until(lambda: find(client, "readers") == E.NONE and commit(client, "readers") == E.NONE, "a coordinator")
        assert commit(client, "others") == E.NONE  # whose coordinator leads another partition
        with kafka_broker.fail(group="others", move_coordinator=True) as rule:
            assert commit(client, "readers") == E.NONE
            assert rule.applied == 0
        protocol = JoinGroupRequest.Protocol(name="range", metadata=memoryview(b""))
        join = JoinGroupRequest(
            group_id="readers",
            member_id="",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        first = member.ask(join, 3)
        assert first.error_code == E.NONE
        with RawClient(kafka_broker.bootstrap_servers) as second:
            second.send(join, 3)
            kafka_broker.wait_for(group="readers", state="PreparingRebalance")
            kafka_broker.fail(group="readers", api="Heartbeat", move_coordinator=True, away_ms=5_000, times=1)
            heartbeat = HeartbeatRequest(group_id="readers", generation_id=1, member_id=first.member_id)
            assert member.ask(heartbeat, 3).error_code == E.NOT_COORDINATOR
            assert second.receive().error_code == E.NOT_COORDINATOR
        assert commit(client, "readers") == E.NOT_COORDINATOR
        assert find(client, "readers") == E.COORDINATOR_NOT_AVAILABLE
        assert find(client, "others") == E.NONE
        kafka_broker.advance(seconds=5)
        assert find(client, "readers") == E.NONE
        kafka_broker.wait_for(group="readers", committed={("orders", 0): 7})


@pytest.mark.kafka(topics={"orders": 2})
@pytest.mark.parametrize("client_name", CLIENTS)
def test_a_stock_producer_and_reader_go_on_through_leader_epochs(kafka: Broker, client_name: str) -> None:
    client = connect(client_name, kafka.bootstrap_servers)
    changed = [
        kafka.fail(api="Produce", topic="orders", new_leader_epoch=True, share=0.5, seed=1),
        kafka.fail(api="Fetch", topic="orders", new_leader_epoch=True, share=0.5, seed=1, times=5),
        kafka.fail(api="Produce", topic="orders", new_leader_epoch=True, when="after", away_ms=20, nth=3),
    ]
    sent = [b"%d" % number for number in range(6)]
    for value in sent:
        client.produce("orders", [Record(value=value, partition=0)], idempotent=True)
    assert values(client.consume("orders", partition=0, offset=0, count=len(sent))) == sent
    assert [record.value for record in kafka.records("orders")] == sent
    assert changed[0].applied > 0
    assert changed[1].applied > 0


@pytest.mark.parametrize("client_name", CLIENTS)
@pytest.mark.kafka(topics={"orders": 2})
def test_stock_members_go_on_though_their_coordinator_moves(kafka: Broker, client_name: str) -> None:
    client = connect(client_name, kafka.bootstrap_servers)
    moved = [
        kafka.fail(api="JoinGroup", group="readers", move_coordinator=True, nth=2),
        kafka.fail(api="Heartbeat", group="readers", move_coordinator=True, nth=2, when="after"),
        kafka.fail(api="OffsetCommit", group="readers", move_coordinator=True, nth=2, away_ms=50),
    ]
    member = SeenMember(client, Membership(group="readers", topics=("orders",), commits="after each poll"))
    try:
        sent = set()
        for number in range(4):
            value = b"%d" % number
            client.produce("orders", [Record(value=value, partition=number % 2)])
            sent.add(value)
            until(lambda: set(member.seen.values) >= sent, "reading the records")
        kafka.wait_for(group="readers", topic="orders", caught_up=True, timeout=60)
        until(lambda: all(rule.applied for rule in moved), "every move of the coordinator")
    finally:
        member.close()
    assert set(member.seen.values) == sent
    assert client.committed("readers", [Place("orders", 0), Place("orders", 1)]).keys() == {
        Place("orders", 0),
        Place("orders", 1),
    }


@pytest.mark.parametrize("client_name", PRODUCERS)
@pytest.mark.kafka(topics={"orders": 1})
def test_a_stock_transaction_goes_on_though_its_coordinator_moves(kafka: Broker, client_name: str) -> None:
    moved = [
        kafka.fail(api=api, group="shop", move_coordinator=True, when=when, nth=nth)
        for api, when, nth in [
            ("InitProducerId", "after", 1),
            ("AddPartitionsToTxn", "before", 1),
            ("AddPartitionsToTxn", "after", 3),
            ("EndTxn", "before", 2),
            ("EndTxn", "after", 1),
        ]
    ]
    place = Place("orders", 0)
    producer = PRODUCERS[client_name](kafka.bootstrap_servers, "shop")
    for number in range(4):
        producer.begin()
        producer.send(place, b"%d" % number)
        producer.flush()
        if number % 2:
            producer.commit()
        else:
            producer.abort()
    producer.close()
    kafka.produce("orders", [{"value": FENCE, "partition": 0}])
    assert read(kafka.bootstrap_servers, client_name, [place], isolation="read_committed") == [b"1", b"3"]
    assert [rule.applied for rule in moved] == [1] * len(moved)


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"new_leader_epoch": True}, "of a topic: which"),
        ({"new_leader_epoch": True, "move_coordinator": True}, "one of error"),
        ({"move_coordinator": True, "when": "middle"}, "nothing else"),
        ({"move_coordinator": True, "away_ms": -1}, "away_ms is -1, expected 0 to"),
        ({"close": True, "away_ms": 1}, "only a leader or a coordinator"),
    ],
)
def test_a_rule_about_leaders_that_makes_no_sense_is_refused(
    kafka: Broker, rule: dict[str, object], sentence: str
) -> None:
    with pytest.raises(BrokerError, match=sentence):
        kafka.fail(**rule)
