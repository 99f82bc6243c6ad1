"""GroupImage: what each kind of record of ``__consumer_offsets`` changes."""

import pytest

from broker.coordinators.group.image import GroupImage, GroupMetadata, MemberMetadata
from broker.coordinators.group.records import group_record, group_tombstone, offset_record, offset_tombstone
from broker.coordinators.group.requests import CommittedOffset, OffsetToCommit, TopicPartitionName
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.group_metadata import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    decode_group_record,
    encode_group_key,
    encode_group_value,
)
from protocol.schema import NO_UUID
from tests.support.group_records import contents

T = 1_700_000_000_000
ORDERS_ID = bytes(15) + b"\x07"


def image_of(*records):
    image = GroupImage()
    for record in records:
        image.replay(record)
    return image


def commit(offset, *, group="g1", topic="orders", partition=0, at=T, **given):
    return offset_record(group, OffsetToCommit(topic, partition, offset, **given), at)


def stored(record):
    """A record as a reader of the log has it."""
    value = None if record.value is None else encode_group_value(record.value, record.version)
    return decode_group_record(encode_group_key(record.key), value)


def member(member_id, **given):
    return GroupMetadataValue.MemberMetadata(
        member_id=member_id,
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout=45_000,
        subscription=b"wants",
        assignment=b"gets",
        **given,
    )


def test_the_newest_commit_of_a_partition_stands():
    image = image_of(commit(5), commit(7, at=T + 1, leader_epoch=3, metadata="half way", topic_id=ORDERS_ID))

    assert image.offsets.get("g1", ("orders", 0)) == CommittedOffset(7, 3, "half way", T + 1, -1, ORDERS_ID)


def test_a_group_a_topic_and_a_partition_each_have_their_own_offsets():
    image = image_of(commit(1), commit(2, group="g2"), commit(3, topic="refunds"), commit(4, partition=1))

    found = {
        (group, name.topic, name.partition): committed.offset
        for group in image.offsets.groups()
        for name, committed in image.offsets.of_group(group)
    }
    assert found == {
        ("g1", "orders", 0): 1,
        ("g2", "orders", 0): 2,
        ("g1", "refunds", 0): 3,
        ("g1", "orders", 1): 4,
    }


@pytest.mark.parametrize("version", range(5))
def test_a_commit_of_every_version_is_read(version):
    value = OffsetCommitValue(
        offset=42, leader_epoch=3, metadata="x", commit_timestamp=T, expire_timestamp=T + 5, topic_id=ORDERS_ID
    )
    record = stored(GroupRecord(OffsetCommitKey(group="g1", topic="orders", partition=0), value, version))

    image = image_of(record)

    assert image.offsets.get("g1", ("orders", 0)) == CommittedOffset(
        offset=42,
        leader_epoch=3 if version >= 3 else -1,
        metadata="x",
        commit_timestamp=T,
        expire_timestamp=T + 5 if version == 1 else -1,
        topic_id=ORDERS_ID if version >= 4 else NO_UUID,
    )


def test_a_commit_of_a_broker_before_0_9_is_read():
    key = LegacyOffsetCommitKey(group="g1", topic="orders", partition=0)
    image = image_of(
        stored(GroupRecord(key, LegacyOffsetCommitValue(offset=42, metadata="x", commit_timestamp=T), 0)),
    )
    assert image.offsets.get("g1", ("orders", 0)) == CommittedOffset(42, -1, "x", T, -1, NO_UUID)

    image.replay(stored(GroupRecord(key, None, None)))

    assert image.offsets.partitions("g1") == []


def test_a_tombstone_takes_one_offset_away_and_the_groups_own_the_group():
    image = image_of(commit(1), commit(2, partition=1), offset_tombstone("g1", "orders", 0))
    assert image.offsets.partitions("g1") == [("orders", 1)]
    assert image.exists("g1")

    image.replay(offset_tombstone("g1", "orders", 1))
    assert list(image.group_ids()) == ["g1"]

    image.replay(group_tombstone("g1"))
    assert not image.exists("g1")
    assert contents(image) == {}


def test_a_tombstone_for_what_nobody_committed_changes_nothing():
    image = image_of(offset_tombstone("g1", "orders", 0), group_tombstone("g1"))

    assert contents(image) == {}


@pytest.mark.parametrize("version", range(5))
def test_a_group_of_every_version_is_read(version):
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m1",
        current_state_timestamp=T,
        members=[
            member("m2", rebalance_timeout=300_000, group_instance_id="i2"),
            member("m1", rebalance_timeout=60_000),
        ],
    )
    image = image_of(stored(GroupRecord(GroupMetadataKey(group="g1"), value, version)))

    group = image.groups["g1"]
    assert (group.protocol_type, group.generation, group.protocol, group.leader) == ("consumer", 3, "range", "m1")
    assert group.state_timestamp == (T if version >= 2 else -1)
    assert list(group.members) == ["m2", "m1"]
    assert group.members["m2"] == MemberMetadata(
        member_id="m2",
        instance_id="i2" if version >= 3 else None,
        client_id="c",
        client_host="/127.0.0.1",
        # There was one timeout only.
        rebalance_timeout_ms=300_000 if version >= 1 else 45_000,
        session_timeout_ms=45_000,
        subscription=b"wants",
        assignment=b"gets",
    )


def test_what_is_written_of_a_group_is_read_back():
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m1",
        state_timestamp=T,
        members={
            "m1": MemberMetadata(
                member_id="m1",
                instance_id="i1",
                client_id="c",
                client_host="/127.0.0.1",
                rebalance_timeout_ms=60_000,
                session_timeout_ms=45_000,
                subscription=b"wants",
                assignment=b"gets",
            )
        },
    )

    assert image_of(stored(group_record("g1", metadata))).groups == {"g1": metadata}


def test_a_group_that_has_just_been_made_is_written_byte_by_byte_as_kafka_writes_it():
    key, value, version = group_record("lg", GroupMetadata(state_timestamp=0x1A1FA092543))

    assert encode_group_key(key) == bytes.fromhex("0002 0002 6c67")
    assert encode_group_value(value, version) == bytes.fromhex("0003 0000 00000000 ffff ffff 000001a1fa092543 00000000")


def test_a_group_without_members_is_kept_and_its_tombstone_takes_it_away_but_not_its_offsets():
    image = image_of(group_record("g1", GroupMetadata(protocol_type="consumer", generation=2)), commit(5))
    assert image.groups["g1"].members == {}

    image.replay(group_tombstone("g1"))

    assert image.groups == {}
    assert image.exists("g1")  # as a simple consumer's


def test_groups_are_listed_once_whatever_is_known_of_them():
    image = image_of(
        group_record("both", GroupMetadata()),
        commit(1, group="both"),
        commit(1, group="offsets only"),
        group_record("record only", GroupMetadata()),
        GroupRecord(ConsumerGroupMetadataKey(group_id="new"), ConsumerGroupMetadataValue(epoch=1), 0),
        commit(1, group="new"),
    )
    image.replay(commit(1, group="pending only"), 12)

    assert sorted(image.group_ids()) == ["both", "new", "offsets only", "pending only", "record only"]
    assert all(image.exists(group_id) for group_id in image.group_ids())
    assert not image.exists("nobody")


# Transactions --------------------------------------------------------------------------------------------------------


def test_an_offset_of_a_transaction_is_held_until_its_commit():
    image = image_of(commit(1))
    image.replay(commit(5), 12)
    assert image.offsets.get("g1", ("orders", 0)).offset == 1
    assert image.pending.has("g1", ("orders", 0))

    image.replay_marker(12, commits=True)

    assert image.offsets.get("g1", ("orders", 0)).offset == 5
    assert "g1" not in image.pending


def test_an_offset_of_an_aborted_transaction_never_was():
    image = image_of(commit(1))
    image.replay(commit(5), 12)
    image.replay(commit(6, group="g2"), 12)

    image.replay_marker(12, commits=False)

    assert contents(image) == contents(image_of(commit(1)))


def test_a_marker_ends_its_own_producers_transaction_only():
    image = GroupImage()
    image.replay(commit(5), 12)
    image.replay(commit(6, partition=1), 13)

    image.replay_marker(12, commits=True)
    image.replay_marker(99, commits=True)

    assert image.offsets.partitions("g1") == [("orders", 0)]
    assert image.pending.partitions("g1") == [("orders", 1)]


def test_the_last_offset_of_a_transaction_is_the_one_that_stands():
    image = GroupImage()
    image.replay(commit(5), 12)
    image.replay(commit(6), 12)

    image.replay_marker(12, commits=True)

    assert image.offsets.get("g1", ("orders", 0)).offset == 6


def test_a_newer_commit_outside_of_the_transaction_stands():
    image = GroupImage()
    image.replay(commit(5), 12)
    image.replay(commit(4, at=T + 1))
    assert image.pending.has("g1", ("orders", 0))
    assert image.pending.newest("g1", ("orders", 0)) is None

    image.replay_marker(12, commits=True)

    assert image.offsets.get("g1", ("orders", 0)).offset == 4
    assert "g1" not in image.pending


def test_of_two_transactions_the_one_that_wrote_last_stands_however_they_end():
    for first, second in ((12, 13), (13, 12)):
        image = GroupImage()
        image.replay(commit(5), 12)
        image.replay(commit(6), 13)

        image.replay_marker(first, commits=True)
        assert image.pending.has("g1", ("orders", 0))
        image.replay_marker(second, commits=True)

        assert image.offsets.get("g1", ("orders", 0)).offset == 6
        assert "g1" not in image.pending


def test_what_a_transaction_wrote_first_stands_when_the_one_behind_it_aborts():
    image = GroupImage()
    image.replay(commit(5), 12)
    image.replay(commit(6), 13)

    image.replay_marker(13, commits=False)
    image.replay_marker(12, commits=True)

    assert image.offsets.get("g1", ("orders", 0)).offset == 5


def test_a_tombstone_takes_what_open_transactions_have_written_too():
    image = image_of(commit(1), commit(1, partition=1))
    image.replay(commit(5), 12)
    image.replay(commit(6), 13)
    image.replay(commit(7, partition=1), 12)

    image.replay(offset_tombstone("g1", "orders", 0))
    image.replay_marker(12, commits=True)
    image.replay_marker(13, commits=True)

    assert {name: committed.offset for name, committed in image.offsets.of_group("g1")} == {
        TopicPartitionName("orders", 1): 7
    }


# What is kept for others ---------------------------------------------------------------------------------------------


def kinds(image):
    """The groups of the newer protocols: their kinds by id."""
    return {group_id: group.kind for group_id, group in image.modern.items()}


KINDS = [
    (
        "consumer",
        GroupRecord(ConsumerGroupMetadataKey(group_id="g1"), ConsumerGroupMetadataValue(epoch=1), 0),
        GroupRecord(
            ConsumerGroupRegularExpressionKey(group_id="g1", regular_expression="a.*"),
            ConsumerGroupRegularExpressionValue(topics=["a"], version=1, timestamp=T),
            0,
        ),
    ),
    (
        "share",
        GroupRecord(ShareGroupMetadataKey(group_id="g1"), ShareGroupMetadataValue(epoch=1, metadata_hash=2), 0),
        GroupRecord(
            ShareGroupStatePartitionMetadataKey(group_id="g1"),
            ShareGroupStatePartitionMetadataValue(initializing_topics=[], initialized_topics=[], deleting_topics=[]),
            0,
        ),
    ),
    (
        "streams",
        GroupRecord(StreamsGroupMetadataKey(group_id="g1"), StreamsGroupMetadataValue(epoch=1, metadata_hash=2), 0),
        GroupRecord(StreamsGroupTopologyKey(group_id="g1"), StreamsGroupTopologyValue(epoch=1, subtopologies=[]), 0),
    ),
]


@pytest.mark.parametrize(("kind", "last", "other"), KINDS, ids=[kind for kind, _, _ in KINDS])
def test_a_group_of_another_kind_is_known_by_any_of_its_records_until_its_own_tombstone(kind, last, other):
    image = image_of(other)
    assert kinds(image) == {"g1": kind}

    image.replay(last)
    image.replay(GroupRecord(other.key, None, None))
    assert kinds(image) == {"g1": kind}

    image.replay(GroupRecord(last.key, None, None))
    assert not image.exists("g1")


def test_a_consumer_group_that_never_had_an_epoch_record_is_known_by_its_member():
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        subscribed_topic_names=[],
        subscribed_topic_regex="",
        server_assignor=None,
    )
    image = image_of(GroupRecord(ConsumerGroupMemberMetadataKey(group_id="g1", member_id="m"), value, 0))

    assert kinds(image) == {"g1": "consumer"}


def test_tombstones_of_another_kind_make_no_group():
    image = image_of(
        GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id="g1", member_id="m"), None, None),
        GroupRecord(ConsumerGroupPartitionMetadataKey(group_id="g1"), None, None),
        GroupRecord(ConsumerGroupMetadataKey(group_id="g1"), None, None),
        GroupRecord(ShareGroupMetadataKey(group_id="g1"), None, None),
    )

    assert contents(image) == {}


def test_a_tombstone_of_one_kind_leaves_a_group_of_another_alone():
    image = image_of(
        GroupRecord(ConsumerGroupMetadataKey(group_id="g1"), ConsumerGroupMetadataValue(epoch=1), 0),
        GroupRecord(ShareGroupMetadataKey(group_id="g1"), None, None),
    )

    assert kinds(image) == {"g1": "consumer"}


def test_a_consumer_group_that_becomes_a_classic_one_is_one():
    image = image_of(
        GroupRecord(ConsumerGroupMetadataKey(group_id="g1"), ConsumerGroupMetadataValue(epoch=1), 0),
        GroupRecord(ConsumerGroupMetadataKey(group_id="g1"), None, None),
        group_record("g1", GroupMetadata(protocol_type="consumer", generation=5)),
    )

    assert kinds(image) == {}
    assert image.groups["g1"].generation == 5


# What is not known ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unknown",
    [
        decode_group_record(bytes.fromhex("0063 00026731"), b"\0\0"),
        decode_group_record(bytes.fromhex("0009 00026731"), None),
        decode_group_record(bytes.fromhex("0001 00026731 00066f7264657273 00000000"), bytes.fromhex("0005 00")),
        decode_group_record(bytes.fromhex("0002 00026731"), bytes.fromhex("0005 00")),
    ],
    ids=["a key of a type to come", "a type that never was", "a commit of a version to come", "a group of one"],
)
def test_a_record_that_is_not_known_changes_nothing(unknown):
    assert isinstance(unknown, UnknownRecord)
    records = [group_record("g1", GroupMetadata(protocol_type="consumer", generation=2)), commit(5)]

    assert contents(image_of(*records, unknown)) == contents(image_of(*records))
