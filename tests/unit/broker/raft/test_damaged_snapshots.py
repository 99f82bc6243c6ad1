"""Damaged metadata snapshots: no bit of a snapshot can turn over unseen, and the snapshot before it takes its place."""

import shutil

import pytest

from broker.metadata.image.records import InconsistentMetadata
from broker.raft.quorum import Quorum
from broker.raft.snapshots import SnapshotId, check_snapshot, encode_snapshot
from protocol.records.cluster_metadata import FeatureLevelRecord, TopicRecord
from protocol.records.control_records import KRaftVoters
from storage.errors import CorruptBatch
from tests.unit.broker.metadata.metadata_node import MetadataNode

LOG = "__cluster_metadata-0/00000000000000000000.log"
FIRST = SnapshotId(0, 0).file_name
BOOTSTRAP = "bootstrap.checkpoint"


def a_snapshot(epoch=3):
    records = [(FeatureLevelRecord(name="metadata.version", feature_level=25), 0)]
    records += [(TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big")), 0) for number in range(1100)]
    quorum = Quorum(kraft_version=1, voters=KRaftVoters(voters=[]))
    return encode_snapshot(records, quorum=quorum, epoch=epoch, last_contained_timestamp_ms=5, now_ms=7)


def turned_over(content, position, bit=0):
    damaged = bytearray(content)
    damaged[position] ^= 1 << bit
    return memoryview(damaged)


def turn_over(path, position, bit=0):
    content = turned_over(path.read_bytes(), position, bit)
    path.chmod(0o600)
    path.write_bytes(content)


def test_an_intact_snapshot_passes():
    check_snapshot(memoryview(a_snapshot()), 3)


def test_a_bit_that_turned_over_is_found_wherever_it_is():
    content = a_snapshot()
    first_batches = range(250)
    for position in (*first_batches, *range(250, len(content) - 200, 997), *range(len(content) - 200, len(content))):
        for bit in range(8) if position < 61 else (position % 8,):
            with pytest.raises(CorruptBatch, match=r"^position "):
                check_snapshot(turned_over(content, position, bit), 3)


def test_an_end_that_is_missing_is_found_wherever_it_begins():
    content = memoryview(a_snapshot())
    for size in (0, 1, 60, 61, *range(100, len(content), 499), len(content) - 1):
        with pytest.raises(CorruptBatch, match=r"^position "):
            check_snapshot(content[:size], 3)


def test_batches_of_another_snapshot_are_found():
    with pytest.raises(
        CorruptBatch, match="position 0: the batch there has offset 0 and epoch 2, expected offset 0 and"
    ):
        check_snapshot(memoryview(a_snapshot(epoch=2)), 3)


class Damaged:
    """A directory that was stopped with two snapshots, the newer of which lost a bit; `t1` to `t3` are in the log."""

    def __init__(self, tmp_path):
        self.directory = tmp_path
        node = MetadataNode(tmp_path)
        for number in (1, 2, 3):
            append(node, number)
            if number == 2:
                write_snapshot(node)
        node.stop()
        self.metadata = tmp_path / "__cluster_metadata-0"
        self.older, self.newer = sorted(self.metadata.glob("*.checkpoint"))
        turn_over(self.newer, self.newer.read_bytes().index(b"t2"))

    def snapshots(self):
        return sorted(path.name for path in self.metadata.glob("*.checkpoint*"))


@pytest.fixture
def damaged(tmp_path):
    return Damaged(tmp_path)


def append(node, number):
    record = TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big"))
    node.log.append([(record, 0)], lambda: None)
    node.worker.work()


def write_snapshot(node):
    node.log.write_snapshot()
    node.worker.work()


def test_the_snapshot_before_a_damaged_one_and_the_log_have_everything(damaged, caplog):
    node = MetadataNode(damaged.directory, was_clean=True)

    assert sorted(node.image.topics.by_name) == ["t1", "t2", "t3"]
    assert node.log.quorum.voters is not None
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith(f"{damaged.newer} is damaged: position ")
    assert f"read instead: {damaged.older.name} and the log behind it" in line


def test_a_damaged_snapshot_is_set_aside_and_takes_no_place_of_an_intact_one(damaged):
    node = MetadataNode(damaged.directory, was_clean=True)
    assert damaged.snapshots() == [damaged.older.name, f"{damaged.newer.name}.damaged"]

    write_snapshot(node)

    newest = SnapshotId(node.log.end_offset, node.log.leader_epoch).file_name
    assert damaged.snapshots() == [damaged.older.name, f"{damaged.newer.name}.damaged", newest]


def test_without_an_intact_snapshot_the_start_is_refused_and_nothing_is_changed(damaged):
    turn_over(damaged.older, 70)
    before = damaged.snapshots()

    with pytest.raises(InconsistentMetadata) as refused:
        MetadataNode(damaged.directory, was_clean=True)

    message = str(refused.value)
    assert message.startswith(f"{damaged.metadata} has no snapshot that is intact; {damaged.newer.name} is damaged: ")
    assert f"; {damaged.older.name} is damaged: position 0: the batch there names the CRC" in message
    assert damaged.snapshots() == before


def test_the_first_snapshot_is_not_gone_without(tmp_path):
    MetadataNode(tmp_path).stop()
    turn_over(tmp_path / "__cluster_metadata-0" / FIRST, 70)

    with pytest.raises(InconsistentMetadata, match=f"no snapshot that is intact; {FIRST} is damaged"):
        MetadataNode(tmp_path, was_clean=True)


def test_a_log_that_ends_before_a_damaged_snapshot_does_not_take_its_place(damaged):
    (damaged.directory / LOG).write_bytes(b"")

    with pytest.raises(InconsistentMetadata, match=f"has offsets 0 to 0, which .* {damaged.newer.name} is damaged"):
        MetadataNode(damaged.directory)


def test_a_log_that_begins_behind_the_intact_snapshot_does_not_take_its_place(tmp_path):
    node = MetadataNode(tmp_path, metadata_max_retention_bytes=0, metadata_log_segment_bytes=1000)
    for number in range(60):
        append(node, number)
        if number % 20 == 19:
            write_snapshot(node)
    node.stop()
    snapshots = sorted((tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))
    turn_over(snapshots[-1], 70)
    snapshots[0].rename(snapshots[0].with_name(SnapshotId(1, 1).file_name))

    with pytest.raises(
        InconsistentMetadata, match=r"has offsets [1-9]\d* to \d+, which its newest snapshot, at 1, does"
    ):
        MetadataNode(tmp_path, was_clean=True)


def test_a_log_that_was_cut_off_still_reaches_back_to_the_older_snapshot(tmp_path):
    node = MetadataNode(tmp_path, metadata_max_retention_bytes=0, metadata_log_segment_bytes=1000)
    for number in range(60):
        append(node, number)
        if number % 20 == 19:
            write_snapshot(node)
    assert not (tmp_path / LOG).exists()
    node.stop()
    turn_over(max((tmp_path / "__cluster_metadata-0").glob("*.checkpoint")), 70)

    assert len(MetadataNode(tmp_path, was_clean=True).image.topics.by_name) == 60


def test_a_damaged_bootstrap_file_is_named(tmp_path):
    """Kafka before 4.4 formats such a file."""
    MetadataNode(tmp_path).stop()
    shutil.copy(tmp_path / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint", tmp_path / BOOTSTRAP)
    turn_over(tmp_path / BOOTSTRAP, 100)
    MetadataNode(tmp_path).stop()  # the log has the records
    (tmp_path / "__cluster_metadata-0" / "00000000000000000000.log").unlink()

    with pytest.raises(InconsistentMetadata, match=f"{BOOTSTRAP} is damaged: position "):
        MetadataNode(tmp_path, was_clean=True)
