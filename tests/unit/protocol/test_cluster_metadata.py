"""The records of the metadata log."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.codec import Malformed, Unencodable
from protocol.records.cluster_metadata import (
    RECORD_TYPES,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnknownRecord,
    decode_record,
    encode_record,
)
from protocol.schema import describe
from tests.unit.protocol.declared import examples

TOPIC_ID = bytes(range(16))


def test_a_feature_level_as_kafka_frames_it() -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=0x15)
    value = bytes.fromhex("01 0c 00 11 6d657461646174612e76657273696f6e 0015 00")

    assert encode_record(record, 0) == value
    assert decode_record(value) == (record, 0)


@pytest.mark.parametrize(
    ("cls", "version"),
    [(cls, version) for cls in RECORD_TYPES.values() for version in range(describe(cls).versions[1] + 1)],
    ids=lambda thing: thing.__name__ if isinstance(thing, type) else f"v{thing}",
)
def test_every_record_comes_back_with_its_version(cls: type[Any], version: int) -> None:
    @settings(max_examples=5, deadline=None)
    @given(examples(cls, version))
    def comes_back(record: Any) -> None:
        assert decode_record(encode_record(record, version)) == (record, version)

    comes_back()


def test_a_change_that_says_nothing_takes_only_its_key() -> None:
    change = PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID)

    assert encode_record(change, 0) == bytes.fromhex("01 05 00 00000001") + TOPIC_ID + b"\0"
    assert (change.leader, change.leader_recovery_state, change.isr) == (-2, -1, None)


def test_a_partition_that_lost_its_leader_as_a_clean_stop_writes_it() -> None:
    change = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1]
    )
    tags = "04 00 01 01 01 04 ffffffff 06 05 02 00000001 07 05 02 00000001"

    assert encode_record(change, 2) == bytes.fromhex("01 05 02 00000000") + TOPIC_ID + bytes.fromhex(tags)


def test_an_empty_record_is_a_frame_and_no_tags() -> None:
    assert encode_record(NoOpRecord(), 0).hex() == "01140000"
    assert decode_record(bytes.fromhex("01180000")) == (EndTransactionRecord(), 0)


def test_a_record_of_unknown_type_is_kept_as_it_is() -> None:
    value = bytes.fromhex("01 e707 03 aabbcc")
    record, version = decode_record(memoryview(value))

    assert record == UnknownRecord(key=999, version=3, raw=value)
    assert version == 3
    assert encode_record(record, version) == value


def test_a_record_of_a_later_version_is_kept_as_it_is() -> None:
    value = encode_record(TopicRecord(name="orders", topic_id=TOPIC_ID), 0)
    later = value[:2] + b"\x07" + value[3:]

    assert decode_record(later) == (UnknownRecord(key=2, version=7, raw=later), 7)


def test_a_version_without_a_place_for_a_field_is_refused() -> None:
    partition = PartitionRecord(topic_id=TOPIC_ID, replicas=[1], isr=[1], directories=[TOPIC_ID])

    assert decode_record(encode_record(partition, 1)) == (partition, 1)
    with pytest.raises(Unencodable, match=r"PartitionRecord version 0 has no field for directories=.* version 1"):
        encode_record(partition, 0)


def test_cordoned_directories_need_the_newest_version_of_a_registration() -> None:
    change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, cordoned_log_dirs=[])

    assert encode_record(change, 3).hex() == "011103" + "00000001" + "0000000000000002" + "01" + "030101"
    with pytest.raises(Unencodable):
        encode_record(change, 2)


def test_a_fresh_registration_is_fenced() -> None:
    registration = RegisterBrokerRecord(
        broker_id=1, incarnation_id=TOPIC_ID, broker_epoch=3, end_points=[], features=[]
    )

    assert registration.fenced is True
    assert encode_record(registration, 3)[-3:].hex() == "010000"


def test_another_frame_version_is_refused() -> None:
    with pytest.raises(Malformed, match="frame version 0, expected 1"):
        decode_record(bytes.fromhex("00 14 00 00"))


def test_bytes_left_over_are_refused() -> None:
    with pytest.raises(Malformed, match="2 bytes are left over behind a NoOpRecord"):
        decode_record(bytes.fromhex("01 14 00 00 0000"))


@pytest.mark.parametrize("value", ["", "01", "0102", "010200", "0102 00 05 61"])
def test_a_record_that_ends_too_early_is_refused(value: str) -> None:
    with pytest.raises(Malformed):
        decode_record(bytes.fromhex(value))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_malformed(data: bytes) -> None:
    for value in (data, b"\1" + data):
        try:
            record, version = decode_record(value)
        except Malformed:
            continue
        again = decode_record(encode_record(record, version))
        assert encode_record(*again) == encode_record(record, version)
