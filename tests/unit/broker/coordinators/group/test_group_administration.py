"""What administrators ask of groups: describing, listing and deleting them (facts 2.13), and groups of other kinds."""

import pytest

from broker.coordinators.group.image import GroupMetadata
from broker.coordinators.group.records import group_record, offset_record
from broker.coordinators.group.requests import DescribedMember, Heartbeat, ListedGroup, OffsetToCommit, Protocol, Sync
from protocol.errors import ErrorCode
from protocol.records.group_metadata import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
)
from tests.support.group_records import contents
from tests.support.group_shard import GroupHome, subscription

NONE = ErrorCode.NONE
OTHER_KINDS = {
    "consumer": GroupRecord(ConsumerGroupMetadataKey(group_id="g1"), ConsumerGroupMetadataValue(epoch=2), 0),
    "share": GroupRecord(ShareGroupMetadataKey(group_id="g1"), ShareGroupMetadataValue(epoch=1, metadata_hash=2), 0),
    "streams": GroupRecord(
        StreamsGroupMetadataKey(group_id="g1"), StreamsGroupMetadataValue(epoch=1, metadata_hash=2), 0
    ),
}


@pytest.fixture
def home():
    return GroupHome()


def orders(offset, partition=0):
    return OffsetToCommit("orders", partition, offset)


def listed(home):
    return sorted(home.shard.list())


# Describing ----------------------------------------------------------------------------------------------------------


def test_there_is_nothing_to_describe_where_there_is_no_group(home):
    assert home.shard.describe("g1") is None
    assert home.shard.kind_of("g1") is None


def test_a_stable_group_shows_its_protocol_and_what_everybody_wants_and_has(home):
    joined = home.settle("orders", instance_id="i1")

    group = home.shard.describe("g1")

    assert (group.group_id, group.state, group.protocol_type, group.protocol) == ("g1", "Stable", "consumer", "range")
    assert group.members == [
        DescribedMember(joined.member_id, "i1", "client", "/127.0.0.1", subscription("orders"), b"gets")
    ]
    assert home.shard.kind_of("g1") == "classic"


def test_a_stable_group_is_described_alike_after_a_restart(home):
    home.settle("orders")
    before = home.shard.describe("g1")

    home.restart()

    assert home.shard.describe("g1") == before


def test_while_a_group_rebalances_only_who_is_there_is_shown(home):
    first = home.settle("orders")
    home.join(protocols=[Protocol("range", subscription("orders"))])

    group = home.shard.describe("g1")
    assert (group.state, group.protocol_type, group.protocol) == ("PreparingRebalance", "consumer", "")
    assert [(member.client_id, member.metadata, member.assignment) for member in group.members] == [
        ("client", b"", b""),
        ("client", b"", b""),
    ]
    assert group.members[0].member_id == first.member_id

    home.join(first.member_id, protocols=[Protocol("range", subscription("orders"))])

    group = home.shard.describe("g1")
    assert (group.state, group.protocol_type, group.protocol) == ("CompletingRebalance", "consumer", "")
    assert [(member.metadata, member.assignment) for member in group.members] == [(b"", b""), (b"", b"")]


def test_an_emptied_group_still_says_what_it_was_for(home):
    home.leave(home.settle("orders").member_id)

    group = home.shard.describe("g1")

    assert (group.state, group.protocol_type, group.protocol, group.members) == ("Empty", "consumer", "", [])


def test_a_simple_consumers_group_is_empty_and_for_nothing(home):
    home.commit(orders(1))

    group = home.shard.describe("g1")

    assert (group.state, group.protocol_type, group.protocol, group.members) == ("Empty", "", "", [])


# Listing -------------------------------------------------------------------------------------------------------------


def test_every_group_is_listed_once_with_its_state_and_type(home):
    home.settle("orders", group_id="stable")
    home.settle("orders", group_id="rebalancing")
    home.join(group_id="rebalancing", protocols=[Protocol("range", subscription("orders"))])
    home.commit(orders(1), group_id="simple")
    home.join(group_id="expected", needs_known_id=True)
    home.leave(home.settle(group_id="emptied", protocol_type="connect").member_id, "emptied")
    home.commit(orders(1), group_id="emptied")

    assert listed(home) == [
        ListedGroup("emptied", "connect", "Empty", "classic"),
        ListedGroup("expected", "", "Empty", "classic"),
        ListedGroup("rebalancing", "consumer", "PreparingRebalance", "classic"),
        ListedGroup("simple", "", "Empty", "classic"),
        ListedGroup("stable", "consumer", "Stable", "classic"),
    ]
    assert home.shard.groups_by_state() == {"Empty": 3, "PreparingRebalance": 1, "Stable": 1}


def test_a_group_is_listed_while_its_first_assignment_is_awaited(home):
    home.join(protocols=[Protocol("range", subscription("orders"))])

    assert listed(home) == [ListedGroup("g1", "consumer", "CompletingRebalance", "classic")]


# Deleting ------------------------------------------------------------------------------------------------------------


def test_an_empty_group_is_deleted_with_its_offsets_and_they_go_first(home):
    joined = home.settle("orders")
    home.commit(orders(1), orders(2, 1), generation=1, member_id=joined.member_id)
    home.leave(joined.member_id)
    before = len(home.log)

    assert home.delete() == [NONE]

    written = [record for record, _ in home.log[before:]]
    assert [record.value for record in written] == [None, None, None]
    assert [type(record.key) for record in written] == [OffsetCommitKey, OffsetCommitKey, GroupMetadataKey]
    assert home.state() == "Dead"
    assert listed(home) == []
    assert home.events.of("group_removed") == [["g1", "it was deleted by request"]]
    assert home.shard.stats.deleted_offsets == 2
    home.restart()
    assert contents(home.shard.image) == {}


@pytest.mark.parametrize("group_id", ["g1", ""])
def test_a_simple_consumers_group_is_deleted_whatever_its_name(home, group_id):
    home.commit(orders(1), group_id=group_id)

    assert home.delete(group_id) == [NONE]
    assert home.shard.describe(group_id) is None


@pytest.mark.parametrize("group_id", ["g1", ""])
def test_a_group_that_does_not_exist_is_not_deleted(home, group_id):
    assert home.delete(group_id) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert home.log == []


def test_a_group_that_somebody_is_in_is_not_deleted(home):
    joined = home.settle("orders")
    assert home.delete() == [ErrorCode.NON_EMPTY_GROUP]

    home.join(protocols=[Protocol("range", subscription("orders"))])
    assert home.state() == "PreparingRebalance"
    assert home.delete() == [ErrorCode.NON_EMPTY_GROUP]

    home.join(joined.member_id, protocols=[Protocol("range", subscription("orders"))])
    assert home.state() == "CompletingRebalance"
    assert home.delete() == [ErrorCode.NON_EMPTY_GROUP]


def test_a_group_whose_last_member_is_just_leaving_is_not_deleted(home):
    joined = home.settle("orders")
    home.holds_writes = True
    home.leave(joined.member_id)

    assert home.delete() == [ErrorCode.NON_EMPTY_GROUP]
    home.acknowledge()
    home.holds_writes = False
    assert home.delete() == [NONE]


def test_ids_that_were_handed_out_do_not_keep_a_group_and_are_unknown_when_it_is_gone(home):
    (asked,) = home.join(needs_known_id=True)
    assert asked.error is ErrorCode.MEMBER_ID_REQUIRED

    assert home.delete() == [NONE]

    assert home.state() == "Dead"
    assert [joined.error for joined in home.join(asked.member_id)] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert len(home.wheel) == 0


def test_with_a_group_goes_what_is_being_committed_to_it_and_what_transactions_have_written(home):
    home.commit(orders(1))
    home.stands(offset_record("g1", orders(5, 1), 0), producer_id=12)
    home.holds_writes = True
    home.commit(orders(2, 2))

    answers = home.delete()
    home.acknowledge()
    home.shard.replay_marker(12, commits=True)

    assert answers == [NONE]
    assert contents(home.shard.image) == {}


def test_whoever_commits_while_the_group_is_being_deleted_begins_it_anew(home):
    home.commit(orders(1))
    home.holds_writes = True
    home.delete()
    home.commit(orders(2, 1))
    home.acknowledge()

    assert home.offsets() == {("orders", 1): 2}
    assert home.state() == "Empty"


def test_whoever_joins_while_the_group_is_being_deleted_is_in_it(home):
    home.leave(home.settle("orders").member_id)
    home.commit(orders(1))
    home.holds_writes = True
    deleted = home.delete()
    (joined,) = home.join(protocols=[Protocol("range", subscription("orders"))])
    synced = home.sync(joined.member_id, joined.generation, {joined.member_id: b"gets"})

    home.acknowledge()

    assert deleted == [NONE]
    assert [answer.assignment for answer in synced] == [b"gets"]
    assert home.state() == "Stable"
    assert home.offsets() == {}
    before = contents(home.shard.image)
    home.holds_writes = False
    home.restart()
    assert contents(home.shard.image) == before
    assert home.shard.heartbeat(Heartbeat(group_id="g1", member_id=joined.member_id, generation=3)) is NONE


def test_a_deletion_that_cannot_be_written_deletes_nothing(home):
    home.commit(orders(1))
    home.holds_writes = True
    answers = home.delete()

    home.fail(ErrorCode.KAFKA_STORAGE_ERROR)

    assert answers == [ErrorCode.NOT_COORDINATOR]
    assert home.offsets() == {("orders", 0): 1}
    assert home.events.of("group_removed") == []


# Groups of other kinds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_group_of_another_kind_is_listed_as_that_and_nobody_joins_it_or_removes_it(home, kind):
    home.stands(OTHER_KINDS[kind])
    written = len(home.log)

    assert listed(home) == [ListedGroup("g1", kind, "Empty", kind)]
    assert home.shard.kind_of("g1") == kind
    assert home.shard.describe("g1") is None
    (joined,) = home.join("m")
    assert (joined.error, joined.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "m")
    assert home.delete() == [ErrorCode.NON_EMPTY_GROUP]
    assert len(home.log) == written

    home.stands(GroupRecord(OTHER_KINDS[kind].key, None, None))

    assert listed(home) == []
    assert [joined.error for joined in home.join()] == [NONE]


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_nobody_is_a_classic_member_of_a_group_of_another_kind(home, kind):
    home.stands(OTHER_KINDS[kind])
    home.commit(orders(1))
    answers = []

    assert home.shard.heartbeat(Heartbeat(group_id="g1", member_id="m", generation=1)) is ErrorCode.UNKNOWN_MEMBER_ID
    home.write(home.shard.sync(Sync(group_id="g1", member_id="m", generation=1), answers.append))
    assert [synced.error for synced in answers] == [ErrorCode.UNKNOWN_MEMBER_ID]
    (left,) = home.leave("m")
    assert list(left.members) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert len(home.wheel) == 0


def test_a_group_that_was_written_by_another_broker_goes_on_where_it_was(home):
    """A directory that Kafka has used: who was a member has its session's time to show up."""
    home.stands(
        group_record("g1", GroupMetadata(protocol_type="consumer", generation=4, state_timestamp=home.clock.now_ms())),
        offset_record("g1", orders(7), home.clock.now_ms()),
    )
    home.restart()

    assert home.state() == "Empty"
    assert home.offsets() == {("orders", 0): 7}
    assert home.settle("orders").generation == 5
