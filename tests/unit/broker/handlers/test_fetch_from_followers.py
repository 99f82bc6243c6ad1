"""Consumers that read from followers (KIP-392). What is expected was seen on Apache Kafka 4.4.0.

This node is broker 1, in rack a. Broker 2, in rack b, is the other replica of `orders`.
"""

from typing import Any

import pytest

from broker.replication.replica_fetch import Append, append
from config.broker_settings import RACK_AWARE_SELECTOR
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.records.cluster_metadata import FenceBrokerRecord
from storage.batch.record_batch import stamp
from tests.support.broker import Client, InProcessBroker
from tests.support.cluster import broker_record
from tests.support.leadership import OTHER, OURS, follower_fetches, hand_over, replicate
from tests.support.logs import batch_of, marker
from tests.support.metadata import pretend
from tests.support.requests import fetch_request

Answer = FetchResponse.Response.Partition

BY_RACK = pytest.mark.settings(broker_rack="a", replica_selector_class=RACK_AWARE_SELECTOR)
SINCE = 11


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    """A topic with three batches of one record, at the offsets 0, 1 and 2; its id."""
    topic_id = broker.create_topic("orders")
    for value in (b"a", b"b", b"c"):
        broker.produce("orders", value)
    pretend(broker.server.metadata, broker_record(OTHER, rack="b"))
    return topic_id


@pytest.fixture
def followed(broker: InProcessBroker, orders: bytes) -> bytes:
    """The same with another leader, in epoch 1; the high watermark is 3."""
    replicate(broker, "orders", leader=OTHER)
    return orders


@pytest.fixture
def led(broker: InProcessBroker, orders: bytes) -> bytes:
    """The same with a follower that has all records and is in sync."""
    follower_fetches(broker, replicate(broker, "orders"))
    return orders


def request(topic_id: bytes, **fields: Any) -> FetchRequest:
    return fetch_request(topic_id=topic_id, **fields)


def only(answer: FetchResponse) -> Answer:
    ((of_partition,),) = (topic.partitions for topic in answer.responses)
    return of_partition


def fetch(broker: InProcessBroker, topic_id: bytes, version: int = 16, **fields: Any) -> Answer:
    return only(broker.ask(request(topic_id, **fields), version))


def replicated(broker: InProcessBroker, *batches: bytearray, high_watermark: int, log_start: int = 0) -> None:
    """The leader's answer to this follower: batches, its high watermark and log start."""

    async def perform() -> None:
        replicas = broker.server.components.replicas
        partition = replicas.partition("orders", 0)
        offset = partition.log.log_end_offset
        for batch in batches:
            stamp(batch, offset, partition.leader_epoch)
            offset += 1
        step = Append([memoryview(batch) for batch in batches], high_watermark, log_start)
        append(partition.log, step, broker.clock.now_ms())
        replicas.followed(partition)

    broker.run(perform())
    broker.settle()


def batch(value: bytes, **fields: Any) -> bytearray:
    return bytearray(batch_of(value, **fields).data)


# A follower


@serves(FetchRequest)
@every_version(FetchRequest, since=SINCE)
def test_a_follower_serves_consumers_up_to_its_high_watermark(
    broker: InProcessBroker, followed: bytes, version: int
) -> None:
    replicated(broker, batch(b"d"), high_watermark=3)
    answer = fetch(broker, followed, version)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (E.NONE, 3, 3)
    assert bytes(answer.records) == (
        broker.log("orders").read(0, max_bytes=1 << 20, upper_bound_offset=3, at_least_one_batch=True).region.read()
    )
    assert fetch(broker, followed, version, offset=3).records == b""


@serves(FetchRequest, E.NOT_LEADER_OR_FOLLOWER)
@every_version(FetchRequest, until=SINCE - 1)
def test_before_version_11_only_the_leader_serves(broker: InProcessBroker, followed: bytes, version: int) -> None:
    assert fetch(broker, followed, version).error_code == E.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("epoch", "code"), [(0, E.FENCED_LEADER_EPOCH), (1, E.NONE), (2, E.UNKNOWN_LEADER_EPOCH)])
def test_a_follower_compares_the_leader_epoch(broker: InProcessBroker, followed: bytes, epoch: int, code: E) -> None:
    answer = fetch(broker, followed, partition_fields={"current_leader_epoch": epoch})
    assert answer.error_code == code
    leader = answer.current_leader
    assert (leader.leader_id, leader.leader_epoch) == ((OTHER, 1) if code == E.FENCED_LEADER_EPOCH else (-1, -1))


def test_offsets_outside_of_the_followers_log_are_out_of_range(broker: InProcessBroker, followed: bytes) -> None:
    replicated(broker, high_watermark=3, log_start=1)
    codes = [fetch(broker, followed, offset=offset, max_wait_ms=500).error_code for offset in (-1, 0, 1, 4)]
    assert codes == [E.OFFSET_OUT_OF_RANGE, E.OFFSET_OUT_OF_RANGE, E.NONE, E.OFFSET_OUT_OF_RANGE]


def test_a_follower_serves_while_no_broker_leads(broker: InProcessBroker, followed: bytes) -> None:
    hand_over(broker, "orders", -1)
    assert fetch(broker, followed).error_code == E.NONE


def test_offsets_are_looked_up_at_the_leader_alone(broker: InProcessBroker, followed: bytes) -> None:
    topic = ListOffsetsRequest.Topic
    wanted = [topic(name="orders", partitions=[topic.Partition(partition_index=0, timestamp=-1)])]
    answer = broker.ask(ListOffsetsRequest(replica_id=-1, topics=wanted), 7)
    assert answer.topics[0].partitions[0].error_code == E.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("is_read_by_fast_path", [True, False])
def test_a_waiting_fetch_is_answered_when_the_followers_high_watermark_moves(
    broker: InProcessBroker, followed: bytes, is_read_by_fast_path: bool
) -> None:
    client = broker.connect()
    # Which only the slow path counts together.
    min_bytes = 1 if is_read_by_fast_path else 2
    client.send(request(followed, offset=3, max_wait_ms=500, min_bytes=min_bytes), 12)
    replicated(broker, batch(b"d"), high_watermark=3)
    assert client.has_no_answer()
    replicated(broker, high_watermark=4)
    answer = only(client.receive())
    assert (answer.high_watermark, len(answer.records) > 0) == (4, True)


@pytest.mark.parametrize(("epoch", "code"), [(1, E.FENCED_LEADER_EPOCH), (-1, None)])
def test_a_waiting_fetch_of_an_old_epoch_is_refused_when_another_begins(
    broker: InProcessBroker, followed: bytes, epoch: int, code: E | None
) -> None:
    client = broker.connect()
    fields = {"current_leader_epoch": epoch}
    client.send(request(followed, offset=3, max_wait_ms=500, partition_fields=fields), 16)
    hand_over(broker, "orders", 3)
    if code is None:
        assert client.has_no_answer()
    else:
        assert only(client.receive()).error_code == code


def test_a_session_at_a_follower_answers_what_is_new(broker: InProcessBroker, followed: bytes) -> None:
    client = broker.connect()
    session_id = client.ask(request(followed, offset=3, session_id=0, session_epoch=0), 12).session_id
    again = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[], session_id=session_id, session_epoch=1)
    client.send(again, 12)
    assert client.has_no_answer()
    replicated(broker, batch(b"d"), high_watermark=4)
    assert len(only(client.receive()).records) > 0
    again.session_epoch = 2
    hand_over(broker, "orders", 3)
    assert only(client.ask(again, 12)).error_code == E.NONE


def test_a_follower_shows_committed_records_and_names_aborted_transactions(
    broker: InProcessBroker, followed: bytes
) -> None:
    of_transaction = {"producer_id": 7, "is_transactional": True}
    replicated(broker, batch(b"gone", **of_transaction), marker(7, commit=False), high_watermark=5)
    replicated(broker, batch(b"open", **of_transaction, sequence=1), high_watermark=6)
    committed = fetch(broker, followed, isolation_level=1)
    assert (committed.high_watermark, committed.last_stable_offset) == (6, 5)
    assert [(one.producer_id, one.first_offset) for one in committed.aborted_transactions or ()] == [(7, 3)]
    assert len(committed.records) < len(fetch(broker, followed).records)
    nothing = fetch(broker, followed, isolation_level=1, offset=5)
    assert (bytes(nothing.records), nothing.aborted_transactions) == (b"", [])


# A leader that sends consumers to followers


@BY_RACK
@pytest.mark.parametrize("isolation_level", [0, 1])
@serves(FetchRequest)
@every_version(FetchRequest, since=SINCE)
def test_a_leader_sends_a_consumer_to_the_follower_in_its_rack(
    broker: InProcessBroker, led: bytes, version: int, isolation_level: int
) -> None:
    answer = fetch(broker, led, version, rack_id="b", isolation_level=isolation_level)
    assert answer == Answer(
        partition_index=0,
        high_watermark=3,
        last_stable_offset=3,
        log_start_offset=0,
        preferred_read_replica=OTHER,
        records=answer.records,
    )
    assert bytes(answer.records) == b""


@BY_RACK
@pytest.mark.parametrize("rack", ["a", "c", ""])
def test_other_consumers_read_from_the_leader(broker: InProcessBroker, led: bytes, rack: str) -> None:
    answer = fetch(broker, led, rack_id=rack)
    assert (answer.preferred_read_replica, len(answer.records) > 0) == (-1, True)


@BY_RACK
def test_a_consumer_that_cannot_be_sent_elsewhere_reads_from_the_leader(broker: InProcessBroker, led: bytes) -> None:
    answer = fetch(broker, led, SINCE - 1, rack_id="b")
    assert (answer.error_code, len(answer.records) > 0) == (E.NONE, True)


def test_without_a_selector_the_leader_sends_consumers_nowhere(broker: InProcessBroker, led: bytes) -> None:
    assert fetch(broker, led, rack_id="b").preferred_read_replica == -1


@BY_RACK
def test_a_consumer_is_sent_to_the_follower_at_once(broker: InProcessBroker, led: bytes) -> None:
    assert fetch(broker, led, rack_id="b", offset=3, max_wait_ms=500).preferred_read_replica == OTHER


@BY_RACK
def test_the_other_partitions_are_answered_too(broker: InProcessBroker, led: bytes) -> None:
    broker.create_topic("alone")
    broker.produce("alone", b"a")
    asked = fetch_request("alone", "orders", rack_id="b", max_wait_ms=500, min_bytes=10_000)
    alone, sent_away = (topic.partitions[0] for topic in broker.ask(asked, 12).responses)
    assert (alone.preferred_read_replica, len(alone.records) > 0) == (-1, True)
    assert (sent_away.preferred_read_replica, bytes(sent_away.records)) == (OTHER, b"")


@BY_RACK
def test_the_leader_epoch_comes_first(broker: InProcessBroker, led: bytes) -> None:
    answer = fetch(broker, led, rack_id="b", partition_fields={"current_leader_epoch": 9})
    assert (answer.error_code, answer.preferred_read_replica) == (E.UNKNOWN_LEADER_EPOCH, -1)


@BY_RACK
def test_a_session_sends_the_consumer_away_with_every_answer(broker: InProcessBroker, led: bytes) -> None:
    first = broker.ask(request(led, offset=3, rack_id="b", session_epoch=0), 12)
    again = FetchRequest(
        max_wait_ms=500, min_bytes=1, topics=[], session_id=first.session_id, session_epoch=1, rack_id="b"
    )
    answers = [first, broker.ask(again, 12)]
    assert [only(answer).preferred_read_replica for answer in answers] == [OTHER, OTHER]


@BY_RACK
def test_the_leader_serves_while_the_follower_is_fenced(broker: InProcessBroker, led: bytes) -> None:
    pretend(broker.server.metadata, FenceBrokerRecord(id=OTHER, epoch=2))
    answer = fetch(broker, led, rack_id="b")
    assert (answer.preferred_read_replica, len(answer.records) > 0) == (-1, True)


@BY_RACK
def test_a_waiting_consumer_is_sent_away_when_its_time_is_up(broker: InProcessBroker, led: bytes) -> None:
    def wait(client: Client) -> Answer:
        broker.advance(500)
        return only(client.receive())

    pretend(broker.server.metadata, FenceBrokerRecord(id=OTHER, epoch=2))
    for version in (12, 18):
        client = broker.connect()
        client.send(request(led, offset=3, rack_id="b", max_wait_ms=500), version)
        assert client.has_no_answer()
        pretend(broker.server.metadata, broker_record(OTHER, rack="b"))
        assert wait(client).preferred_read_replica == OTHER
        pretend(broker.server.metadata, FenceBrokerRecord(id=OTHER, epoch=2))


@BY_RACK
def test_followers_are_sent_nowhere(broker: InProcessBroker, led: bytes) -> None:
    answer = fetch(broker, led, 12, replica_id=OTHER, rack_id="b")
    assert (answer.error_code, answer.preferred_read_replica) == (E.NOT_LEADER_OR_FOLLOWER, -1), "there is no cluster"


@BY_RACK
def test_a_follower_sends_consumers_nowhere(broker: InProcessBroker, led: bytes) -> None:
    hand_over(broker, "orders", OTHER)
    for rack in ("a", "b"):
        answer = fetch(broker, led, rack_id=rack)
        assert (answer.preferred_read_replica, len(answer.records) > 0) == (-1, True)
    hand_over(broker, "orders", OURS)
    assert fetch(broker, led, rack_id="b").preferred_read_replica == -1, "the follower has not fetched in this epoch"
