"""Batches of metadata records, and snapshot files made of them."""

import pytest

from broker.raft.batches import decode_batches, encode_control_records, encode_records
from broker.raft.quorum import Quorum, leader_change, read_leader_epoch, write_quorum_state
from broker.raft.snapshots import SnapshotId, encode_snapshot, list_snapshots
from protocol.records.cluster_metadata import FeatureLevelRecord, PartitionRecord
from protocol.records.control_records import KRaftVersion, KRaftVoters, LeaderChange, SnapshotFooter, SnapshotHeader
from storage.batch.records import iterate_records
from storage.errors import CorruptBatch, CorruptCheckpoint
from storage.files import FileSystem

NOW = 1795193860699
DIRECTORY = bytes.fromhex("7d6f904af3aa482a9ef5d210a29f4696")
VOTERS = KRaftVoters(
    voters=[
        KRaftVoters.Voter(
            voter_id=1,
            voter_directory_id=DIRECTORY,
            endpoints=[KRaftVoters.Voter.Endpoint(name="CONTROLLER", host="127.0.0.1", port=19393)],
            kraft_version_feature=KRaftVoters.Voter.KRaftVersionFeature(
                min_supported_version=0, max_supported_version=1
            ),
        )
    ]
)

# What `kafka-storage format --standalone` of Apache Kafka 4.3.1 wrote as 00000000000000000000-0000000000.checkpoint.
# Its footer batch was stamped 6 ms later than the rest.
KAFKAS_FIRST_SNAPSHOT = bytes.fromhex(
    "00000000000000000000009a0000000002891ef76b002000000002000001a1f9e4725b000001a1f9e4725bffffffffffffff"
    "ffffffffffffff000000032a0000000800000003160000000001a1f9e4725300001e00000208000000050a00000001000082"
    "0100000408000000066e000002000000017d6f904af3aa482a9ef5d210a29f4696020b434f4e54524f4c4c45520a3132372e"
    "302e302e314bc100000000010000000000000000000000030000003f000000000222ebeb85002000000000000001a1f9e472"
    "61000001a1f9e47261ffffffffffffffffffffffffffff000000011a00000008000000040600000000"
)


def test_the_first_snapshot_is_byte_for_byte_what_kafka_writes():
    content = encode_snapshot(
        [],
        quorum=Quorum(kraft_version=1, voters=VOTERS),
        epoch=0,
        last_contained_timestamp_ms=1795193860691,
        now_ms=NOW,
    )

    assert content[:166] == KAFKAS_FIRST_SNAPSHOT[:166]
    assert len(content) == len(KAFKAS_FIRST_SNAPSHOT)
    assert content[166 + 61 :] == KAFKAS_FIRST_SNAPSHOT[166 + 61 :]


def test_a_snapshot_begins_with_its_header_and_the_voters_and_ends_with_its_footer():
    records = [(FeatureLevelRecord(name=f"feature-{number}", feature_level=1), 0) for number in range(2500)]

    content = encode_snapshot(
        records,
        quorum=Quorum(kraft_version=1, voters=VOTERS),
        epoch=3,
        last_contained_timestamp_ms=77,
        now_ms=NOW,
    )
    first, *data, last = decode_batches(memoryview(content))

    assert first.control_records == [
        SnapshotHeader(last_contained_log_timestamp=77),
        KRaftVersion(kraft_version=1),
        VOTERS,
    ]
    assert last.control_records == [SnapshotFooter()]
    assert [record for batch in data for record in batch.records] == [record for record, _ in records]
    assert len(data) == 3
    assert {batch.leader_epoch for batch in (first, *data, last)} == {3}
    assert [batch.base_offset for batch in (first, *data, last)] == [0, 3, 1027, 2051, 2503]


def test_a_batch_of_control_records_says_so():
    batch = encode_control_records([leader_change(1)], base_offset=9, leader_epoch=2, now_ms=NOW)

    (decoded,) = decode_batches(memoryview(batch))

    assert decoded.control_records == [
        LeaderChange(
            leader_id=1, voters=[LeaderChange.Voter(voter_id=1)], granting_voters=[LeaderChange.Voter(voter_id=1)]
        )
    ]
    assert (decoded.base_offset, decoded.next_offset, decoded.leader_epoch, decoded.size) == (9, 10, 2, len(batch))


def test_the_leader_change_is_the_one_that_kafka_writes():
    batch = encode_control_records([leader_change(1)], base_offset=0, leader_epoch=1, now_ms=NOW)

    (record,) = iterate_records(batch)

    assert record.key.hex() == "00000002"
    assert record.value.hex() == "00000000000102000000010002000000010000"


def test_a_partition_record_has_the_bytes_that_kafka_writes():
    record = PartitionRecord(
        partition_id=0,
        topic_id=bytes.fromhex("ab0e76a916e5479ca6ec492b736bb975"),
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY],
    )

    (stored,) = iterate_records(encode_records([(record, 2)], base_offset=0, leader_epoch=1, now_ms=NOW))

    assert stored.value.hex() == (
        "010302"
        "00000000"
        "ab0e76a916e5479ca6ec492b736bb975"
        "0200000001"
        "0200000001"
        "01"
        "01"
        "00000001"
        "00000000"
        "00000000"
        "02" + DIRECTORY.hex() + "00"
    )
    assert stored.key is None


def test_batches_are_read_up_to_one_that_is_cut_off():
    batch = encode_records(
        [(FeatureLevelRecord(name="a", feature_level=1), 0)], base_offset=0, leader_epoch=1, now_ms=NOW
    )

    assert len(list(decode_batches(memoryview(batch + batch[:-1])))) == 1
    assert len(list(decode_batches(memoryview(batch + batch[:20])))) == 1


def test_what_is_no_batch_of_magic_2_is_refused():
    batch = encode_records(
        [(FeatureLevelRecord(name="a", feature_level=1), 0)], base_offset=0, leader_epoch=1, now_ms=NOW
    )
    of_magic_1 = bytearray(batch)
    of_magic_1[16] = 1

    with pytest.raises(CorruptBatch, match=f"position {len(batch)}: there is magic 1 where a batch of magic 2"):
        list(decode_batches(memoryview(batch + of_magic_1)))
    with pytest.raises(CorruptBatch, match="position 0: there are zeros where a batch is expected"):
        list(decode_batches(memoryview(bytes(100))))


def test_snapshots_are_listed_oldest_first_and_other_files_are_not(tmp_path):
    for name in (
        "00000000000000000200-0000000002.checkpoint",
        "00000000000000000000-0000000000.checkpoint",
        "00000000000000000300-0000000002.checkpoint.part",
        "00000000000000000000.log",
        "quorum-state",
    ):
        (tmp_path / name).touch()

    assert list_snapshots(FileSystem(), str(tmp_path)) == [SnapshotId(0, 0), SnapshotId(200, 2)]
    assert SnapshotId(200, 2).file_name == "00000000000000000200-0000000002.checkpoint"
    assert list_snapshots(FileSystem(), str(tmp_path / "missing")) == []


@pytest.mark.parametrize(
    ("kraft_version", "text"),
    [
        (
            0,
            '{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
            '"currentVoters":[{"voterId":1}],"data_version":0}',
        ),
        (
            1,
            '{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        ),
    ],
)
def test_quorum_state_is_written_as_kafka_writes_it(tmp_path, kraft_version, text):
    path = str(tmp_path / "quorum-state")

    write_quorum_state(FileSystem(), path, node_id=1, leader_epoch=3, kraft_version=kraft_version)

    assert (tmp_path / "quorum-state").read_text() == text
    assert read_leader_epoch(FileSystem(), path) == 3


def test_without_quorum_state_no_epoch_has_been(tmp_path):
    assert read_leader_epoch(FileSystem(), str(tmp_path / "quorum-state")) == 0


def test_a_damaged_quorum_state_is_not_taken_for_a_missing_one(tmp_path):
    (tmp_path / "quorum-state").write_text('{"leaderId":1')

    with pytest.raises(CorruptCheckpoint):
        read_leader_epoch(FileSystem(), str(tmp_path / "quorum-state"))
