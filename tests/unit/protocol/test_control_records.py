"""Control records: keys and values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.codec import Malformed
from protocol.records.control_records import (
    ControlRecord,
    ControlRecordType,
    EndTransactionMarker,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    decode_control_key,
    decode_control_value,
    encode_control_key,
    encode_control_value,
)

Type = ControlRecordType
Voter = LeaderChange.Voter

VALUES: list[tuple[ControlRecordType, ControlRecord, str]] = [
    (Type.ABORT, EndTransactionMarker(coordinator_epoch=5), "0000 00000005"),
    (Type.COMMIT, EndTransactionMarker(coordinator_epoch=0), "0000 00000000"),
    # As Apache Kafka 4.3.1 writes it at kraft.version 1.
    (
        Type.LEADER_CHANGE,
        LeaderChange(leader_id=1, voters=[Voter(voter_id=1)], granting_voters=[Voter(voter_id=1)]),
        "0000 00000001 02 00000001 00 02 00000001 00 00",
    ),
    (
        Type.LEADER_CHANGE,
        LeaderChange(
            version=1, leader_id=1, voters=[Voter(voter_id=1, voter_directory_id=b"d" * 16)], granting_voters=[]
        ),
        "0001 00000001 02 00000001 64646464646464646464646464646464 00 01 00",
    ),
    (Type.SNAPSHOT_HEADER, SnapshotHeader(last_contained_log_timestamp=0), "0000 0000000000000000 00"),
    (Type.SNAPSHOT_FOOTER, SnapshotFooter(), "0000 00"),
    (Type.KRAFT_VERSION, KRaftVersion(kraft_version=1), "0000 0001 00"),
    (
        Type.KRAFT_VOTERS,
        KRaftVoters(
            voters=[
                KRaftVoters.Voter(
                    voter_id=1,
                    voter_directory_id=b"d" * 16,
                    endpoints=[KRaftVoters.Voter.Endpoint(name="CONTROLLER", host="h", port=9093)],
                    kraft_version_feature=KRaftVoters.Voter.KRaftVersionFeature(
                        min_supported_version=0, max_supported_version=1
                    ),
                )
            ]
        ),
        "0000 02 00000001 64646464646464646464646464646464 02 0b 434f4e54524f4c4c4552 02 68 2385 00 0000 0001 00 00 00",
    ),
]


@pytest.mark.parametrize(("record_type", "record", "encoded"), VALUES, ids=lambda it: getattr(it, "name", None))
def test_a_value_has_the_bytes_that_kafka_gives_it(
    record_type: ControlRecordType, record: ControlRecord, encoded: str
) -> None:
    assert encode_control_value(record) == bytes.fromhex(encoded)
    assert decode_control_value(record_type, bytes.fromhex(encoded)) == record


def test_a_key_is_a_version_and_a_type() -> None:
    assert encode_control_key(Type.COMMIT).hex() == "00000001"
    for record_type in ControlRecordType:
        assert decode_control_key(encode_control_key(record_type)) is record_type


def test_an_unknown_type_is_to_be_skipped() -> None:
    assert decode_control_key(bytes.fromhex("0000 0063")) is None
    assert decode_control_key(bytes.fromhex("0000 ffff")) is None


def test_a_key_of_a_later_version_begins_like_ours() -> None:
    assert decode_control_key(bytes.fromhex("0001 0001 aabb")) is Type.COMMIT


@pytest.mark.parametrize("key", ["", "000000", "ffff0001"])
def test_a_key_that_is_too_short_or_below_version_0_is_refused(key: str) -> None:
    with pytest.raises(Malformed):
        decode_control_key(bytes.fromhex(key))


def test_a_marker_of_a_later_version_is_read_as_far_as_ours_goes() -> None:
    assert decode_control_value(Type.ABORT, bytes.fromhex("0001 00000005 aabb")) == EndTransactionMarker(
        version=1, coordinator_epoch=5
    )


@pytest.mark.parametrize("value", ["", "00", "0002 00000001 01 01 00", "ffff 00000001 01 01 00", "0000 00000001 7f"])
def test_a_leader_change_of_an_unknown_version_or_cut_short_is_refused(value: str) -> None:
    with pytest.raises(Malformed):
        decode_control_value(Type.LEADER_CHANGE, bytes.fromhex(value))


@given(st.sampled_from(ControlRecordType), st.binary(max_size=60))
def test_any_bytes_are_a_value_or_malformed(record_type: ControlRecordType, data: bytes) -> None:
    try:
        record = decode_control_value(record_type, data)
    except Malformed:
        return
    if record.version == 0:
        assert decode_control_value(record_type, encode_control_value(record)) == record
