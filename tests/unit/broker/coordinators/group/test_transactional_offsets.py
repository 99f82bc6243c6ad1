"""Offsets that producers commit in their transactions: which commits are accepted, and when the offsets count."""

import pytest

from broker.coordinators.group.requests import OffsetToCommit
from broker.coordinators.result import ProducerIdAndEpoch
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.group.harness import Coordinator, G
from tests.unit.broker.coordinators.group.offsets_harness import SHOP, OffsetsHome, as_member
from tests.unit.broker.coordinators.group.test_commit_check import STATES, group_in

NONE = ErrorCode.NONE
BANK = ProducerIdAndEpoch(13, 5)
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def home():
    return OffsetsHome(offsets_retention_ms=7 * DAY_MS)


def orders(offset, partition=0, **more):
    return OffsetToCommit("orders", partition, offset, **more)


def stable(home):
    """What a consumer that requires stable offsets reads of partition 0: an offset, or an error."""
    [found] = home.fetch(("orders", 0), require_stable=True)
    if found.error is not NONE:
        return found.error
    return None if found.committed is None else found.committed.offset


# Which commits are accepted: asked of a running Kafka 4.4.0. ---------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_a_producer_that_names_no_member_may_commit_in_every_state(state):
    groups = Coordinator()
    group_in(groups, state)

    assert groups.commit(7, transaction=SHOP) is NONE


@pytest.mark.parametrize("state", STATES[1:])
def test_a_producer_commits_for_a_member_even_while_the_member_waits_for_its_assignment(state):
    groups = Coordinator()
    anna, bert = group_in(groups, state)

    assert anna.commits(7, transaction=SHOP) is NONE
    assert bert.commits(7, transaction=SHOP) is NONE
    assert bert.commits(7, transaction=SHOP, instance_id=None) is NONE


@pytest.mark.parametrize("state", STATES[1:])
def test_a_producer_that_names_a_member_must_name_a_member_of_this_generation(state):
    groups = Coordinator()
    anna, _ = group_in(groups, state)
    generation = groups.generation()

    for other in (-1, generation - 1, generation + 1):
        assert anna.commits(7, transaction=SHOP, generation=other) is ErrorCode.ILLEGAL_GENERATION
    for member_id in ("", "a stranger"):
        code = groups.commit(7, transaction=SHOP, member_id=member_id, generation=generation)
        assert code is ErrorCode.UNKNOWN_MEMBER_ID
    assert anna.commits(7, transaction=SHOP, instance_id="shop 2") is ErrorCode.UNKNOWN_MEMBER_ID
    assert anna.commits(7, transaction=SHOP, instance_id="shop 1") is ErrorCode.FENCED_INSTANCE_ID
    assert groups.commit(7, transaction=SHOP, instance_id="shop 1") is ErrorCode.FENCED_INSTANCE_ID
    assert groups.shard.image.pending.partitions(G) == []


def test_a_generation_of_an_empty_group_is_refused(home):
    home.commits(orders(1))

    assert home.commits(orders(2), transaction=SHOP, generation=0) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert home.commits(orders(2), transaction=SHOP, generation=-2, member_id="a stranger") == [NONE]


def test_a_group_that_does_not_exist_is_made_by_a_commit_without_a_generation(home):
    refused = home.commits(orders(2), transaction=SHOP, generation=3, unknown_group_error=ErrorCode.ILLEGAL_GENERATION)
    assert refused == [ErrorCode.ILLEGAL_GENERATION]
    assert home.commits(orders(2), transaction=SHOP, generation=3) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert home.state() is None

    assert home.commits(orders(2), transaction=SHOP) == [NONE]

    assert home.state() == "Empty"
    assert [listed.group_id for listed in home.shard.list()] == [G]


def test_metadata_that_is_too_long_is_refused_alone(home):
    long = orders(2, 1, metadata="x" * 4097)

    assert home.commits(orders(1), long, transaction=SHOP) == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    home.ends(12, commits=True)

    assert home.offsets() == {("orders", 0): 1}


def test_a_commit_in_a_transaction_keeps_no_member_alive():
    groups = Coordinator()
    anna = groups.member("anna")
    anna.joins()
    anna.brings({anna: b"0"})
    groups.pass_ms(9_999)

    assert anna.commits(7, transaction=SHOP) is NONE
    groups.pass_ms(1)

    assert groups.state() == "Empty"


# When offsets count --------------------------------------------------------------------------------------------------


def test_offsets_count_when_their_transaction_commits(home):
    home.commits(orders(10))
    assert home.commits(orders(20), orders(21, 1), transaction=SHOP) == [NONE, NONE]
    assert (home.offsets(), stable(home)) == ({("orders", 0): 10}, ErrorCode.UNSTABLE_OFFSET_COMMIT)

    assert home.ends(12, commits=True) == [NONE]

    assert (home.offsets(), stable(home)) == ({("orders", 0): 20, ("orders", 1): 21}, 20)
    home.check_replay()


def test_offsets_of_an_aborted_transaction_never_were(home):
    home.commits(orders(10))
    home.commits(orders(20), orders(21, 1), transaction=SHOP)

    home.ends(12, commits=False)

    assert (home.offsets(), stable(home)) == ({("orders", 0): 10}, 10)
    home.check_replay()


def test_a_group_with_nothing_but_an_aborted_transaction_is_there_until_the_next_look(home):
    home.commits(orders(20), transaction=SHOP)
    assert (home.state(), home.offsets(), stable(home)) == ("Empty", {}, ErrorCode.UNSTABLE_OFFSET_COMMIT)

    home.ends(12, commits=False)

    assert (home.state(), stable(home)) == ("Empty", None)
    home.expires()
    assert home.state() is None


def test_the_last_offset_of_a_transaction_is_the_one_that_counts(home):
    for offset in (20, 22, 21):
        home.commits(orders(offset), transaction=SHOP)
    home.ends(12, commits=True)

    assert home.offsets() == {("orders", 0): 21}


def test_a_commit_outside_of_the_transaction_counts_if_it_is_the_newer_one(home):
    home.commits(orders(30), transaction=SHOP)
    home.commits(orders(40))
    assert stable(home) is ErrorCode.UNSTABLE_OFFSET_COMMIT

    home.ends(12, commits=True)

    assert stable(home) == 40
    home.check_replay()


def test_of_two_producers_the_one_that_has_written_last_counts_whichever_ends_last(home):
    home.commits(orders(20), transaction=SHOP)
    home.commits(orders(30), transaction=BANK)

    home.ends(13, commits=True)
    assert (home.offsets(), stable(home)) == ({("orders", 0): 30}, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    home.ends(12, commits=True)

    assert (home.offsets(), stable(home)) == ({("orders", 0): 30}, 30)
    home.check_replay()


def test_a_marker_of_a_producer_that_has_committed_nothing_here_changes_nothing(home):
    home.commits(orders(20), transaction=SHOP)

    assert home.ends(99, commits=True) == [NONE]

    assert (home.offsets(), stable(home)) == ({}, ErrorCode.UNSTABLE_OFFSET_COMMIT)


# Records and markers under way ---------------------------------------------------------------------------------------


def test_offsets_that_cannot_be_written_are_not_pending(home):
    home.writer.fail()

    assert home.commits(orders(20), transaction=SHOP) == [ErrorCode.NOT_COORDINATOR]

    assert (home.state(), stable(home)) == (None, None)
    home.writer.recover()
    home.ends(12, commits=True)
    assert home.offsets() == {}


def test_a_marker_that_cannot_be_written_leaves_the_offsets_pending(home):
    home.commits(orders(20), transaction=SHOP)
    home.writer.fail()
    assert home.ends(12, commits=True) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert stable(home) is ErrorCode.UNSTABLE_OFFSET_COMMIT

    home.writer.recover()
    home.ends(12, commits=True)

    assert stable(home) == 20


def test_a_crash_between_the_offsets_and_the_marker_leaves_them_pending(home):
    home.commits(orders(10))
    home.commits(orders(20), transaction=SHOP)
    home.writer.hold()
    told = home.ends(12, commits=True)

    home.restart()
    home.writer.release()
    assert told == [ErrorCode.NOT_COORDINATOR]
    assert (home.offsets(), stable(home)) == ({("orders", 0): 10}, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    home.ends(12, commits=True)

    assert stable(home) == 20
    home.check_replay()


def test_after_a_crash_behind_the_marker_a_second_marker_changes_nothing(home):
    home.commits(orders(20), transaction=SHOP)
    home.writer.hold()
    home.ends(12, commits=True)

    home.restart(keeps_what_is_under_way=True)
    home.writer.release()
    assert stable(home) == 20
    home.commits(orders(30))
    home.ends(12, commits=True)

    assert stable(home) == 30
    home.check_replay()


def test_a_crash_before_the_offsets_are_acknowledged_leaves_them_to_the_marker(home):
    home.writer.hold()
    told = home.commits(orders(20), transaction=SHOP)

    home.restart(keeps_what_is_under_way=True)
    home.writer.release()

    assert told == [ErrorCode.NOT_COORDINATOR]
    assert stable(home) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    home.ends(12, commits=False)
    assert stable(home) is None


# Deletion and expiry -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed_before", [False, True])
def test_a_group_that_is_deleted_takes_its_pending_offsets_along(home, committed_before):
    if committed_before:
        home.commits(orders(10))
    home.commits(orders(20), transaction=SHOP)

    assert home.deletes() == [NONE]
    home.ends(12, commits=True)

    assert (home.state(), home.offsets(), stable(home)) == (None, {}, None)
    home.check_replay()


def test_an_offset_that_is_deleted_takes_the_pending_one_along(home):
    home.commits(orders(20), orders(21, 1), transaction=SHOP)

    assert home.deletes_offsets(("orders", 0)) == [(NONE, [NONE])]
    home.ends(12, commits=True)

    assert home.offsets() == {("orders", 1): 21}
    home.check_replay()


def test_an_offset_committed_again_in_the_transaction_behind_its_deletion_counts(home):
    home.commits(orders(20), transaction=SHOP)
    home.deletes_offsets(("orders", 0))
    home.commits(orders(21), transaction=SHOP)

    home.ends(12, commits=True)

    assert home.offsets() == {("orders", 0): 21}


def test_a_deletion_knows_of_offsets_that_are_just_being_written_in_a_transaction(home):
    home.writer.hold()
    home.commits(orders(20), transaction=SHOP)
    home.writer.settle_one()
    home.commits(orders(21, 1), transaction=SHOP)
    deleted = home.deletes()
    home.writer.release()

    home.ends(12, commits=True)

    assert deleted == [NONE]
    assert home.offsets() == {}


def test_a_deleted_topics_pending_offsets_are_forgotten(home):
    home.commits(orders(20), OffsetToCommit("stock", 0, 5), transaction=SHOP)

    home.forgets(orders=bytes(15) + b"\1")
    home.ends(12, commits=True)

    assert home.offsets() == {("stock", 0): 5}


def test_neither_offsets_nor_groups_expire_while_a_transaction_is_open(home):
    home.commits(orders(10))
    home.commits(orders(20), transaction=SHOP)
    home.pass_ms(8 * DAY_MS)

    home.expires()
    assert home.offsets() == {("orders", 0): 10}
    home.ends(12, commits=True)
    home.expires()

    assert home.offsets() == {}
    assert home.state() is None


def test_an_offset_that_a_transaction_has_committed_expires_from_its_commit_on(home):
    home.commits(orders(20), transaction=SHOP)
    home.pass_ms(DAY_MS)
    home.ends(12, commits=True)
    home.pass_ms(6 * DAY_MS - 1)

    home.expires()
    assert home.offsets() == {("orders", 0): 20}
    home.pass_ms(1)
    home.expires()

    assert home.offsets() == {}


def test_committed_offsets_are_counted_in_transactions_too(home):
    consumer = home.settled("orders")
    home.commits(orders(20), orders(21, 1), transaction=SHOP, **as_member(consumer))

    assert home.shard.stats.committed_offsets == 2
