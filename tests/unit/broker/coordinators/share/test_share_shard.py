"""ShareShard: what is written of a share partition, and who is refused. As seen on Kafka 4.4.0."""

import pytest

from broker.coordinators.share.persister import NO_START_OFFSET, NOT_COUNTED, ShareState, StateBatch
from broker.coordinators.share.records import decode, encode
from broker.coordinators.share.requests import Delete, Initialize, Read, Resnapshot, Summarize
from protocol.errors import ErrorCode as E
from protocol.primitives import Malformed
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareStateRecord,
    ShareUpdateKey,
    ShareUpdateValue,
)
from protocol.records.share_state import StateBatch as StoredBatch
from tests.unit.broker.coordinators.share.harness import COLD_MS, KEY, PARTITIONS, TOPIC, Exchange

ACKNOWLEDGED = 2


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()


def kinds(exchange: Exchange) -> list[str]:
    return [
        "tombstone" if record.value is None else type(record.value).__name__.removeprefix("Share").removesuffix("Value")
        for record in exchange.records
    ]


# Initialising


def test_a_new_state_begins_where_it_is_told_to(exchange: Exchange) -> None:
    assert exchange.initialize(7, state_epoch=3) is E.NONE
    assert exchange.read() == ShareState(3, 0, 7, NOT_COUNTED, ())
    assert exchange.summary() == ShareState(3, 0, 7, 0, ())
    (record,) = exchange.records
    now_ms = exchange.clock.now_ms()
    assert record == ShareStateRecord(
        ShareSnapshotKey(group_id="workers", topic_id=TOPIC, partition=0),
        ShareSnapshotValue(
            snapshot_epoch=0,
            state_epoch=3,
            leader_epoch=0,
            start_offset=7,
            delivery_complete_count=0,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
            state_batches=[],
        ),
        0,
    )


def test_without_a_start_offset_nothing_is_counted(exchange: Exchange) -> None:
    exchange.initialize(NO_START_OFFSET)
    assert exchange.summary() == ShareState(1, 0, NO_START_OFFSET, NOT_COUNTED, ())


def test_a_state_is_begun_anew_with_a_higher_or_the_same_epoch(exchange: Exchange) -> None:
    exchange.initialize(0, state_epoch=3)
    exchange.write(StateBatch(0, 9, ACKNOWLEDGED, 1), state_epoch=3)
    assert exchange.initialize(5, state_epoch=2) is E.FENCED_STATE_EPOCH
    assert exchange.initialize(5, state_epoch=3) is E.NONE
    assert exchange.read() == ShareState(3, 0, 5, NOT_COUNTED, ())
    assert [record.value.snapshot_epoch for record in exchange.records if record.value] == [0, 0, 1]


def test_a_new_beginning_does_not_let_old_leaders_in_again(exchange: Exchange) -> None:
    exchange.initialize()
    exchange.read(leader_epoch=5)
    exchange.initialize(state_epoch=2)
    assert exchange.code(Read(KEY, 4)) is E.FENCED_LEADER_EPOCH
    assert exchange.write(leader_epoch=4, state_epoch=2) is E.FENCED_LEADER_EPOCH
    assert exchange.write(leader_epoch=5, state_epoch=2) is E.NONE


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (Initialize(KEY, -1, 0), E.INVALID_REQUEST),
        (Initialize(KEY._replace(partition=-1), 0, 0), E.INVALID_REQUEST),
        (Initialize(KEY._replace(partition=PARTITIONS), 0, 0), E.UNKNOWN_TOPIC_OR_PARTITION),
        (Initialize(KEY._replace(topic_id=bytes(16)), 0, 0), E.UNKNOWN_TOPIC_OR_PARTITION),
        (Read(KEY, 0), E.INVALID_REQUEST),
        (Read(KEY, -1), E.INVALID_REQUEST),
        (Read(KEY._replace(partition=-1), 0), E.INVALID_REQUEST),
        (Delete(KEY), E.NONE),
        (Delete(KEY._replace(partition=PARTITIONS)), E.UNKNOWN_TOPIC_OR_PARTITION),
        (Summarize(KEY, 0), E.NONE),
        (Summarize(KEY._replace(partition=PARTITIONS), 0), E.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_asked_of_no_state(
    exchange: Exchange, request_: Initialize | Read | Delete | Summarize, code: E
) -> None:
    assert exchange.code(request_) is code
    assert exchange.log == []


def test_the_summary_of_no_state_knows_nothing(exchange: Exchange) -> None:
    assert exchange.summary() == ShareState(0, 0, NO_START_OFFSET, NOT_COUNTED, ())


# Reading


def test_a_new_leader_is_remembered(exchange: Exchange) -> None:
    exchange.initialize()
    exchange.read(leader_epoch=0)
    assert kinds(exchange) == ["Snapshot"], "a new state has the leader epoch 0"
    exchange.read(leader_epoch=4)
    exchange.read(leader_epoch=4)
    assert kinds(exchange) == ["Snapshot", "Update"]
    assert exchange.code(Read(KEY, 3)) is E.FENCED_LEADER_EPOCH
    assert exchange.summary().leader_epoch == 4


def test_reading_for_a_new_leader_keeps_what_is_stored(exchange: Exchange) -> None:
    exchange.initialize()
    exchange.write(StateBatch(3, 4, ACKNOWLEDGED, 1), start_offset=2, count=2)
    assert exchange.read(leader_epoch=1) == ShareState(1, 1, 2, NOT_COUNTED, (StateBatch(3, 4, ACKNOWLEDGED, 1),))
    assert exchange.summary() == ShareState(1, 1, 2, 2, ())
    assert exchange.read(leader_epoch=1).batches == (StateBatch(3, 4, ACKNOWLEDGED, 1),)


# Writing


def test_only_what_is_initialised_is_written(exchange: Exchange) -> None:
    assert exchange.write(StateBatch(0, 9, ACKNOWLEDGED, 1)) is E.INVALID_REQUEST
    exchange.initialize()
    assert exchange.write(StateBatch(0, 9, ACKNOWLEDGED, 1)) is E.NONE
    assert exchange.stats.writes == 2


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"leader_epoch": -1}, E.INVALID_REQUEST),
        ({"state_epoch": -1}, E.INVALID_REQUEST),
        ({"state_epoch": 0}, E.FENCED_STATE_EPOCH),
        ({"leader_epoch": 1}, E.FENCED_LEADER_EPOCH),
        ({"key": KEY._replace(partition=-1)}, E.INVALID_REQUEST),
    ],
)
def test_writes_that_are_refused(exchange: Exchange, fields: dict[str, int], code: E) -> None:
    exchange.initialize()
    exchange.read(leader_epoch=2)
    before = len(exchange.log)
    assert exchange.write(StateBatch(0, 9, ACKNOWLEDGED, 1), **{"leader_epoch": 2, **fields}) is code  # type: ignore[arg-type]
    assert len(exchange.log) == before


@pytest.mark.parametrize(("first", "last"), [(5, 4), (-1, 4)])
def test_a_batch_of_no_offsets_is_refused(exchange: Exchange, first: int, last: int) -> None:
    exchange.initialize()
    assert exchange.write(StateBatch(0, 1, ACKNOWLEDGED, 1), StateBatch(first, last, 2, 1)) is E.INVALID_REQUEST


def test_a_topic_that_is_gone_is_not_written(exchange: Exchange) -> None:
    exchange.initialize()
    exchange.topics.clear()
    assert exchange.write(StateBatch(0, 9, ACKNOWLEDGED, 1)) is E.UNKNOWN_TOPIC_OR_PARTITION


def test_updates_add_up_until_a_snapshot_is_due(exchange: Exchange) -> None:
    exchange.initialize()
    for first in (0, 10, 20, 30, 40):
        exchange.write(StateBatch(first, first + 4, ACKNOWLEDGED, 1))
    assert kinds(exchange) == ["Snapshot", "Update", "Update", "Update", "Snapshot", "Update"]
    assert exchange.records[1].key == ShareUpdateKey(group_id="workers", topic_id=TOPIC, partition=0)
    assert exchange.records[1].value == ShareUpdateValue(
        snapshot_epoch=0,
        leader_epoch=0,
        start_offset=0,
        delivery_complete_count=0,
        state_batches=[StoredBatch(first_offset=0, last_offset=4, delivery_state=2, delivery_count=1)],
    )
    snapshot = exchange.records[4].value
    assert isinstance(snapshot, ShareSnapshotValue)
    assert snapshot.snapshot_epoch == 1
    assert [batch.first_offset for batch in snapshot.state_batches] == [0, 10, 20, 30]
    assert [batch.first_offset for batch in exchange.read().batches] == [0, 10, 20, 30, 40]


def test_the_start_offset_never_goes_back(exchange: Exchange) -> None:
    exchange.initialize(10)
    exchange.write(StateBatch(25, 29, ACKNOWLEDGED, 1), start_offset=20, count=5)
    exchange.write(start_offset=15, count=9)
    assert exchange.summary() == ShareState(1, 0, 20, 5, ())
    exchange.write(start_offset=20, count=3)
    assert exchange.summary().delivery_complete_count == 5, "the same start offset: the greater count"
    exchange.write(start_offset=27, count=3)
    assert exchange.read().batches == (StateBatch(27, 29, ACKNOWLEDGED, 1),)
    assert exchange.summary().delivery_complete_count == 3


# One after the other


def test_a_request_waits_for_the_record_before_it(exchange: Exchange) -> None:
    exchange.initialize()
    exchange.holds = True
    assert exchange.ask(Read(KEY, 7)) is None
    assert exchange.ask(exchange.to_write(leader_epoch=6)) is None
    other = KEY._replace(partition=1)
    assert exchange.ask(Initialize(other, 1, 0)) is None
    assert len(exchange.held) == 2, "another share partition waits for nobody"
    exchange.acknowledge()
    assert [answer.code for answer in exchange.answers[1:]] == [E.NONE, E.FENCED_LEADER_EPOCH, E.NONE]


def test_a_failed_write_changes_nothing_and_lets_the_next_one_pass(exchange: Exchange) -> None:
    exchange.initialize()
    exchange.holds = True
    exchange.ask(Read(KEY, 7))
    exchange.ask(Read(KEY, 6))
    exchange.fail(E.NOT_ENOUGH_REPLICAS)
    exchange.acknowledge()
    assert [answer.code for answer in exchange.answers[1:]] == [E.COORDINATOR_NOT_AVAILABLE, E.NONE]
    assert exchange.summary().leader_epoch == 6


def test_a_late_record_holds_the_next_request_back(exchange: Exchange) -> None:
    exchange.initialize()
    exchange.holds = True
    exchange.ask(Read(KEY, 7))
    exchange.ask(Read(KEY, 6))
    (result,) = exchange.held
    assert result.late is not None
    result.late()
    assert [answer.code for answer in exchange.answers[1:]] == [E.COORDINATOR_NOT_AVAILABLE]
    exchange.acknowledge()
    assert [answer.code for answer in exchange.answers[1:]] == [E.COORDINATOR_NOT_AVAILABLE, E.FENCED_LEADER_EPOCH]


def test_what_waits_is_answered_when_the_coordinator_goes(exchange: Exchange) -> None:
    exchange.initialize()
    exchange.holds = True
    for epoch in range(3, 2_003):
        exchange.ask(Read(KEY, epoch))
    exchange.shard.unload(E.NOT_COORDINATOR)
    exchange.fail(E.NOT_COORDINATOR)
    assert [answer.code for answer in exchange.answers[1:]] == [E.NOT_COORDINATOR] * 2_000


# Deleting, cold snapshots, what may be pruned


def test_a_deleted_state_is_as_if_it_had_never_been(exchange: Exchange) -> None:
    exchange.initialize(state_epoch=9)
    exchange.read(leader_epoch=5)
    assert exchange.delete() is E.NONE
    assert kinds(exchange)[-1] == "tombstone"
    assert exchange.code(Read(KEY, 5)) is E.INVALID_REQUEST
    assert exchange.initialize(state_epoch=0) is E.NONE


def test_the_states_of_a_deleted_topic_are_deleted(exchange: Exchange) -> None:
    other = bytes(16)
    exchange.topics[other] = 1
    exchange.initialize()
    exchange.initialize(key=KEY._replace(partition=2))
    exchange.initialize(key=KEY._replace(topic_id=other))
    del exchange.topics[TOPIC]
    assert list(exchange.shard.forget_topics({TOPIC})) == [None, None]
    assert [key.topic_id for key in exchange.shard.image.by_key] == [other]


def test_an_old_snapshot_is_written_again(exchange: Exchange) -> None:
    exchange.initialize(3)
    exchange.write(StateBatch(3, 4, ACKNOWLEDGED, 1), start_offset=3)
    exchange.clock.advance(COLD_MS - 1)
    list(exchange.shard.snapshot_cold())
    assert kinds(exchange) == ["Snapshot", "Update"]
    exchange.clock.advance(1)
    list(exchange.shard.snapshot_cold())
    assert kinds(exchange) == ["Snapshot", "Update", "Snapshot"]
    assert exchange.read().batches == (StateBatch(3, 4, ACKNOWLEDGED, 1),)
    exchange.clock.advance(COLD_MS)
    list(exchange.shard.snapshot_cold())
    assert len(exchange.log) == 3, "all snapshots were cold: nothing would be gained"


def test_a_state_that_has_gone_meanwhile_has_no_cold_snapshot(exchange: Exchange) -> None:
    assert exchange.code(Resnapshot(KEY)) is E.NONE
    assert exchange.log == []


def test_what_is_before_the_oldest_last_snapshot_is_superseded(exchange: Exchange) -> None:
    other = KEY._replace(partition=1)
    assert exchange.shard.image.needed_since == 0
    exchange.initialize()
    exchange.initialize(key=other)
    exchange.write()
    exchange.initialize(state_epoch=2)
    assert exchange.shard.image.needed_since == 1
    exchange.delete(key=other)
    assert exchange.shard.image.needed_since == 3
    exchange.delete()
    assert exchange.shard.image.needed_since == 5


# Records


def test_an_update_without_its_snapshot_is_all_that_is_known(exchange: Exchange) -> None:
    exchange.initialize(3)
    exchange.write(StateBatch(5, 6, ACKNOWLEDGED, 1), start_offset=4, count=2)
    image = exchange.replayed(since=1)
    state = image.by_key[KEY]
    assert (state.state_epoch, state.start_offset, state.delivery_complete_count) == (0, 4, 2)
    assert state.batches == (StateBatch(5, 6, ACKNOWLEDGED, 1),)


def test_records_of_other_types_are_left_alone(exchange: Exchange) -> None:
    unknown = UnknownRecord(9, b"\0\x09", b"")
    exchange.shard.replay(unknown, offset=0)
    assert exchange.shard.image.by_key == {}


def test_a_record_with_a_batch_of_no_offsets_is_corrupt() -> None:
    batch = StoredBatch(first_offset=5, last_offset=4, delivery_state=0, delivery_count=0)
    value = ShareUpdateValue(snapshot_epoch=0, leader_epoch=0, start_offset=0, state_batches=[batch])
    key = ShareUpdateKey(group_id="g", topic_id=TOPIC, partition=0)
    with pytest.raises(Malformed):
        decode(*encode(ShareStateRecord(key, value, 0)))
