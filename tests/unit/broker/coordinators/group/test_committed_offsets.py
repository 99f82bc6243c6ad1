"""Committing, fetching and deleting offsets: checks, records and answers."""

import pytest

from broker.coordinators.group.requests import Commit, CommittedOffset, OffsetToCommit, Protocol
from protocol.errors import ErrorCode
from protocol.records.group_metadata import (
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    encode_group_key,
    encode_group_value,
)
from protocol.schema import NO_UUID
from tests.unit.broker.coordinators.group.harness import G
from tests.unit.broker.coordinators.group.offsets_harness import OffsetsHome, as_member

ORDERS_ID = bytes.fromhex("238adcac38fc4766b41ce623aae57763")
OF_STREAMS = GroupRecord(StreamsGroupMetadataKey(group_id=G), StreamsGroupMetadataValue(epoch=2, metadata_hash=0), 0)
NONE = ErrorCode.NONE


@pytest.fixture
def home():
    return OffsetsHome()


def orders(offset, partition=0, **given):
    return OffsetToCommit("orders", partition, offset, **given)


# Who may commit -------------------------------------------------------------------------------------------------------


def test_somebody_without_a_group_begins_one_by_committing_to_it(home):
    assert home.commits(orders(5)) == [NONE]

    assert home.offsets() == {("orders", 0): 5}
    assert home.state() == "Empty"


def test_a_group_without_a_name_can_have_offsets(home):
    assert home.commits(orders(5), group_id="") == [NONE]

    assert home.offsets("") == {("orders", 0): 5}


def test_a_member_of_a_group_that_does_not_exist_is_told_so_as_its_version_knows_it(home):
    assert home.commits(orders(5), generation=0, member_id="m") == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert home.commits(orders(5), generation=3, unknown_group_error=ErrorCode.ILLEGAL_GENERATION) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert home.writer.log == []


def test_a_member_id_alone_keeps_nobody_from_beginning_a_group(home):
    assert home.commits(orders(5), member_id="m") == [NONE]


def test_a_member_commits_in_its_generation(home):
    consumer = home.settled("orders")

    assert home.commits(orders(5), **as_member(consumer)) == [NONE]
    assert home.offsets() == {("orders", 0): 5}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),  # nobody in particular, while others are in the group
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1, "member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "ours"}, ErrorCode.ILLEGAL_GENERATION),  # as a running Kafka answers it
        ({"generation": 0, "member_id": "ours"}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2, "member_id": "ours"}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 1, "member_id": "ours", "instance_id": "i9"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_whoever_is_not_in_this_generation_of_a_stable_group_does_not_commit(home, given, error):
    consumer = home.settled("orders")
    if given.get("member_id") == "ours":
        given = {**given, "member_id": consumer.member_id}

    assert home.commits(orders(5), orders(6, 1), **given) == [error, error]
    assert home.offsets() == {}


def test_a_static_member_that_was_replaced_is_fenced(home):
    consumer = home.settled("orders", instance_id="i1")
    home.consumer("orders", instance_id="i1").joins()

    answered = home.commits(orders(5), **as_member(consumer), instance_id="i1")

    assert answered == [ErrorCode.FENCED_INSTANCE_ID]


def test_a_member_commits_while_the_others_join_anew_but_not_once_they_have_joined(home):
    first = home.settled("orders")
    second = home.consumer("orders")
    waiting = second.parks()
    assert home.state() == "PreparingRebalance"
    assert home.commits(orders(5), **as_member(first)) == [NONE]

    generation_1 = as_member(first)
    first.joins()
    second.takes(waiting.answer)

    assert home.state() == "CompletingRebalance"
    assert home.commits(orders(6), **as_member(first)) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert home.commits(orders(6), **as_member(second)) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert home.commits(orders(6), **generation_1) == [ErrorCode.ILLEGAL_GENERATION]
    assert home.commits(orders(6)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert home.offsets() == {("orders", 0): 5}


def test_an_emptied_group_takes_commits_of_anybody_but_not_of_its_last_member(home):
    consumer = home.settled("orders")
    consumer.leaves()
    assert home.state() == "Empty"

    assert home.commits(orders(5), **as_member(consumer)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert home.commits(orders(5)) == [NONE]


def test_a_commit_shows_that_a_member_is_alive(home):
    consumer = home.settled("orders")
    for _ in range(3):
        home.pass_ms(9_000)  # of a session of 10 s
        assert home.commits(orders(5), **as_member(consumer)) == [NONE]

    home.pass_ms(10_000)

    assert home.state() == "Empty"


def test_a_group_that_belongs_to_another_protocol_takes_offsets_from_outside_only(home):
    home.stands(OF_STREAMS)

    assert home.commits(orders(5)) == [NONE]
    assert home.commits(orders(6), generation=2, member_id="m") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert home.offsets() == {("orders", 0): 5}


# What is written -----------------------------------------------------------------------------------------------------


def test_the_offsets_of_a_request_are_one_batch_with_one_time(home):
    home.writer.hold()

    home.commits(orders(5), orders(6, 1), OffsetToCommit("refunds", 0, 7))

    (records,) = home.batches_under_way()
    assert [(record.key.topic, record.key.partition) for record in records] == [
        ("orders", 0),
        ("orders", 1),
        ("refunds", 0),
    ]
    assert {record.value.commit_timestamp for record in records} == {home.clock.now_ms()}


def test_an_offset_is_written_byte_by_byte_as_kafka_writes_it(home):
    home.commits(OffsetToCommit("p1", 0, 3, metadata="x", topic_id=ORDERS_ID), group_id="")

    (record,) = home.written()
    at = home.clock.now_ms().to_bytes(8, "big").hex()
    assert encode_group_key(record.key) == bytes.fromhex("0001 0000 00027031 00000000")
    assert encode_group_value(record.value, record.version) == bytes.fromhex(
        f"0004 0000000000000003 ffffffff 02 78 {at} 01 00 10 238adcac38fc4766b41ce623aae57763"
    )


def test_without_a_topic_id_its_tag_is_left_out(home):
    home.commits(OffsetToCommit("p1", 0, 0x11, leader_epoch=0), group_id="")

    (record,) = home.written()
    at = home.clock.now_ms().to_bytes(8, "big").hex()
    assert encode_group_value(record.value, record.version) == bytes.fromhex(
        f"0004 0000000000000011 00000000 01 {at} 00"
    )


def test_where_the_client_says_how_long_an_offset_is_wanted_the_version_that_can_say_so_is_written(home):
    expires_at = home.clock.now_ms() + 100_000
    home.commits(orders(42, leader_epoch=3, topic_id=ORDERS_ID, expire_timestamp=expires_at))

    (record,) = home.written()
    assert record.version == 1
    assert record.value.expire_timestamp == expires_at
    # What the version cannot say is not there before a restart either.
    for _ in range(2):
        (found,) = home.fetch()
        assert found.committed == CommittedOffset(42, -1, "", home.clock.now_ms(), expires_at, NO_UUID)
        home.restart()


def test_metadata_may_have_as_many_characters_as_are_set_and_what_is_too_long_keeps_nothing_else_back():
    home = OffsetsHome(offset_metadata_max_bytes=10)

    answered = home.commits(
        orders(1, 0, metadata="x" * 10),
        orders(2, 1, metadata="x" * 11),
        orders(3, 2, metadata="ä" * 10),  # two bytes each
        orders(4, 3, metadata="ä" * 11),
        orders(5, 4, metadata="\N{GRINNING FACE}" * 5),  # two characters each, as Java counts
        orders(6, 5, metadata="\N{GRINNING FACE}" * 6),
    )

    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert answered == [NONE, too_large, NONE, too_large, NONE, too_large]
    assert home.offsets() == {("orders", 0): 1, ("orders", 2): 3, ("orders", 4): 5}
    home.restart()
    assert home.fetch(("orders", 4))[0].committed.metadata == "\N{GRINNING FACE}" * 5


def test_where_all_metadata_is_too_long_nothing_is_written():
    home = OffsetsHome(offset_metadata_max_bytes=1)
    home.writer.hold()

    assert home.commits(orders(1, metadata="xx")) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert home.batches_under_way() == []
    assert home.shard.describe(G) is None


def test_a_commit_of_nothing_is_answered_with_nothing(home):
    answers = []
    home.writer.append(home.shard.commit(Commit(group_id=G, offsets=()), answers.append))

    assert answers == [[]]
    assert home.writer.log == []


@pytest.mark.parametrize("offset", [-1, -5, 2**63 - 1])
def test_any_offset_is_stored(home, offset):
    assert home.commits(orders(offset)) == [NONE]
    home.restart()
    assert home.offsets() == {("orders", 0): offset}


def test_nothing_counts_before_it_stands(home):
    home.commits(orders(1))
    home.writer.hold()

    answers = home.commits(orders(2))
    assert (answers, home.offsets()) == ([], {("orders", 0): 1})

    home.writer.settle()
    assert home.offsets() == {("orders", 0): 2}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_cannot_be_written_is_not_committed_and_the_client_is_told_in_its_own_terms(error, told):
    home = OffsetsHome(offset_metadata_max_bytes=1)
    home.commits(orders(1))
    home.writer.hold()
    request = Commit(group_id=G, offsets=(orders(2), orders(3, 1, metadata="too long")))
    answers = []
    home.writer.append(home.shard.commit(request, answers.append))

    home.fails(error)

    assert answers == [[told, ErrorCode.OFFSET_METADATA_TOO_LARGE]]
    assert home.offsets() == {("orders", 0): 1}
    assert home.shard.stats.committed_offsets == 1


def test_a_commit_that_took_too_long_counts_all_the_same_once_it_stands(home):
    home.writer.hold()
    answers = home.commits(orders(1))
    home.writer.time_out()
    assert (answers, home.offsets()) == ([ErrorCode.COORDINATOR_NOT_AVAILABLE], {})

    home.writer.settle()

    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert home.offsets() == {("orders", 0): 1}
    assert home.shard.stats.committed_offsets == 1


def test_a_commit_that_took_too_long_and_fails_is_none(home):
    home.writer.hold()
    answers = home.commits(orders(1))
    home.writer.time_out()
    home.fails(ErrorCode.KAFKA_STORAGE_ERROR)

    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert home.deletes_offsets(("orders", 0)) == [(ErrorCode.GROUP_ID_NOT_FOUND, [])]


# Fetching ------------------------------------------------------------------------------------------------------------


def test_a_group_that_does_not_exist_has_committed_nothing_which_is_no_error(home):
    assert [(found.error, found.committed) for found in home.fetch(("orders", 0), ("orders", 7))] == [
        (NONE, None),
        (NONE, None),
    ]
    assert home.fetch() == []


def test_what_is_asked_for_is_answered_in_the_order_of_the_question(home):
    home.commits(orders(5, 1, leader_epoch=3, metadata="half way", topic_id=ORDERS_ID))

    missing, found = home.fetch(("orders", 0), ("orders", 1))

    assert (missing.topic, missing.partition, missing.committed) == ("orders", 0, None)
    assert found.committed == CommittedOffset(5, 3, "half way", home.clock.now_ms(), -1, ORDERS_ID)
    assert home.fetch() == [found]


def test_asking_for_no_partitions_is_not_asking_for_all(home):
    home.commits(orders(5))

    assert home.shard.fetch(G, [], require_stable=False) == []


def pending(offset, partition=0):
    key = OffsetCommitKey(group=G, topic="orders", partition=partition)
    return GroupRecord(key, OffsetCommitValue(offset=offset, metadata="", commit_timestamp=0), 4)


def test_whoever_requires_stable_offsets_is_told_where_a_transaction_is_open(home):
    home.commits(orders(1), orders(2, 1))
    home.stands(pending(5), pending(6, 2), producer_id=12)

    asked = home.fetch(("orders", 0), ("orders", 1), ("orders", 2), require_stable=True)
    assert [(found.error, found.committed and found.committed.offset) for found in asked] == [
        (ErrorCode.UNSTABLE_OFFSET_COMMIT, None),
        (NONE, 2),
        (ErrorCode.UNSTABLE_OFFSET_COMMIT, None),
    ]
    # Of all that there is, what only a transaction has written is left out: as a running Kafka answers it.
    assert [(found.partition, found.error) for found in home.fetch(require_stable=True)] == [
        (0, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        (1, NONE),
    ]
    assert home.offsets() == {("orders", 0): 1, ("orders", 1): 2}

    home.shard.replay_marker(12, commits=True)

    assert [found.error for found in home.fetch(require_stable=True)] == [NONE, NONE, NONE]
    assert home.offsets() == {("orders", 0): 5, ("orders", 1): 2, ("orders", 2): 6}


def test_offsets_of_a_streams_group_can_be_fetched(home):
    home.stands(OF_STREAMS, pending(5))

    assert home.offsets() == {("orders", 0): 5}


# Deleting ------------------------------------------------------------------------------------------------------------


def test_offsets_are_deleted_and_those_that_never_were_are_too(home):
    home.commits(orders(5), orders(6, 1))

    assert home.deletes_offsets(("orders", 0), ("orders", 9)) == [(NONE, [NONE, NONE])]

    assert home.offsets() == {("orders", 1): 6}
    assert home.shard.stats.deleted_offsets == 1
    home.restart()
    assert home.offsets() == {("orders", 1): 6}


def test_where_there_is_nothing_to_delete_nothing_is_written(home):
    home.commits(orders(5))
    home.writer.hold()

    assert home.deletes_offsets(("refunds", 0)) == [(NONE, [NONE])]
    assert home.batches_under_way() == []


def test_offsets_of_a_group_without_a_name_or_of_none_at_all_are_not_deleted(home):
    home.commits(orders(5), group_id="")

    assert home.deletes_offsets(("orders", 0), group_id="") == [(ErrorCode.INVALID_GROUP_ID, [])]
    assert home.deletes_offsets(("orders", 0), group_id="nobody") == [(ErrorCode.GROUP_ID_NOT_FOUND, [])]


def test_what_consumers_are_subscribed_to_is_not_deleted(home):
    consumer = home.settled("orders")
    home.commits(orders(5), OffsetToCommit("refunds", 0, 6), **as_member(consumer))

    answered = home.deletes_offsets(("orders", 0), ("refunds", 0), ("orders", 9))

    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert answered == [(NONE, [subscribed, NONE, subscribed])]
    assert home.offsets() == {("orders", 0): 5}


def test_while_a_group_rebalances_what_its_members_want_is_not_deleted_either(home):
    """As a running Kafka answers it."""
    first = home.consumer("orders")
    first.joins()
    assert home.state() == "CompletingRebalance"
    assert home.deletes_offsets(("refunds", 0), ("orders", 0)) == [(NONE, [NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])]

    first.brings({first: b"gets"})
    home.consumer("refunds").parks()

    assert home.state() == "PreparingRebalance"
    assert home.deletes_offsets(("orders", 0)) == [(NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])]


def test_of_consumers_whose_subscription_cannot_be_read_nothing_is_deleted(home):
    consumer = home.settled(protocols=[Protocol("range", b"what is this")])
    home.commits(orders(5), **as_member(consumer))

    assert home.deletes_offsets(("orders", 0)) == [(NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])]


def test_of_a_group_that_is_no_consumers_nothing_is_deleted_while_somebody_is_in_it(home):
    consumer = home.settled(protocol_type="connect")
    home.commits(orders(5), **as_member(consumer))
    assert home.deletes_offsets(("orders", 0)) == [(ErrorCode.NON_EMPTY_GROUP, [])]

    consumer.leaves()

    assert home.deletes_offsets(("orders", 0)) == [(NONE, [NONE])]
    assert home.offsets() == {}


def test_once_the_consumers_have_gone_their_offsets_can_be_deleted(home):
    consumer = home.settled("orders")
    home.commits(orders(5), **as_member(consumer))
    consumer.leaves()

    assert home.deletes_offsets(("orders", 0)) == [(NONE, [NONE])]
    assert home.offsets() == {}


def test_offsets_of_a_streams_group_without_members_are_deleted(home):
    home.stands(OF_STREAMS, pending(5))

    assert home.deletes_offsets(("orders", 0)) == [(NONE, [NONE])]


def test_an_offset_that_only_a_transaction_has_written_is_deleted_with_it(home):
    home.commits(orders(1, 1))
    home.stands(pending(5), producer_id=12)

    assert home.deletes_offsets(("orders", 0)) == [(NONE, [NONE])]
    home.shard.replay_marker(12, commits=True)

    assert home.offsets() == {("orders", 1): 1}


def test_a_deletion_that_cannot_be_written_deletes_nothing(home):
    home.commits(orders(5))
    home.writer.hold()
    answers = home.deletes_offsets(("orders", 0))

    home.fails(ErrorCode.KAFKA_STORAGE_ERROR)

    assert answers == [(ErrorCode.NOT_COORDINATOR, [])]
    assert home.offsets() == {("orders", 0): 5}


@pytest.mark.parametrize("is_late", [False, True])
def test_what_is_being_committed_is_deleted_too(home, is_late):
    home.commits(orders(1, 1))
    home.writer.hold()
    home.commits(orders(5))
    if is_late:
        home.writer.time_out()

    answers = home.deletes_offsets(("orders", 0))
    home.writer.settle()

    assert answers == [(NONE, [NONE])]
    assert home.offsets() == {("orders", 1): 1}
