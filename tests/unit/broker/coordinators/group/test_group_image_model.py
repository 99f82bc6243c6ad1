"""GroupImage: a random log is replayed and compared with a simple model, before and after compaction."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from broker.coordinators.group.image import GroupImage, GroupMetadata, MemberMetadata
from broker.coordinators.group.records import group_record, group_tombstone, offset_record, offset_tombstone
from broker.coordinators.group.requests import CommittedOffset, OffsetToCommit
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.group_metadata import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
    decode_group_record,
    encode_group_key,
    encode_group_value,
)
from tests.support.group_records import contents

GROUPS = ("g1", "g2")
PARTITIONS = [(topic, partition) for topic in ("orders", "refunds") for partition in (0, 1)]
PRODUCERS = (7, 8, 9)
UNKNOWN = UnknownRecord(type=99, raw_key=b"\0\x63", raw_value=b"?")


class Written(NamedTuple):
    """A record, or a marker, at its offset."""

    record: GroupRecord | UnknownRecord | None
    producer_id: int = -1
    commits: bool | None = None
    """Of a marker."""


def member(member_id):
    return MemberMetadata(member_id=member_id, rebalance_timeout_ms=60_000, session_timeout_ms=10_000)


groups = st.sampled_from(GROUPS)
partitions = st.sampled_from(PARTITIONS)
producers = st.sampled_from(PRODUCERS)
commits = st.builds(
    lambda group, where, offset, at, expires, producer_id: [
        Written(offset_record(group, OffsetToCommit(*where, offset, expire_timestamp=expires), at), producer_id)
    ],
    groups,
    partitions,
    st.integers(0, 9),
    st.integers(0, 3),
    st.sampled_from([-1, 5]),
    st.sampled_from([-1, *PRODUCERS]),
)
tombstones = st.builds(lambda group, where: [Written(offset_tombstone(group, *where))], groups, partitions)
metadata = st.builds(
    lambda group, generation, members: [
        Written(
            group_record(
                group,
                GroupMetadata(
                    protocol_type="consumer", generation=generation, members={name: member(name) for name in members}
                ),
            )
        )
    ],
    groups,
    st.integers(0, 3),
    st.lists(st.sampled_from(["m1", "m2"]), unique=True),
)
ends = st.builds(lambda producer_id, commits: [Written(None, producer_id, commits)], producers, st.booleans())
births = st.builds(
    lambda group: [
        Written(GroupRecord(ConsumerGroupMetadataKey(group_id=group), ConsumerGroupMetadataValue(epoch=1), 0))
    ],
    groups,
)
# As Kafka writes them: what is its members', and then what is the group's own.
deaths = st.builds(
    lambda group: [
        Written(GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group, member_id="m"), None, None)),
        Written(GroupRecord(ConsumerGroupMetadataKey(group_id=group), None, None)),
    ],
    groups,
)
others = st.sampled_from([[Written(group_tombstone(group))] for group in GROUPS] + [[Written(UNKNOWN)]])
logs = st.lists(st.one_of(commits, commits, tombstones, metadata, ends, births, deaths, others), max_size=30).map(
    lambda pieces: [written for piece in pieces for written in piece]
)


def replayed(log):
    image = GroupImage()
    for record, producer_id, commits in log:
        if record is None:
            image.replay_marker(producer_id, commits=commits)
        elif isinstance(record, UnknownRecord):
            image.replay(record, producer_id)
        else:
            value = None if record.value is None else encode_group_value(record.value, record.version)
            image.replay(decode_group_record(encode_group_key(record.key), value), producer_id)
    return image


def modelled(log):
    """As Kafka does it: every committed offset knows at which offset of the log its own record stands."""
    classic, consumer, committed, pending = {}, set(), {}, {}
    for position, (record, producer_id, commits) in enumerate(log):
        if record is None:
            for where, (at, value) in pending.pop(producer_id, {}).items():
                if commits and committed.get(where, (-1, None))[0] < at:
                    committed[where] = at, value
        elif isinstance(record, UnknownRecord):
            pass
        elif isinstance(record.key, OffsetCommitKey):
            where = record.key.group, record.key.topic, record.key.partition
            if record.value is None:
                for offsets in (committed, *pending.values()):
                    offsets.pop(where, None)
            elif producer_id == -1:
                committed[where] = position, record.value
            else:
                pending.setdefault(producer_id, {})[where] = position, record.value
        elif isinstance(record.key, GroupMetadataKey):
            classic[record.key.group] = record.value
        elif isinstance(record.key, ConsumerGroupMetadataKey):
            (consumer.discard if record.value is None else consumer.add)(record.key.group_id)
    return (
        {group: (value.generation, [m.member_id for m in value.members]) for group, value in classic.items() if value},
        consumer,
        {where: as_committed(value) for where, (_, value) in committed.items()},
        {(producer_id, *where) for producer_id, offsets in pending.items() for where in offsets},
    )


def as_committed(value):
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def seen(image):
    return (
        {group: (value.generation, list(value.members)) for group, value in image.groups.items()},
        set(image.modern),
        {
            (group, name.topic, name.partition): committed
            for group in image.offsets.groups()
            for name, committed in image.offsets.of_group(group)
        },
        {
            (producer_id, *name[1:3], int(name[3]))
            for name, offsets in contents(image).items()
            if name[0] == "pending offset"
            for producer_id, _ in offsets
        },
    )


def compacted(log):
    """What is left when the cleaner has been there: of each key the last record. It leaves everything from the first
    record of an open transaction on alone, and drops what was aborted."""
    outcome, open_since = {}, {}
    for position, (record, producer_id, commits) in enumerate(log):
        if record is None:
            outcome |= dict.fromkeys(open_since.pop(producer_id, ()), commits)
        elif producer_id != -1:
            open_since.setdefault(producer_id, []).append(position)
    end = min((positions[0] for positions in open_since.values()), default=len(log))
    last = {}
    for position, (record, producer_id, _) in enumerate(log[:end]):
        if isinstance(record, GroupRecord) and (producer_id == -1 or outcome[position]):
            last[encode_group_key(record.key)] = position
    return [
        written
        for position, written in enumerate(log)
        if position >= end
        or not isinstance(written.record, GroupRecord)
        or last.get(encode_group_key(written.record.key)) == position
    ]


@given(logs)
def test_a_log_adds_up_to_what_the_model_says(log):
    assert seen(replayed(log)) == modelled(log)


@given(logs)
def test_a_compacted_log_adds_up_to_the_same(log):
    assert contents(replayed(compacted(log))) == contents(replayed(log))


@given(logs)
def test_what_is_over_and_deleted_leaves_nothing_behind_that_would_grow(log):
    deletions = [
        *(Written(None, producer_id, commits=False) for producer_id in PRODUCERS),
        *(Written(offset_tombstone(group, *where)) for group in GROUPS for where in PARTITIONS),
        *(Written(group_tombstone(group)) for group in GROUPS),
        *(Written(GroupRecord(ConsumerGroupMetadataKey(group_id=group), None, None)) for group in GROUPS),
    ]
    image = replayed([*log, *deletions])

    assert contents(image) == {}
    assert (image.pending._by_group, image.pending._by_producer, image.offsets._by_group) == ({}, {}, {})
