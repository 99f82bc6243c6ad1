"""The five APIs of the share coordinator through the codec, against a whole broker."""

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
)
from protocol.messages.topics import DeleteTopicsRequest
from tests.support.broker import InProcessBroker
from tests.unit.broker.handlers.share_states import (
    NO_TOPIC,
    PRUNE_MS,
    STATE,
    code,
    codes,
    delete,
    initialize,
    orders_and_states,
    read,
    state_partition,
    summarize,
    write,
)


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    """A topic with three partitions; the topic of the states is there, too."""
    return orders_and_states(broker)


def test_the_topic_of_the_states_is_made_as_kafka_makes_it(broker: InProcessBroker, orders: bytes) -> None:
    topic = broker.server.components.metadata.image.topics.by_name[STATE]
    assert len(topic.partitions) == 50
    configs = broker.server.components.metadata.image.configs.of_topic(STATE)
    assert dict(configs) == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


@serves(InitializeShareGroupStateRequest, versions=[0])
@serves(ReadShareGroupStateRequest, versions=[0])
@serves(WriteShareGroupStateRequest)
@serves(DeleteShareGroupStateRequest, versions=[0])
@every_version(WriteShareGroupStateRequest)
def test_what_is_written_is_read(broker: InProcessBroker, orders: bytes, version: int) -> None:
    assert code(broker, initialize(orders, start_offset=5)) == E.NONE
    assert code(broker, write(orders, batches=[(7, 9, 2, 1)], delivery_complete_count=3), version) == E.NONE
    (result,) = broker.ask(read(orders), 0).results
    (partition,) = result.partitions
    assert (result.topic_id, partition.state_epoch, partition.start_offset) == (orders, 1, 5)
    (batch,) = partition.state_batches
    assert (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) == (7, 9, 2, 1)
    assert code(broker, delete(orders)) == E.NONE
    assert code(broker, read(orders)) == E.INVALID_REQUEST


@serves(ReadShareGroupStateSummaryRequest)
@every_version(ReadShareGroupStateSummaryRequest)
def test_a_summary_has_all_but_the_batches(broker: InProcessBroker, orders: bytes, version: int) -> None:
    broker.ask(initialize(orders, state_epoch=4), 0)
    broker.ask(read(orders, leader_epoch=2), 0)
    broker.ask(write(orders, state_epoch=4, leader_epoch=2, start_offset=6, delivery_complete_count=2), 1)
    (result,) = broker.ask(summarize(orders, 0, 1), version).results
    assert [
        (
            one.partition,
            one.error_code,
            one.state_epoch,
            one.leader_epoch,
            one.start_offset,
            one.delivery_complete_count,
        )
        for one in result.partitions
    ] == [(0, E.NONE, 4, 2, 6, 2 if version else -1), (1, E.NONE, 0, 0, -1, -1)]


def test_many_partitions_are_each_answered_for_themselves(broker: InProcessBroker, orders: bytes) -> None:
    asked = initialize(orders, 2, 0, 3, -1, 0)
    assert codes(broker, asked) == [
        (2, E.NONE),
        (0, E.NONE),
        (3, E.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, E.INVALID_REQUEST),
    ]
    assert codes(broker, read(orders, 0, 1, 2)) == [(0, E.NONE), (1, E.INVALID_REQUEST), (2, E.NONE)]


@serves(InitializeShareGroupStateRequest, E.FENCED_STATE_EPOCH, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[0])
@serves(ReadShareGroupStateRequest, E.FENCED_LEADER_EPOCH, E.INVALID_REQUEST, versions=[0])
@serves(WriteShareGroupStateRequest, E.FENCED_LEADER_EPOCH, E.FENCED_STATE_EPOCH, E.INVALID_REQUEST, versions=[0, 1])
@serves(DeleteShareGroupStateRequest, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[0])
@serves(ReadShareGroupStateSummaryRequest, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[0, 1])
def test_who_comes_late_is_fenced(broker: InProcessBroker, orders: bytes) -> None:
    broker.ask(initialize(orders, state_epoch=4), 0)
    broker.ask(read(orders, leader_epoch=3), 0)
    assert code(broker, initialize(orders, state_epoch=3)) == E.FENCED_STATE_EPOCH
    assert code(broker, initialize(NO_TOPIC)) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert code(broker, read(orders, leader_epoch=2)) == E.FENCED_LEADER_EPOCH
    assert code(broker, read(orders, 1)) == E.INVALID_REQUEST
    assert code(broker, delete(NO_TOPIC)) == E.UNKNOWN_TOPIC_OR_PARTITION
    for version in (0, 1):
        assert code(broker, write(orders, state_epoch=4, leader_epoch=2), version) == E.FENCED_LEADER_EPOCH
        assert code(broker, write(orders, state_epoch=3, leader_epoch=3), version) == E.FENCED_STATE_EPOCH
        assert code(broker, write(orders, 1), version) == E.INVALID_REQUEST
        assert code(broker, summarize(NO_TOPIC), version) == E.UNKNOWN_TOPIC_OR_PARTITION


@serves(InitializeShareGroupStateRequest, E.NOT_COORDINATOR, versions=[0])
@serves(ReadShareGroupStateRequest, E.NOT_COORDINATOR, versions=[0])
@serves(WriteShareGroupStateRequest, E.NOT_COORDINATOR, versions=[0, 1])
@serves(DeleteShareGroupStateRequest, E.NOT_COORDINATOR, versions=[0])
@serves(ReadShareGroupStateSummaryRequest, E.NOT_COORDINATOR, versions=[0, 1])
def test_without_the_topic_nobody_keeps_states(broker: InProcessBroker) -> None:
    topic_id = broker.create_topic("orders")
    for request in (initialize(topic_id), read(topic_id), write(topic_id), delete(topic_id), summarize(topic_id)):
        last = 1 if isinstance(request, WriteShareGroupStateRequest | ReadShareGroupStateSummaryRequest) else 0
        for version in range(last + 1):
            assert codes(broker, request, version) == [(0, E.NOT_COORDINATOR)]


def test_a_request_about_nothing_has_an_empty_answer(broker: InProcessBroker, orders: bytes) -> None:
    for request in (read(orders), write(orders), delete(orders), summarize(orders)):
        topics = request.topics
        for group_id, asked in (
            ("", topics),
            ("workers", []),
            ("workers", [*topics, type(request).Topic(topic_id=orders, partitions=[])]),
        ):
            assert broker.ask(type(request)(group_id=group_id, topics=asked), 0).results == []


def test_states_outlive_a_restart_with_every_update(broker: InProcessBroker, orders: bytes) -> None:
    broker.ask(initialize(orders), 0)
    for first in range(0, 40, 4):
        broker.ask(write(orders, batches=[(first, first + 1, 2, 1)]), 1)
    before = broker.ask(read(orders), 0)
    broker.restart()
    broker.wait_until(lambda: code(broker, read(orders)) == E.NONE)
    assert broker.ask(read(orders), 0) == before


@pytest.mark.settings(share_coordinator_snapshot_update_records_per_snapshot=2)
def test_superseded_records_are_pruned(broker: InProcessBroker, orders: bytes) -> None:
    broker.ask(initialize(orders), 0)
    for first in range(0, 30, 4):
        broker.ask(write(orders, batches=[(first, first + 1, 2, 1)]), 1)
    before = broker.ask(read(orders), 0)
    index = state_partition(orders)
    log = broker.log(STATE, index)
    assert (log.log_start_offset, log.log_end_offset) == (0, 9)
    broker.advance(PRUNE_MS)
    broker.wait_until(lambda: log.log_start_offset == 6)
    stats = broker.server.components.share_coordinator.stats
    broker.wait_until(lambda: stats.pruned_offsets == {index: 6})
    broker.restart()
    broker.wait_until(lambda: code(broker, read(orders)) == E.NONE)
    assert broker.ask(read(orders), 0) == before


def test_a_state_that_nobody_changes_does_not_hold_the_log(broker: InProcessBroker, orders: bytes) -> None:
    broker.ask(initialize(orders), 0)
    log = broker.log(STATE, state_partition(orders))
    broker.advance(PRUNE_MS)
    broker.wait_until(lambda: log.log_end_offset == 2)
    broker.advance(PRUNE_MS)
    broker.wait_until(lambda: log.log_start_offset == 1)


def test_the_states_of_a_deleted_topic_are_deleted(broker: InProcessBroker, orders: bytes) -> None:
    broker.ask(initialize(orders, 0, 1, 2), 0)
    shares = broker.server.components.share_coordinator.shares
    assert sum(len(one.shard.image.by_key) for one in shares.all()) == 3
    topics = [DeleteTopicsRequest.Topic(name="orders", topic_id=bytes(16))]
    broker.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)
    broker.wait_until(lambda: not any(one.shard.image.by_key for one in shares.all()))


def test_writes_are_counted_and_timed(broker: InProcessBroker, orders: bytes) -> None:
    broker.ask(initialize(orders), 0)
    broker.ask(write(orders), 1)
    broker.ask(read(orders, leader_epoch=1), 0)
    stats = broker.server.components.share_coordinator.stats
    assert stats.writes == 2
