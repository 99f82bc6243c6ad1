"""Records of the coordinators' own topics: bytes that Kafka's classes made, or Apache Kafka 4.3.1 wrote."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.primitives import Malformed
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.group_metadata import (
    KEY_TYPES,
    VALUE_TYPES,
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_record,
    encode_group_key,
    encode_group_record,
    encode_group_value,
)
from protocol.records.transaction_state import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
    TransactionStatus,
    decode_transaction_record,
    encode_transaction_key,
    encode_transaction_value,
)
from tests.unit.protocol.declared import examples

T = 1_700_000_000_000
TOPIC_5 = bytes.fromhex("00000000000040008000000000000005")
TOPIC_P1 = bytes.fromhex("238adcac38fc4766b41ce623aae57763")
TargetPartitions = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
CurrentPartitions = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions

GROUP_RECORDS: list[tuple[str, str, Any, Any, int, str]] = [
    (
        "a committed offset",
        "0001 00026731 00066f7264657273 00000000",
        OffsetCommitKey(group="g1", topic="orders", partition=0),
        OffsetCommitValue(offset=42, leader_epoch=3, metadata="meta", commit_timestamp=T),
        3,
        "0003 000000000000002a 00000003 00046d657461 0000018bcfe56800",
    ),
    (
        "one with a retention of its own",
        "0001 00026731 00066f7264657273 00000000",
        OffsetCommitKey(group="g1", topic="orders", partition=0),
        OffsetCommitValue(offset=42, metadata="", commit_timestamp=T, expire_timestamp=T + 100_000),
        1,
        "0001 000000000000002a 0000 0000018bcfe56800 0000018bcfe6eea0",
    ),
    (
        "one with its topic's id",
        "0001 0000 00027031 00000000",
        OffsetCommitKey(group="", topic="p1", partition=0),
        OffsetCommitValue(offset=3, metadata="x", commit_timestamp=0x1A1FA0925A4, topic_id=TOPIC_P1),
        4,
        "0004 0000000000000003 ffffffff 02 78 000001a1fa0925a4 01 00 10 238adcac38fc4766b41ce623aae57763",
    ),
    (
        "one from within a transaction",
        "0001 0000 00027031 00000000",
        OffsetCommitKey(group="", topic="p1", partition=0),
        OffsetCommitValue(offset=17, leader_epoch=0, metadata="", commit_timestamp=0x1A1F9E4A215),
        4,
        "0004 0000000000000011 00000000 01 000001a1f9e4a215 00",
    ),
    (
        "a classic group",
        "0002 00026731",
        GroupMetadataKey(group="g1"),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=1,
            protocol="range",
            leader="m1",
            current_state_timestamp=T,
            members=[
                GroupMetadataValue.MemberMetadata(
                    member_id="m1",
                    client_id="c",
                    client_host="/127.0.0.1",
                    rebalance_timeout=300_000,
                    session_timeout=45_000,
                    subscription=b"\x00\x01",
                    assignment=b"\x02",
                )
            ],
        ),
        3,
        "0003 0008636f6e73756d6572 00000001 000572616e6765 00026d31 0000018bcfe56800 00000001"
        "00026d31 ffff 000163 000a2f3132372e302e302e31 000493e0 0000afc8 00000002 0001 00000001 02",
    ),
    (
        "a classic group that was just created",
        "0002 0002 6c67",
        GroupMetadataKey(group="lg"),
        GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=0x1A1FA092543,
            members=[],
        ),
        3,
        "0003 0000 00000000 ffff ffff 000001a1fa092543 00000000",
    ),
    (
        "a consumer group's epoch",
        "0003 00026731",
        ConsumerGroupMetadataKey(group_id="g1"),
        ConsumerGroupMetadataValue(epoch=5),
        0,
        "0000 00000005 00",
    ),
    (
        "the same with the hash of its topics",
        "0003 0002 6c67",
        ConsumerGroupMetadataKey(group_id="lg"),
        ConsumerGroupMetadataValue(epoch=2, metadata_hash=0x63B8F3D6D5A2944C),
        0,
        "0000 00000002 01 00 08 63b8f3d6d5a2944c",
    ),
    (
        "a member, no classic one",
        "0005 00026731 00026d31",
        ConsumerGroupMemberMetadataKey(group_id="g1", member_id="m1"),
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            subscribed_topic_names=["orders"],
            subscribed_topic_regex=None,
            rebalance_timeout_ms=300_000,
            server_assignor="uniform",
            classic_member_metadata=None,
        ),
        0,
        "0000 00 00 0263 0b2f3132372e302e302e31 02 076f7264657273 00 000493e0 08756e69666f726d 01 00 01 00",
    ),
    (
        "a member with an empty regex and no assignor",
        "0005 00026731 00026d31",
        ConsumerGroupMemberMetadataKey(group_id="g1", member_id="m1"),
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id="fc",
            client_host="/127.0.0.1",
            subscribed_topic_names=["p1"],
            subscribed_topic_regex="",
            rebalance_timeout_ms=10_000,
            server_assignor=None,
            classic_member_metadata=None,
        ),
        0,
        "0000 00 00 03 6663 0b 2f3132372e302e302e31 02 03 7031 01 00002710 00 01 00 01 00",
    ),
    (
        "the epoch of a target assignment",
        "0006 00026731",
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g1"),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=5),
        0,
        "0000 00000005 00",
    ),
    (
        "the same with its time",
        "0006 00026731",
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g1"),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=2, assignment_timestamp=0x1A1FA0A7D45),
        0,
        "0000 00000002 01 00 08 000001a1fa0a7d45",
    ),
    (
        "a member's target assignment",
        "0007 00026731 00026d31",
        ConsumerGroupTargetAssignmentMemberKey(group_id="g1", member_id="m1"),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[TargetPartitions(topic_id=TOPIC_5, partitions=[0, 1])]
        ),
        0,
        "0000 02 00000000000040008000000000000005 03 00000000 00000001 00 00",
    ),
    (
        "a member's current assignment",
        "0008 00026731 00026d31",
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g1", member_id="m1"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=5,
            previous_member_epoch=4,
            state=0,
            assigned_partitions=[CurrentPartitions(topic_id=TOPIC_5, partitions=[0, 1])],
            partitions_pending_revocation=[],
        ),
        0,
        "0000 00000005 00000004 00 02 00000000000040008000000000000005 03 00000000 00000001 00 01 00",
    ),
    (
        "the same with the epochs of its partitions",
        "0008 00026731 00026d31",
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g1", member_id="m1"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=0,
            state=0,
            assigned_partitions=[CurrentPartitions(topic_id=TOPIC_P1, partitions=[0, 1], assignment_epochs=[2, 2])],
            partitions_pending_revocation=[],
        ),
        0,
        "0000 00000002 00000000 00 02 238adcac38fc4766b41ce623aae57763 03 00000000 00000001"
        "01 00 09 03 00000002 00000002 01 00",
    ),
    (
        "an offset as brokers before 0.9 committed it",
        "0000 00026731 00066f7264657273 00000000",
        LegacyOffsetCommitKey(group="g1", topic="orders", partition=0),
        LegacyOffsetCommitValue(offset=42, metadata="", commit_timestamp=T),
        0,
        "0000 000000000000002a 0000 0000018bcfe56800",
    ),
]


@pytest.mark.parametrize(
    ("name", "key", "decoded_key", "decoded", "version", "value"), GROUP_RECORDS, ids=lambda it: it
)
def test_a_group_record_has_the_bytes_that_kafka_gives_it(
    name: str, key: str, decoded_key: Any, decoded: Any, version: int, value: str
) -> None:
    assert encode_group_key(decoded_key) == bytes.fromhex(key)
    assert encode_group_value(decoded, version) == bytes.fromhex(value)
    record = GroupRecord(decoded_key, decoded, version)
    assert encode_group_record(record) == (bytes.fromhex(key), bytes.fromhex(value))
    assert decode_group_record(bytes.fromhex(key), bytes.fromhex(value)) == record


def test_a_tombstone_has_a_key_and_nothing_else() -> None:
    key = GroupMetadataKey(group="g1")

    assert decode_group_record(encode_group_key(key), None) == GroupRecord(key, None, None)
    assert encode_group_record(GroupRecord(key, None, None)) == (encode_group_key(key), None)
    assert decode_transaction_record(bytes.fromhex("0000 0003747831"), None) == TransactionRecord(
        TransactionLogKey(transactional_id="tx1"), None, None
    )


def test_a_member_whose_tag_is_missing_counts_as_a_classic_one() -> None:
    # Kafka's classes take the default of the tagged struct for an empty one, not for null.
    value = bytes.fromhex("0000 00 00 0263 0b2f3132372e302e302e31 02 076f7264657273 00 000493e0 08756e69666f726d 00")

    record = decode_group_record(bytes.fromhex("0005 00026731 00026d31"), value)

    assert isinstance(record, GroupRecord)
    assert isinstance(record.value, ConsumerGroupMemberMetadataValue)
    assert record.value.classic_member_metadata == ClassicMemberMetadata()


@pytest.mark.parametrize(
    ("key", "value"),
    [("0009 0001", "0000 00"), ("0063 00026731", None), ("0003 00026731", "0001 00000005 00"), ("ffff", None)],
    ids=["a type never given out", "a type to come", "a version to come", "no type at all"],
)
def test_what_is_not_known_is_kept_as_it_is(key: str, value: str | None) -> None:
    raw_key, raw_value = bytes.fromhex(key), None if value is None else bytes.fromhex(value)

    assert decode_group_record(raw_key, raw_value) == UnknownRecord(
        type=int.from_bytes(raw_key[:2], "big", signed=True), raw_key=raw_key, raw_value=raw_value
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [("", None), ("00", None), ("0002 00036731", None), ("0002 00026731 00", None), ("0003 00026731", "00"),
     ("0003 00026731", "0000 00000005"), ("0003 00026731", "0000 00000005 00 00")],
)  # fmt: skip
def test_bytes_missing_or_left_over_are_refused(key: str, value: str | None) -> None:
    with pytest.raises(Malformed):
        decode_group_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def test_every_key_has_its_value() -> None:
    assert set(KEY_TYPES) == set(VALUE_TYPES) == {*range(9), *range(10, 18), *range(19, 24)}
    for number, key_type in KEY_TYPES.items():
        assert VALUE_TYPES[number].__name__ == key_type.__name__.removesuffix("Key") + "Value"


@given(st.data())
def test_what_is_written_is_read_again(data: st.DataObject) -> None:
    number = data.draw(st.sampled_from(sorted(KEY_TYPES)))
    key = data.draw(examples(KEY_TYPES[number], 0))
    newest = 4 if number in (1, 2) else 0
    value = data.draw(examples(VALUE_TYPES[number], newest))

    assert decode_group_record(encode_group_key(key), encode_group_value(value, newest)) == (key, value, newest)


PARTITIONS = [TransactionLogValue.PartitionsSchema(topic="orders", partition_ids=[0, 2])]

TRANSACTION_VALUES: list[tuple[str, TransactionLogValue, int, str]] = [
    (
        "an open one",
        TransactionLogValue(
            producer_id=4000,
            producer_epoch=1,
            transaction_timeout_ms=60_000,
            transaction_status=TransactionStatus.ONGOING,
            transaction_partitions=PARTITIONS,
            transaction_last_update_timestamp_ms=T + 100,
            transaction_start_timestamp_ms=T,
        ),
        0,
        "0000 0000000000000fa0 0001 0000ea60 01 00000001 00066f7264657273 00000002 00000000 00000002"
        "0000018bcfe56864 0000018bcfe56800",
    ),
    (
        "one of transaction.version 2",
        TransactionLogValue(
            producer_id=4000,
            previous_producer_id=4000,
            producer_epoch=1,
            transaction_timeout_ms=60_000,
            transaction_status=TransactionStatus.ONGOING,
            transaction_partitions=PARTITIONS,
            transaction_last_update_timestamp_ms=T + 100,
            transaction_start_timestamp_ms=T,
            client_transaction_version=2,
        ),
        1,
        "0001 0000000000000fa0 0001 0000ea60 01 02 076f7264657273 03 00000000 00000002 00 0000018bcfe56864"
        "0000018bcfe56800 02 00 08 0000000000000fa0 02 02 0002",
    ),
    (
        "none",
        TransactionLogValue(
            producer_id=4000,
            producer_epoch=0,
            transaction_timeout_ms=60_000,
            transaction_status=TransactionStatus.EMPTY,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=T + 100,
            transaction_start_timestamp_ms=-1,
        ),
        0,
        "0000 0000000000000fa0 0000 0000ea60 00 ffffffff 0000018bcfe56864 ffffffffffffffff",
    ),
]


@pytest.mark.parametrize(("name", "decoded", "version", "value"), TRANSACTION_VALUES, ids=lambda it: it)
def test_a_transaction_has_the_bytes_that_kafka_gives_it(
    name: str, decoded: TransactionLogValue, version: int, value: str
) -> None:
    key = TransactionLogKey(transactional_id="tx1")

    assert encode_transaction_key(key) == bytes.fromhex("0000 0003747831")
    assert encode_transaction_value(decoded, version) == bytes.fromhex(value)
    record = decode_transaction_record(bytes.fromhex("0000 0003747831"), bytes.fromhex(value))
    assert record == TransactionRecord(key, decoded, version)


def test_another_type_of_transaction_record_is_not_known() -> None:
    assert decode_transaction_record(b"\x00\x01abc", None) == UnknownRecord(
        type=1, raw_key=b"\x00\x01abc", raw_value=None
    )


@given(
    st.sampled_from([decode_group_record, decode_transaction_record]), st.binary(max_size=40), st.binary(max_size=80)
)
def test_any_bytes_are_a_record_or_malformed(decode: Any, key: bytes, value: bytes) -> None:
    try:
        decode(key, value)
    except Malformed:
        return
