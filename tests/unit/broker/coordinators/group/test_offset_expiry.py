"""Offsets that nobody needs any more: when their retention is over, what is kept, what goes with them (facts 8.7)."""

import pytest

from broker.coordinators.group import expiry
from broker.coordinators.group.image import GroupMetadata
from broker.coordinators.group.records import group_record, offset_record
from broker.coordinators.group.requests import OffsetToCommit, Protocol
from protocol.errors import ErrorCode
from protocol.records.group_metadata import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupRecord,
)
from tests.support.group_records import contents
from tests.support.group_shard import GroupHome, subscription

MINUTE_MS = 60_000
RETENTION_MS = 7 * 24 * 60 * MINUTE_MS
ORDERS_ID = bytes(15) + b"\x07"
NEW_ORDERS_ID = bytes(15) + b"\x08"
NONE = ErrorCode.NONE


@pytest.fixture
def home():
    return GroupHome()


def orders(offset, partition=0, **given):
    return OffsetToCommit("orders", partition, offset, **given)


def as_member(joined):
    return {"generation": joined.generation, "member_id": joined.member_id}


def keep_alive(home, joined, ms):
    """Let time pass with a member that shows itself."""
    while ms > 0:
        step_ms = min(9_000_000, ms)
        home.clock.advance(step_ms)
        ms -= step_ms
        assert home.commit(OffsetToCommit("heartbeats", 0, 1), **as_member(joined)) == [NONE]


# When ----------------------------------------------------------------------------------------------------------------


def test_a_simple_consumers_offset_expires_when_its_commit_is_as_old_as_the_retention(home):
    home.commit(orders(1))
    home.clock.advance(MINUTE_MS)
    home.commit(orders(2, 1))

    home.clock.advance(RETENTION_MS - MINUTE_MS - 1)
    home.expire()
    assert home.offsets() == {("orders", 0): 1, ("orders", 1): 2}

    home.clock.advance(1)
    home.expire()
    assert home.offsets() == {("orders", 1): 2}

    home.clock.advance(MINUTE_MS)
    home.expire()
    assert home.shard.describe("g1") is None
    assert home.events.of("offsets_expired") == [["g1", 1], ["g1", 1]]
    assert home.shard.stats.expired_offsets == 2


def test_a_new_commit_begins_the_time_anew(home):
    home.commit(orders(1))
    home.clock.advance(RETENTION_MS - 1)
    home.commit(orders(1))
    home.clock.advance(RETENTION_MS - 1)
    home.expire()

    assert home.offsets() == {("orders", 0): 1}


def test_the_offsets_of_an_emptied_group_expire_together_and_it_goes_with_them():
    home = GroupHome(max_session_timeout_ms=10**9)
    joined = home.settle("orders", session_timeout_ms=10_000_000)
    home.commit(orders(1), orders(2, 1), **as_member(joined))
    keep_alive(home, joined, RETENTION_MS * 2)
    home.leave(joined.member_id)

    home.clock.advance(RETENTION_MS - 1)
    home.expire()
    assert len(home.offsets()) == 3

    home.clock.advance(1)
    before = len(home.log)
    home.expire()

    assert home.state() == "Dead"
    written = [record for record, _ in home.log[before:]]
    assert all(record.value is None for record in written)
    assert [type(record.key) is GroupMetadataKey for record in written] == [False, False, False, True]
    assert home.events.of("group_removed") == [["g1", "it is empty and has no offsets"]]
    home.restart()
    assert contents(home.shard.image) == {}


def test_where_nobody_wrote_when_the_group_was_emptied_each_commits_own_time_counts(home):
    """As Kafka did before 2.1."""
    home.stands(
        group_record("g1", GroupMetadata(protocol_type="consumer", generation=4)),
        offset_record("g1", orders(1), home.clock.now_ms()),
        offset_record("g1", orders(2, 1), home.clock.now_ms() + MINUTE_MS),
    )

    home.clock.advance(RETENTION_MS)
    home.expire()

    assert home.offsets() == {("orders", 1): 2}


def test_a_group_that_never_had_a_member_keeps_offsets_by_their_commits(home):
    """Its record says when it was made, by somebody who was handed an id and never came back."""
    home.join(needs_known_id=True)
    home.clock.advance(MINUTE_MS)
    home.commit(orders(1))

    home.clock.advance(RETENTION_MS - 1)
    home.expire()
    assert home.offsets() == {("orders", 0): 1}

    home.clock.advance(1)
    home.expire()
    assert home.state() == "Dead"


def test_of_a_stable_group_of_consumers_only_offsets_of_topics_that_nobody_reads_expire():
    home = GroupHome(max_session_timeout_ms=10**9)
    joined = home.settle("orders", session_timeout_ms=10_000_000)
    home.commit(orders(1), OffsetToCommit("refunds", 0, 2), **as_member(joined))

    keep_alive(home, joined, RETENTION_MS)
    home.expire()

    assert home.offsets() == {("orders", 0): 1, ("heartbeats", 0): 1}
    assert home.state() == "Stable"


def test_offsets_of_a_stable_group_without_subscriptions_do_not_expire():
    home = GroupHome(max_session_timeout_ms=10**9)
    for given in ({"protocol_type": "connect"}, {"protocols": [Protocol("range", b"what is this")]}):
        group_id = str(given)
        joined = home.settle(group_id=group_id, session_timeout_ms=10**9, **given)
        home.commit(orders(1), group_id=group_id, **as_member(joined))
    home.clock.advance(RETENTION_MS)

    before = len(home.log)
    home.expire()

    assert len(home.log) == before


def test_nothing_expires_while_a_group_rebalances():
    home = GroupHome(max_session_timeout_ms=10**9)
    patient = {"session_timeout_ms": 10**9, "rebalance_timeout_ms": 10**9}
    joined = home.settle("orders", **patient)
    home.commit(OffsetToCommit("refunds", 0, 2), **as_member(joined))
    home.join(protocols=[Protocol("range", subscription("orders"))], **patient)

    home.clock.advance(RETENTION_MS)
    home.expire()
    assert home.state() == "PreparingRebalance"
    assert home.offsets() == {("refunds", 0): 2}

    home.join(joined.member_id, protocols=[Protocol("range", subscription("orders"))], **patient)
    home.expire()
    assert home.state() == "CompletingRebalance"
    assert home.offsets() == {("refunds", 0): 2}


def test_an_offset_with_a_time_of_its_own_expires_then_and_neither_before_nor_after(home):
    now_ms = home.clock.now_ms()
    home.commit(
        orders(1, 0, expire_timestamp=now_ms + 1_000),
        orders(2, 1, expire_timestamp=now_ms + 2 * RETENTION_MS),
        orders(3, 2),
    )

    home.clock.advance(999)
    home.expire()
    assert len(home.offsets()) == 3

    home.clock.advance(1)
    home.expire()
    assert home.offsets() == {("orders", 1): 2, ("orders", 2): 3}

    home.clock.advance(RETENTION_MS)
    home.expire()
    assert home.offsets() == {("orders", 1): 2}


def test_in_an_emptied_group_too_an_offsets_own_time_counts(home):
    joined = home.settle("orders")
    home.commit(orders(1), **as_member(joined))
    home.leave(joined.member_id)
    home.commit(orders(2, 1, expire_timestamp=home.clock.now_ms() + 2 * RETENTION_MS))

    home.clock.advance(RETENTION_MS)
    home.expire()

    assert home.offsets() == {("orders", 1): 2}
    assert home.state() == "Empty"


def test_a_retention_of_nothing_lets_go_at_once():
    home = GroupHome(offsets_retention_ms=0)
    home.commit(orders(1))

    home.expire()

    assert home.state() == "Dead"


# What is kept --------------------------------------------------------------------------------------------------------


def test_an_offset_is_kept_while_a_transaction_has_one_for_its_partition(home):
    joined = home.settle("orders")
    home.commit(orders(1), orders(2, 1), **as_member(joined))
    home.leave(joined.member_id)
    home.stands(offset_record("g1", orders(5), home.clock.now_ms()), producer_id=12)

    home.clock.advance(RETENTION_MS)
    home.expire()
    assert home.offsets() == {("orders", 0): 1}
    assert home.state() == "Empty"

    home.shard.replay_marker(12, commits=False)
    home.expire()
    assert home.state() == "Dead"


def test_a_group_with_nothing_but_an_open_transaction_is_kept(home):
    home.stands(
        group_record("g1", GroupMetadata(protocol_type="consumer", state_timestamp=home.clock.now_ms())),
        offset_record("g1", orders(5), home.clock.now_ms()),
        producer_id=12,
    )
    home.clock.advance(RETENTION_MS)

    home.expire()

    assert home.state() == "Empty"


def test_an_empty_group_without_offsets_goes_at_once(home):
    joined = home.settle("orders")
    home.leave(joined.member_id)

    home.expire()

    assert home.state() == "Dead"
    home.restart()
    assert home.state() == "Dead"


def test_a_group_that_somebody_is_in_stays_without_offsets(home):
    home.settle("orders")

    home.expire()

    assert home.state() == "Stable"


def test_groups_that_belong_to_another_protocol_are_not_touched(home):
    home.stands(
        GroupRecord(ConsumerGroupMetadataKey(group_id="g1"), ConsumerGroupMetadataValue(epoch=2), 0),
        offset_record("g1", orders(5), home.clock.now_ms()),
    )
    home.clock.advance(10 * RETENTION_MS)
    before = len(home.log)

    home.expire()

    assert len(home.log) == before
    assert home.offsets() == {("orders", 0): 5}


def test_a_commit_that_is_being_written_saves_what_it_is_for(home):
    home.commit(orders(1))
    home.clock.advance(RETENTION_MS)
    home.holds_writes = True
    home.commit(orders(2))

    home.expire()
    home.acknowledge()

    assert home.offsets() == {("orders", 0): 2}


def test_what_cannot_be_written_is_kept_and_tried_again(home):
    home.commit(orders(1))
    home.clock.advance(RETENTION_MS)
    home.holds_writes = True
    home.expire()

    home.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert home.offsets() == {("orders", 0): 1}
    assert home.events.of("write_failed") == [["g1", "what has expired of 1 groups", "KAFKA_STORAGE_ERROR"]]
    assert home.shard.stats.expired_offsets == 0

    home.expire()
    home.acknowledge()
    assert home.state() == "Dead"


# In pieces -----------------------------------------------------------------------------------------------------------


def test_many_groups_are_looked_at_in_pieces_and_a_piece_may_find_nothing(home):
    groups = 2 * expiry.OFFSETS_A_PIECE
    for number in range(groups):
        home.commit(orders(number), group_id=f"g{number}")
    pieces = list(home.shard.expire_offsets())
    assert len(pieces) == 2
    assert set(pieces) == {None}

    home.clock.advance(RETENTION_MS)
    pieces = list(home.shard.expire_offsets())

    assert max(len(piece.records) for piece in pieces if piece is not None) <= expiry.OFFSETS_A_PIECE
    home.write_all(pieces)
    assert contents(home.shard.image) == {}
    assert home.shard.stats.expired_offsets == groups


def test_a_group_with_many_offsets_goes_in_pieces_and_its_record_last(home):
    joined = home.settle("orders")
    offsets = [orders(number, number) for number in range(2 * expiry.OFFSETS_A_PIECE + 500)]
    home.commit(*offsets, **as_member(joined))
    home.leave(joined.member_id)
    home.clock.advance(RETENTION_MS)
    home.holds_writes = True

    home.expire()
    sizes = [len(change.records) for change in home.under_way]
    assert max(sizes) <= expiry.OFFSETS_A_PIECE
    assert sum(sizes) == len(offsets)
    # Should one of them fail, the others would have taken the group's record from what is left.
    home.acknowledge()
    assert home.state() == "Empty"

    home.expire()
    home.acknowledge()
    assert home.state() == "Dead"


def test_tombstones_of_absurdly_long_group_ids_fit_into_batches(home):
    group_id = "g" * 32_000
    home.commit(*(orders(number, number) for number in range(50)), group_id=group_id)
    home.clock.advance(RETENTION_MS)

    pieces = [piece for piece in home.shard.expire_offsets() if piece is not None]

    assert len(pieces) > 1
    assert max(len(piece.records) for piece in pieces) * len(group_id) < 1_000_000
    home.write_all(pieces)
    assert home.offsets(group_id) == {}


def test_whoever_commits_between_two_pieces_keeps_the_offset(home):
    home.commit(*(orders(number, number) for number in range(expiry.OFFSETS_A_PIECE + 1)))
    home.clock.advance(RETENTION_MS)
    pieces = home.shard.expire_offsets()
    home.write(next(pieces))
    (left,) = home.offsets()

    home.commit(orders(77, left[1]))
    home.write_all(pieces)

    assert home.offsets() == {left: 77}


# Deleted topics ------------------------------------------------------------------------------------------------------


def forget(home, **topics):
    return home.write_all(home.shard.forget_topics(topics))


def test_with_a_topic_the_offsets_of_every_group_for_it_go(home):
    for group_id in ("g1", "g2"):
        home.commit(orders(1, topic_id=ORDERS_ID), orders(2, 1), OffsetToCommit("refunds", 0, 3), group_id=group_id)

    forget(home, orders=ORDERS_ID)

    assert home.offsets("g1") == home.offsets("g2") == {("refunds", 0): 3}
    assert home.shard.stats.deleted_offsets == 4
    home.restart()
    assert home.offsets("g1") == {("refunds", 0): 3}


def test_they_go_from_stable_groups_and_those_of_other_protocols_too(home):
    joined = home.settle("orders")
    home.commit(orders(1), **as_member(joined))
    home.stands(
        GroupRecord(ConsumerGroupMetadataKey(group_id="g2"), ConsumerGroupMetadataValue(epoch=2), 0),
        offset_record("g2", orders(5), home.clock.now_ms()),
    )

    forget(home, orders=ORDERS_ID)

    assert home.offsets("g1") == home.offsets("g2") == {}
    assert home.state() == "Stable"


def test_what_was_committed_for_a_new_topic_of_the_same_name_stays(home):
    home.commit(orders(1, topic_id=ORDERS_ID), orders(2, 1, topic_id=NEW_ORDERS_ID))

    forget(home, orders=ORDERS_ID)

    assert home.offsets() == {("orders", 1): 2}


def test_what_is_being_committed_for_the_new_topic_stays(home):
    home.commit(orders(1, topic_id=ORDERS_ID), orders(1, 1, topic_id=ORDERS_ID))
    home.holds_writes = True
    home.commit(orders(2, topic_id=ORDERS_ID))
    home.commit(orders(3, topic_id=NEW_ORDERS_ID))

    forget(home, orders=ORDERS_ID)
    home.acknowledge()

    assert home.offsets() == {("orders", 0): 3}


def test_what_is_being_committed_for_the_deleted_topic_goes_with_it(home):
    home.holds_writes = True
    home.commit(orders(2, topic_id=ORDERS_ID), OffsetToCommit("refunds", 0, 3))

    forget(home, orders=ORDERS_ID)
    home.acknowledge()

    assert home.offsets() == {("refunds", 0): 3}


def test_what_transactions_have_written_for_the_topic_goes_with_it(home):
    home.commit(OffsetToCommit("refunds", 0, 3))
    home.stands(
        offset_record("g1", orders(5), 0), offset_record("g1", orders(6, 1, topic_id=NEW_ORDERS_ID), 0), producer_id=12
    )

    forget(home, orders=ORDERS_ID)
    home.shard.replay_marker(12, commits=True)

    assert home.offsets() == {("refunds", 0): 3, ("orders", 1): 6}


def test_tombstones_that_cannot_be_written_are_written_with_the_next_look_for_expired_offsets(home):
    home.commit(orders(1), OffsetToCommit("refunds", 0, 3))
    home.holds_writes = True
    forget(home, orders=ORDERS_ID)
    home.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert len(home.offsets()) == 2
    assert home.events.of("write_failed") == [["g1", "1 offsets of deleted topics", "KAFKA_STORAGE_ERROR"]]

    home.expire()
    home.acknowledge()

    assert home.offsets() == {("refunds", 0): 3}


def test_topics_are_forgotten_in_pieces(home):
    for number in range(2 * expiry.OFFSETS_A_PIECE):
        home.commit(orders(1), group_id=f"g{number}")
    home.commit(*(orders(number, number) for number in range(2 * expiry.OFFSETS_A_PIECE)))

    pieces = list(home.shard.forget_topics({"orders": ORDERS_ID}))

    assert len(pieces) >= 4
    assert max(len(piece.records) for piece in pieces if piece is not None) <= expiry.OFFSETS_A_PIECE
    home.write_all(pieces)
    assert contents(home.shard.image) == {}
