"""Expiry of offsets (KIP-211): when retention is over, which offsets are kept, which groups go with them."""

import pytest

from broker.coordinators.group import expiry
from broker.coordinators.group.image import GroupMetadata
from broker.coordinators.group.records import group_record, offset_record
from broker.coordinators.group.requests import OffsetToCommit, Protocol
from protocol.errors import ErrorCode
from protocol.records.group_metadata import (
    GroupMetadataKey,
    GroupRecord,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
)
from protocol.schema import NO_UUID
from tests.support.group_records import contents
from tests.unit.broker.coordinators.group.harness import G
from tests.unit.broker.coordinators.group.offsets_harness import SHOP, OffsetsHome, as_member

MINUTE_MS = 60_000
RETENTION_MS = 7 * 24 * 60 * MINUTE_MS
ORDERS_ID = bytes(15) + b"\x07"
NEW_ORDERS_ID = bytes(15) + b"\x08"
NONE = ErrorCode.NONE


@pytest.fixture
def home():
    return OffsetsHome()


def orders(offset, partition=0, **given):
    return OffsetToCommit("orders", partition, offset, **given)


def keep_alive(home, consumer, ms):
    """Let time pass with a member that shows itself."""
    while ms > 0:
        step_ms = min(9_000_000, ms)
        home.pass_ms(step_ms)
        ms -= step_ms
        assert home.commits(OffsetToCommit("heartbeats", 0, 1), **as_member(consumer)) == [NONE]


# When ----------------------------------------------------------------------------------------------------------------


def test_a_simple_consumers_offset_expires_when_its_commit_is_as_old_as_the_retention(home):
    home.commits(orders(1))
    home.pass_ms(MINUTE_MS)
    home.commits(orders(2, 1))

    home.pass_ms(RETENTION_MS - MINUTE_MS - 1)
    home.expires()
    assert home.offsets() == {("orders", 0): 1, ("orders", 1): 2}

    home.pass_ms(1)
    home.expires()
    assert home.offsets() == {("orders", 1): 2}

    home.pass_ms(MINUTE_MS)
    home.expires()
    assert home.shard.describe(G) is None
    assert home.events.named("offsets_expired") == [(G, 1), (G, 1)]
    assert home.shard.stats.expired_offsets == 2


def test_a_new_commit_begins_the_time_anew(home):
    home.commits(orders(1))
    home.pass_ms(RETENTION_MS - 1)
    home.commits(orders(1))
    home.pass_ms(RETENTION_MS - 1)
    home.expires()

    assert home.offsets() == {("orders", 0): 1}


def test_the_offsets_of_an_emptied_group_expire_together_and_it_goes_with_them():
    home = OffsetsHome(max_session_timeout_ms=10**9)
    consumer = home.settled("orders", session_timeout_ms=10_000_000)
    home.commits(orders(1), orders(2, 1), **as_member(consumer))
    keep_alive(home, consumer, RETENTION_MS * 2)
    consumer.leaves()

    home.pass_ms(RETENTION_MS - 1)
    home.expires()
    assert len(home.offsets()) == 3

    home.pass_ms(1)
    before = len(home.writer.log)
    home.expires()

    assert home.state() is None
    written = home.written(since=before)
    assert all(record.value is None for record in written)
    assert [type(record.key) is GroupMetadataKey for record in written] == [False, False, False, True]
    assert home.events.named("group_removed") == [(G, "it is empty and has no offsets")]
    home.restart()
    assert contents(home.shard.image) == {}


def test_what_a_topics_retention_waits_for_does_not_expire(home):
    home.archived_by = {("orders", G)}
    home.commits(orders(1), OffsetToCommit("payments", 0, 2))
    home.commits(orders(3, expire_timestamp=home.clock.now_ms() + 1), group_id="another")
    home.pass_ms(RETENTION_MS)
    home.expires()
    assert home.offsets() == {("orders", 0): 1}
    assert home.shard.describe("another") is None

    home.archived_by.clear()
    home.expires()
    assert home.shard.describe(G) is None


def test_an_emptied_group_that_a_topics_retention_waits_for_stays():
    home = OffsetsHome(max_session_timeout_ms=10**9)
    consumer = home.settled("orders", session_timeout_ms=10_000_000)
    home.archived_by = {("orders", G)}
    home.commits(orders(1), **as_member(consumer))
    consumer.leaves()
    home.pass_ms(2 * RETENTION_MS)
    home.expires()
    assert home.offsets() == {("orders", 0): 1}
    assert home.state() == "Empty"


def test_where_nobody_wrote_when_the_group_was_emptied_each_commits_own_time_counts(home):
    """As Kafka did before 2.1."""
    home.stands(
        group_record(G, GroupMetadata(protocol_type="consumer", generation=4)),
        offset_record(G, orders(1), home.clock.now_ms()),
        offset_record(G, orders(2, 1), home.clock.now_ms() + MINUTE_MS),
    )

    home.pass_ms(RETENTION_MS)
    home.expires()

    assert home.offsets() == {("orders", 1): 2}


def test_a_group_that_never_had_a_member_keeps_offsets_by_their_commits(home):
    """Its record says when it was made, by somebody who was handed an id and never came back."""
    home.member().asks_to_join()
    home.pass_ms(MINUTE_MS)
    home.commits(orders(1))

    home.pass_ms(RETENTION_MS - 1)
    home.expires()
    assert home.offsets() == {("orders", 0): 1}

    home.pass_ms(1)
    home.expires()
    assert home.state() is None


def test_of_a_stable_group_of_consumers_only_offsets_of_topics_that_nobody_reads_expire():
    home = OffsetsHome(max_session_timeout_ms=10**9)
    consumer = home.settled("orders", session_timeout_ms=10_000_000)
    home.commits(orders(1), OffsetToCommit("refunds", 0, 2), **as_member(consumer))

    keep_alive(home, consumer, RETENTION_MS)
    home.expires()

    assert home.offsets() == {("orders", 0): 1, ("heartbeats", 0): 1}
    assert home.state() == "Stable"


def test_offsets_of_a_stable_group_without_subscriptions_do_not_expire():
    home = OffsetsHome(max_session_timeout_ms=10**9)
    for given in ({"protocol_type": "connect"}, {"protocols": [Protocol("range", b"what is this")]}):
        group_id = str(given)
        consumer = home.settled(group_id=group_id, session_timeout_ms=10**9, **given)
        home.commits(orders(1), group_id=group_id, **as_member(consumer))
    home.pass_ms(RETENTION_MS)

    before = len(home.writer.log)
    home.expires()

    assert len(home.writer.log) == before


def test_nothing_expires_while_a_group_rebalances():
    home = OffsetsHome(max_session_timeout_ms=10**9)
    patient = {"session_timeout_ms": 10**9, "rebalance_timeout_ms": 10**9}
    consumer = home.settled("orders", **patient)
    home.commits(OffsetToCommit("refunds", 0, 2), **as_member(consumer))
    home.consumer("orders", **patient).parks()

    home.pass_ms(RETENTION_MS)
    home.expires()
    assert home.state() == "PreparingRebalance"
    assert home.offsets() == {("refunds", 0): 2}

    consumer.joins()
    home.expires()
    assert home.state() == "CompletingRebalance"
    assert home.offsets() == {("refunds", 0): 2}


def test_an_offset_with_a_time_of_its_own_expires_then_and_neither_before_nor_after(home):
    now_ms = home.clock.now_ms()
    home.commits(
        orders(1, 0, expire_timestamp=now_ms + 1_000),
        orders(2, 1, expire_timestamp=now_ms + 2 * RETENTION_MS),
        orders(3, 2),
    )

    home.pass_ms(999)
    home.expires()
    assert len(home.offsets()) == 3

    home.pass_ms(1)
    home.expires()
    assert home.offsets() == {("orders", 1): 2, ("orders", 2): 3}

    home.pass_ms(RETENTION_MS)
    home.expires()
    assert home.offsets() == {("orders", 1): 2}


def test_in_an_emptied_group_too_an_offsets_own_time_counts(home):
    consumer = home.settled("orders")
    home.commits(orders(1), **as_member(consumer))
    consumer.leaves()
    home.commits(orders(2, 1, expire_timestamp=home.clock.now_ms() + 2 * RETENTION_MS))

    home.pass_ms(RETENTION_MS)
    home.expires()

    assert home.offsets() == {("orders", 1): 2}
    assert home.state() == "Empty"


def test_a_retention_of_nothing_lets_go_at_once():
    home = OffsetsHome(offsets_retention_ms=0)
    home.commits(orders(1))

    home.expires()

    assert home.state() is None


# What is kept --------------------------------------------------------------------------------------------------------


def test_an_offset_is_kept_while_a_transaction_has_one_for_its_partition(home):
    consumer = home.settled("orders")
    home.commits(orders(1), orders(2, 1), **as_member(consumer))
    consumer.leaves()
    home.stands(offset_record(G, orders(5), home.clock.now_ms()), producer_id=12)

    home.pass_ms(RETENTION_MS)
    home.expires()
    assert home.offsets() == {("orders", 0): 1}
    assert home.state() == "Empty"

    home.shard.replay_marker(12, commits=False)
    home.expires()
    assert home.state() is None


def test_a_group_with_nothing_but_an_open_transaction_is_kept(home):
    home.stands(
        group_record(G, GroupMetadata(protocol_type="consumer", state_timestamp=home.clock.now_ms())),
        offset_record(G, orders(5), home.clock.now_ms()),
        producer_id=12,
    )
    home.pass_ms(RETENTION_MS)

    home.expires()

    assert home.state() == "Empty"


def test_an_empty_group_without_offsets_goes_at_once(home):
    consumer = home.settled("orders")
    consumer.leaves()

    home.expires()

    assert home.state() is None
    home.restart()
    assert home.state() is None


def loses_its_offset(home):
    home.deletes_offsets(("orders", 0))


def loses_its_topic(home):
    home.forgets(orders=NO_UUID)


def loses_its_transaction(home):
    home.deletes_offsets(("orders", 0))
    home.commits(orders(2), transaction=SHOP)
    home.ends(SHOP.producer_id, commits=False)


@pytest.mark.parametrize("loses", [loses_its_offset, loses_its_topic, loses_its_transaction])
def test_a_simple_group_without_offsets_is_there_until_the_next_look(home, loses):
    home.commits(orders(1))
    loses(home)
    assert (home.state(), home.offsets()) == ("Empty", {})
    home.restart()
    assert home.state() == "Empty"

    home.expires()
    assert home.state() is None
    assert home.events.named("group_removed") == [(G, "it is empty and has no offsets")]
    home.restart()
    assert home.state() is None


def test_a_group_that_somebody_is_in_stays_without_offsets(home):
    home.settled("orders")

    home.expires()

    assert home.state() == "Stable"


def test_a_streams_group_without_members_goes_with_its_last_offset(home):
    home.stands(
        GroupRecord(StreamsGroupMetadataKey(group_id=G), StreamsGroupMetadataValue(epoch=2, metadata_hash=0), 0),
        offset_record(G, orders(5), home.clock.now_ms()),
    )
    home.pass_ms(10 * RETENTION_MS)

    home.expires()

    assert home.offsets() == {}
    assert home.shard.kind_of(G) is None


@pytest.mark.parametrize("is_late", [False, True])
def test_a_commit_that_is_being_written_saves_what_it_is_for(home, is_late):
    home.commits(orders(1))
    home.pass_ms(RETENTION_MS)
    home.writer.hold()
    home.commits(orders(2))
    if is_late:
        home.writer.time_out()

    home.expires()
    home.writer.settle()

    assert home.offsets() == {("orders", 0): 2}


def test_what_cannot_be_written_is_kept_and_tried_again(home):
    home.commits(orders(1))
    home.pass_ms(RETENTION_MS)
    home.writer.hold()
    home.expires()

    home.fails(ErrorCode.KAFKA_STORAGE_ERROR)
    assert home.offsets() == {("orders", 0): 1}
    assert home.events.named("write_failed") == [(G, "what has expired of 1 group", "KAFKA_STORAGE_ERROR")]
    assert home.shard.stats.expired_offsets == 0

    home.expires()
    home.writer.settle()
    assert home.state() is None


# In pieces -----------------------------------------------------------------------------------------------------------


def test_many_groups_are_looked_at_in_pieces_and_a_piece_may_find_nothing(home):
    groups = 2 * expiry.OFFSETS_A_PIECE
    for number in range(groups):
        home.commits(orders(number), group_id=f"g{number}")
    pieces = list(home.shard.expire_offsets())
    assert len(pieces) == 2
    assert set(pieces) == {None}

    home.pass_ms(RETENTION_MS)
    pieces = list(home.shard.expire_offsets())

    # Each group has the tombstone of its offset and its own.
    assert max(len(piece.records) for piece in pieces if piece is not None) <= 2 * expiry.OFFSETS_A_PIECE
    home.writes_all(pieces)
    assert contents(home.shard.image) == {}
    assert home.shard.stats.expired_offsets == groups


def test_a_group_with_many_offsets_goes_in_pieces_and_its_record_last(home):
    consumer = home.settled("orders")
    offsets = [orders(number, number) for number in range(2 * expiry.OFFSETS_A_PIECE + 500)]
    home.commits(*offsets, **as_member(consumer))
    consumer.leaves()
    home.pass_ms(RETENTION_MS)
    home.writer.hold()

    home.expires()
    sizes = [len(records) for records in home.batches_under_way()]
    assert max(sizes) <= expiry.OFFSETS_A_PIECE
    assert sum(sizes) == len(offsets)
    # Should one of them fail, the others would have taken the group's record from what is left.
    home.writer.settle()
    assert home.state() == "Empty"

    home.expires()
    home.writer.settle()
    assert home.state() is None


def test_tombstones_of_absurdly_long_group_ids_fit_into_batches(home):
    group_id = "g" * 32_000
    home.commits(*(orders(number, number) for number in range(50)), group_id=group_id)
    home.pass_ms(RETENTION_MS)

    pieces = [piece for piece in home.shard.expire_offsets() if piece is not None]

    assert len(pieces) > 1
    assert max(len(piece.records) for piece in pieces) * len(group_id) < 1_000_000
    home.writes_all(pieces)
    assert home.offsets(group_id) == {}


def test_whoever_commits_between_two_pieces_keeps_the_offset(home):
    home.commits(*(orders(number, number) for number in range(expiry.OFFSETS_A_PIECE + 1)))
    home.pass_ms(RETENTION_MS)
    pieces = home.shard.expire_offsets()
    home.writer.append(next(pieces))
    (left,) = home.offsets()

    home.commits(orders(77, left[1]))
    home.writes_all(pieces)

    assert home.offsets() == {left: 77}


# Deleted topics ------------------------------------------------------------------------------------------------------


def test_with_a_topic_the_offsets_of_every_group_for_it_go(home):
    for group_id in (G, "g2"):
        home.commits(orders(1, topic_id=ORDERS_ID), orders(2, 1), OffsetToCommit("refunds", 0, 3), group_id=group_id)

    home.forgets(orders=ORDERS_ID)

    assert home.offsets(G) == home.offsets("g2") == {("refunds", 0): 3}
    assert home.shard.stats.deleted_offsets == 0, "Kafka counts those that are asked for"
    home.restart()
    assert home.offsets(G) == {("refunds", 0): 3}


def test_they_go_from_stable_groups_and_those_of_other_protocols_too(home):
    consumer = home.settled("orders")
    home.commits(orders(1), **as_member(consumer))
    home.stands(
        GroupRecord(StreamsGroupMetadataKey(group_id="g2"), StreamsGroupMetadataValue(epoch=2, metadata_hash=0), 0),
        offset_record("g2", orders(5), home.clock.now_ms()),
    )

    home.forgets(orders=ORDERS_ID)

    assert home.offsets(G) == home.offsets("g2") == {}
    assert home.state() == "Stable"


def test_what_was_committed_for_a_new_topic_of_the_same_name_stays(home):
    home.commits(orders(1, topic_id=ORDERS_ID), orders(2, 1, topic_id=NEW_ORDERS_ID))

    home.forgets(orders=ORDERS_ID)

    assert home.offsets() == {("orders", 1): 2}


def test_what_is_being_committed_for_the_new_topic_stays(home):
    home.commits(orders(1, topic_id=ORDERS_ID), orders(1, 1, topic_id=ORDERS_ID))
    home.writer.hold()
    home.commits(orders(2, topic_id=ORDERS_ID))
    home.commits(orders(3, topic_id=NEW_ORDERS_ID))

    home.forgets(orders=ORDERS_ID)
    home.writer.settle()

    assert home.offsets() == {("orders", 0): 3}


@pytest.mark.parametrize("is_late", [False, True])
def test_what_is_being_committed_for_the_deleted_topic_goes_with_it(home, is_late):
    home.writer.hold()
    home.commits(orders(2, topic_id=ORDERS_ID), OffsetToCommit("refunds", 0, 3))
    if is_late:
        home.writer.time_out()

    home.forgets(orders=ORDERS_ID)
    home.writer.settle()

    assert home.offsets() == {("refunds", 0): 3}


def test_what_transactions_have_written_for_the_topic_goes_with_it(home):
    home.commits(OffsetToCommit("refunds", 0, 3))
    home.stands(
        offset_record(G, orders(5), 0), offset_record(G, orders(6, 1, topic_id=NEW_ORDERS_ID), 0), producer_id=12
    )

    home.forgets(orders=ORDERS_ID)
    home.shard.replay_marker(12, commits=True)

    assert home.offsets() == {("refunds", 0): 3, ("orders", 1): 6}


def test_tombstones_that_cannot_be_written_are_written_with_the_next_look_for_expired_offsets(home):
    home.commits(orders(1), OffsetToCommit("refunds", 0, 3))
    home.writer.hold()
    home.forgets(orders=ORDERS_ID)
    home.fails(ErrorCode.KAFKA_STORAGE_ERROR)
    assert len(home.offsets()) == 2
    assert home.events.named("write_failed") == [(G, "1 offset of deleted topics", "KAFKA_STORAGE_ERROR")]

    home.expires()
    home.writer.settle()

    assert home.offsets() == {("refunds", 0): 3}


def test_topics_are_forgotten_in_pieces(home):
    for number in range(2 * expiry.OFFSETS_A_PIECE):
        home.commits(orders(1), group_id=f"g{number}")
    home.commits(*(orders(number, number) for number in range(2 * expiry.OFFSETS_A_PIECE)))

    pieces = list(home.shard.forget_topics({"orders": ORDERS_ID}))

    assert len(pieces) >= 4
    assert max(len(piece.records) for piece in pieces if piece is not None) <= expiry.OFFSETS_A_PIECE
    home.writes_all(pieces)
    assert contents(home.shard.image) == {}
