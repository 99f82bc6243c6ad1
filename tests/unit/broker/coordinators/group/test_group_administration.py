"""Administration of groups: describing, listing and deleting (KIP-229), and groups of other protocols."""

import pytest

from broker.coordinators.group.image import GroupMetadata
from broker.coordinators.group.records import group_record, offset_record
from broker.coordinators.group.requests import DescribedMember, ListedGroup, OffsetToCommit
from protocol.errors import ErrorCode
from protocol.records.group_metadata import (
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
)
from tests.support.group_records import contents
from tests.unit.broker.coordinators.group.harness import G
from tests.unit.broker.coordinators.group.offsets_harness import SHOP, OffsetsHome, as_member, subscription

NONE = ErrorCode.NONE
OTHER_KINDS = {
    "share": GroupRecord(ShareGroupMetadataKey(group_id=G), ShareGroupMetadataValue(epoch=1, metadata_hash=2), 0),
    "streams": GroupRecord(StreamsGroupMetadataKey(group_id=G), StreamsGroupMetadataValue(epoch=1, metadata_hash=2), 0),
}


@pytest.fixture
def home():
    return OffsetsHome()


def orders(offset, partition=0):
    return OffsetToCommit("orders", partition, offset)


def listed(home):
    return sorted(home.shard.list())


# Describing ----------------------------------------------------------------------------------------------------------


def test_there_is_nothing_to_describe_where_there_is_no_group(home):
    assert home.shard.describe(G) is None
    assert home.shard.kind_of(G) is None


def test_a_stable_group_shows_its_protocol_and_what_everybody_wants_and_has(home):
    consumer = home.settled("orders", instance_id="i1")

    group = home.shard.describe(G)

    assert (group.group_id, group.state, group.protocol_type, group.protocol) == (G, "Stable", "consumer", "range")
    assert group.members == [
        DescribedMember(consumer.member_id, "i1", "anna", "/127.0.0.1", subscription("orders"), b"gets")
    ]
    assert home.shard.kind_of(G) == "classic"


def test_a_stable_group_is_described_alike_after_a_restart(home):
    home.settled("orders")
    before = home.shard.describe(G)

    home.restart()

    assert home.shard.describe(G) == before


def test_while_a_group_rebalances_everybody_is_shown_with_what_it_had(home):
    first = home.settled("orders")
    home.consumer("orders", name="bert").parks()

    group = home.shard.describe(G)
    assert (group.state, group.protocol_type, group.protocol) == ("PreparingRebalance", "consumer", "")
    assert [(member.client_id, member.metadata, member.assignment) for member in group.members] == [
        ("anna", b"", b"gets"),
        ("bert", b"", b""),
    ]
    assert group.members[0].member_id == first.member_id

    first.joins()

    group = home.shard.describe(G)
    assert (group.state, group.protocol_type, group.protocol) == ("CompletingRebalance", "consumer", "")
    assert [(member.metadata, member.assignment) for member in group.members] == [(b"", b"gets"), (b"", b"")]


def test_what_members_had_is_not_shown_once_they_were_sent_back_without_an_assignment(home):
    first = home.settled("orders")
    second = home.consumer("orders", name="bert")
    waiting = second.parks()
    first.joins()
    second.takes(waiting.answer)

    second.leaves()

    group = home.shard.describe(G)
    assert group.state == "PreparingRebalance"
    assert [member.assignment for member in group.members] == [b""]


def test_an_emptied_group_still_says_what_it_was_for(home):
    home.settled("orders").leaves()

    group = home.shard.describe(G)

    assert (group.state, group.protocol_type, group.protocol, group.members) == ("Empty", "consumer", "", [])


def test_a_simple_consumers_group_is_empty_and_for_nothing(home):
    home.commits(orders(1))

    group = home.shard.describe(G)

    assert (group.state, group.protocol_type, group.protocol, group.members) == ("Empty", "", "", [])


# Listing -------------------------------------------------------------------------------------------------------------


def test_every_group_is_listed_once_with_its_state_and_type(home):
    home.settled("orders", group_id="stable")
    home.settled("orders", group_id="rebalancing")
    home.consumer("orders", group_id="rebalancing").parks()
    home.commits(orders(1), group_id="simple")
    home.member(group_id="expected").asks_to_join()
    home.settled(group_id="emptied", protocol_type="connect").leaves()
    home.commits(orders(1), group_id="emptied")

    assert listed(home) == [
        ListedGroup("emptied", "connect", "Empty", "classic", 0),
        ListedGroup("expected", "", "Empty", "classic", 0),
        ListedGroup("rebalancing", "consumer", "PreparingRebalance", "classic", 2),
        ListedGroup("simple", "", "Empty", "classic", 0),
        ListedGroup("stable", "consumer", "Stable", "classic", 1),
    ]


def test_a_group_is_listed_while_its_first_assignment_is_awaited(home):
    home.consumer("orders").joins()

    assert listed(home) == [ListedGroup(G, "consumer", "CompletingRebalance", "classic", 1)]


# Deleting ------------------------------------------------------------------------------------------------------------


def test_an_empty_group_is_deleted_with_its_offsets_and_they_go_first(home):
    consumer = home.settled("orders")
    home.commits(orders(1), orders(2, 1), **as_member(consumer))
    consumer.leaves()
    before = len(home.writer.log)

    assert home.deletes() == [NONE]

    written = home.written(since=before)
    assert [record.value for record in written] == [None, None, None]
    assert [type(record.key) for record in written] == [OffsetCommitKey, OffsetCommitKey, GroupMetadataKey]
    assert home.state() is None
    assert listed(home) == []
    assert home.events.named("group_removed") == [(G, "it was deleted by request")]
    assert home.shard.stats.deleted_offsets == 0, "Kafka counts those that are asked for"
    home.restart()
    assert contents(home.shard.image) == {}


@pytest.mark.parametrize("group_id", [G, ""])
def test_a_simple_consumers_group_is_deleted_whatever_its_name(home, group_id):
    home.commits(orders(1), group_id=group_id)

    assert home.deletes(group_id) == [NONE]
    assert home.shard.describe(group_id) is None


@pytest.mark.parametrize("group_id", [G, ""])
def test_a_group_that_does_not_exist_is_not_deleted(home, group_id):
    assert home.deletes(group_id) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert home.writer.log == []


def test_a_group_that_somebody_is_in_is_not_deleted(home):
    consumer = home.settled("orders")
    assert home.deletes() == [ErrorCode.NON_EMPTY_GROUP]

    home.consumer("orders").parks()
    assert home.state() == "PreparingRebalance"
    assert home.deletes() == [ErrorCode.NON_EMPTY_GROUP]

    consumer.joins()
    assert home.state() == "CompletingRebalance"
    assert home.deletes() == [ErrorCode.NON_EMPTY_GROUP]


def test_a_group_whose_last_member_is_just_leaving_is_deleted_once_it_has_left(home):
    consumer = home.settled("orders")
    home.writer.hold()
    consumer.leaves()

    deleted = home.deletes()
    assert deleted == []
    home.writer.settle()
    home.writer.release()
    assert deleted == [NONE]


def test_ids_that_were_handed_out_do_not_keep_a_group_and_are_unknown_when_it_is_gone(home):
    anna = home.member()
    anna.member_id = anna.asks_to_join().answer.member_id

    assert home.deletes() == [NONE]

    assert home.state() is None
    assert anna.asks_to_join().answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(home.wheel) == 0


@pytest.mark.parametrize("is_late", [False, True])
def test_with_a_group_goes_what_is_being_committed_to_it_and_what_transactions_have_written(home, is_late):
    home.commits(orders(1))
    home.stands(offset_record(G, orders(5, 1), 0), producer_id=12)
    home.writer.hold()
    home.commits(orders(2, 2))
    if is_late:
        home.writer.time_out()

    answers = home.deletes()
    home.writer.settle()
    home.shard.replay_marker(12, commits=True)

    assert answers == [NONE]
    assert contents(home.shard.image) == {}


def test_whoever_commits_while_the_group_is_being_deleted_begins_it_anew(home):
    home.commits(orders(1))
    home.writer.hold()
    home.deletes()
    home.commits(orders(2, 1))
    home.writer.settle()

    assert home.offsets() == {("orders", 1): 2}
    assert home.state() == "Empty"


def test_whoever_joins_while_the_group_is_being_deleted_is_in_it(home):
    home.settled("orders").leaves()
    home.commits(orders(1))
    home.writer.hold()
    deleted = home.deletes()
    consumer = home.consumer("orders")
    reply = consumer.asks_to_join()
    assert reply.is_parked

    home.writer.settle()
    home.writer.settle()

    assert deleted == [NONE]
    consumer.member_id = reply.answer.member_id
    consumer.joins()
    synced = consumer.asks_to_sync({consumer: b"gets"})
    home.writer.settle()
    assert synced.answer.assignment == b"gets"
    assert home.state() == "Stable"
    assert home.offsets() == {}
    before = contents(home.shard.image)
    home.writer.release()
    home.restart()
    assert contents(home.shard.image) == before
    assert consumer.beats() is NONE


def test_a_deletion_that_cannot_be_written_deletes_nothing(home):
    home.commits(orders(1))
    home.writer.hold()
    answers = home.deletes()

    home.fails(ErrorCode.KAFKA_STORAGE_ERROR)

    assert answers == [ErrorCode.NOT_COORDINATOR]
    assert home.offsets() == {("orders", 0): 1}
    assert home.events.named("group_removed") == []


@pytest.mark.parametrize("deleted", ["at once", "after a restart"])
def test_a_simple_group_that_has_lost_its_last_offset_can_be_deleted(home, deleted):
    home.commits(orders(1), orders(2, 1))
    home.deletes_offsets(("orders", 0), ("orders", 1))
    assert listed(home) == [ListedGroup(G, "", "Empty", "classic", 0)]
    if deleted == "after a restart":
        home.restart()

    assert home.deletes() == [NONE]
    assert listed(home) == []
    assert home.deletes() == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_group_whose_pending_offsets_are_deleted_can_be_deleted(home):
    home.commits(orders(1), transaction=SHOP)
    home.deletes_offsets(("orders", 0))
    assert home.state() == "Empty"

    assert home.deletes() == [NONE]
    home.ends(12, commits=True)
    assert (home.state(), home.offsets()) == (None, {})


# Groups of other kinds -----------------------------------------------------------------------------------------------


def test_nobody_joins_a_share_group_by_the_classic_protocol(home):
    home.stands(OTHER_KINDS["share"])
    written = len(home.writer.log)

    assert listed(home) == [ListedGroup(G, "share", "Empty", "share", 0)]
    assert home.shard.kind_of(G) == "share"
    assert home.shard.describe(G) is None
    joined = home.consumer("orders").asks_to_join(member_id="m").answer
    assert (joined.error, joined.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert len(home.writer.log) == written

    home.stands(GroupRecord(OTHER_KINDS["share"].key, None, None))

    assert listed(home) == []
    assert home.consumer("orders").asks_to_join().answer.error is NONE


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_nobody_is_a_classic_member_of_a_group_of_another_kind(home, kind):
    home.stands(OTHER_KINDS[kind])
    home.commits(orders(1))
    anna = home.member()
    anna.member_id, anna.generation = "m", 1

    assert anna.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert anna.asks_to_sync().answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(anna.leaves().answer.members) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert len(home.wheel) == 0


def test_a_group_that_was_written_by_another_broker_goes_on_where_it_was(home):
    """A directory that Kafka has used: who was a member has its session's time to show up."""
    home.stands(
        group_record(G, GroupMetadata(protocol_type="consumer", generation=4, state_timestamp=home.clock.now_ms())),
        offset_record(G, orders(7), home.clock.now_ms()),
    )
    home.restart()

    assert home.state() == "Empty"
    assert home.offsets() == {("orders", 0): 7}
    assert home.settled("orders").generation == 5
