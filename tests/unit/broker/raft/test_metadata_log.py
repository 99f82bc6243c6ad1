"""The metadata log: durability, order of publication, epochs, snapshots, and directories of other nodes."""

import errno
import json

import pytest

from broker.controller.topic_creation import NewTopic
from broker.metadata.image.records import InconsistentMetadata
from broker.raft.batches import decode_batches
from broker.raft.single_voter_log import RECOVERY_POINT_AFTER_MS, RETRY_MS
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import ConfigRecord, FeatureLevelRecord, TopicRecord, UnknownRecord
from protocol.records.control_records import KRaftVersion, KRaftVoters, LeaderChange
from storage.errors import DiskFull, LogDirFailed, TooManyOpenFiles
from storage.files import File, FileSystem
from tests.support.files import FaultyFileSystem
from tests.unit.broker.metadata.metadata_node import MetadataNode

LOG = "__cluster_metadata-0/00000000000000000000.log"


def topic_record(number):
    return TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big"))


def append(node, *records):
    """Append and say, once it is published, what the image had then."""
    seen = []
    node.log.append([(record, 0) for record in records], lambda: seen.append(sorted(node.image.topics.by_name)))
    return seen


def log_directory(tmp_path):
    return sorted(path.name for path in (tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))


def batches_on_disk(node):
    with open(f"{node.directory}/{LOG}", "rb") as file:
        return list(decode_batches(memoryview(file.read())))


def test_nothing_is_published_before_it_is_on_disk(tmp_path):
    node = MetadataNode(tmp_path)

    seen = append(node, topic_record(1))
    assert seen == []
    assert node.image.topics.by_name == {}
    assert node.deltas == []
    node.worker.work()

    assert seen == [["t1"]]
    assert [list(delta.topics.created) for delta in node.deltas] == [["t1"]]
    assert node.image.end_offset == node.log.end_offset


def test_one_fsync_serves_everything_appended_before_it(tmp_path):
    node = MetadataNode(tmp_path)

    first = append(node, topic_record(1))
    second = append(node, topic_record(2))
    third = append(node, topic_record(3))
    assert len(node.worker.jobs) == 1

    node.worker.work_once()
    assert (first, second, third) == ([["t1"]], [], [])
    assert len(node.worker.jobs) == 1

    node.worker.work_once()
    assert (second, third) == ([["t1", "t2", "t3"]], [["t1", "t2", "t3"]])
    assert [list(delta.topics.created) for delta in node.deltas] == [["t1"], ["t2", "t3"]]


def test_an_answer_that_rests_on_a_change_under_way_waits_for_it(tmp_path):
    node = MetadataNode(tmp_path)
    told = []
    node.log.when_durable(lambda: told.append("at once"))
    assert told == ["at once"]

    append(node, topic_record(1))
    node.log.when_durable(lambda: told.append("later"))
    assert told == ["at once"]
    node.worker.work()

    assert told == ["at once", "later"]


def test_what_was_appended_is_there_after_a_restart(tmp_path):
    node = MetadataNode(tmp_path)
    node.create(NewTopic(name="orders", partitions=2, configs=[("retention.ms", "5")]))
    unknown = UnknownRecord(key=99, version=0, raw=b"\x01\x63\x00what is this")
    append(node, unknown)
    node.stop()
    before = list(node.image.records())

    again = MetadataNode(tmp_path, was_clean=True, registers=False)

    assert list(again.image.records()) == before
    assert unknown in before


def test_what_was_written_survives_a_node_that_is_killed(tmp_path):
    node = MetadataNode(tmp_path)
    node.create(NewTopic(name="orders"))
    node.worker.work()
    with open(f"{tmp_path}/{LOG}", "ab") as file:
        file.write(b"a batch that was not")

    again = MetadataNode(tmp_path)

    assert list(again.image.topics.by_name) == ["orders"]
    assert append(again, topic_record(1)) == []
    again.stop()
    assert sorted(MetadataNode(tmp_path, was_clean=True).image.topics.by_name) == ["orders", "t1"]


def test_the_first_epoch_begins_with_the_voters_and_later_ones_without(tmp_path):
    MetadataNode(tmp_path).stop()
    node = MetadataNode(tmp_path, was_clean=True)

    opening = [batch for batch in batches_on_disk(node) if batch.control_records]

    assert [batch.leader_epoch for batch in opening] == [1, 2]
    assert [type(record) for record in opening[0].control_records] == [LeaderChange, KRaftVersion, KRaftVoters]
    assert [type(record) for record in opening[1].control_records] == [LeaderChange]
    assert opening[0].base_offset == 0


def test_every_start_is_a_new_epoch_that_quorum_state_knows_first(tmp_path):
    for epoch in (1, 2, 3):
        node = MetadataNode(tmp_path)
        state = json.loads((tmp_path / "__cluster_metadata-0/quorum-state").read_text())
        assert node.log.leader_epoch == epoch
        assert (state["leaderEpoch"], state["leaderId"], state["data_version"]) == (epoch, 1, 1)


def test_the_epoch_rises_above_what_quorum_state_says(tmp_path):
    MetadataNode(tmp_path).stop()
    state = tmp_path / "__cluster_metadata-0/quorum-state"
    state.write_text(state.read_text().replace('"leaderEpoch":1', '"leaderEpoch":41'))

    assert MetadataNode(tmp_path, was_clean=True).log.leader_epoch == 42


def test_the_epoch_rises_above_the_logs_own_where_quorum_state_is_lost(tmp_path):
    MetadataNode(tmp_path).stop()
    MetadataNode(tmp_path, was_clean=True).stop()
    (tmp_path / "__cluster_metadata-0/quorum-state").unlink()

    assert MetadataNode(tmp_path, was_clean=True).log.leader_epoch == 3


def test_a_snapshot_is_due_after_so_many_bytes_and_stands_for_the_log_before_it(tmp_path):
    node = MetadataNode(tmp_path, metadata_log_max_record_bytes_between_snapshots=5000)
    for number in range(1, 101):
        append(node, topic_record(number))
    node.worker.work()
    *_, name = log_directory(tmp_path)
    assert name == f"{node.log.end_offset:020d}-0000000001.checkpoint"
    node.stop()

    # With the records gone from the log, only the snapshot knows of the topics.
    content = (tmp_path / LOG).read_bytes()
    (tmp_path / LOG).write_bytes(content.replace(b"t99", b"u99"))
    again = MetadataNode(tmp_path, was_clean=True, registers=False)

    assert len(again.image.topics.by_name) == 100
    assert "t99" in again.image.topics.by_name
    assert again.log.quorum.voters is not None


def test_a_snapshot_is_due_after_so_much_time_once_something_is_appended(tmp_path):
    node = MetadataNode(tmp_path, metadata_log_max_snapshot_interval_ms=1000)
    node.clock.advance(1000)
    node.worker.work()
    assert len(log_directory(tmp_path)) == 1

    append(node, topic_record(1))
    node.worker.work()

    assert len(log_directory(tmp_path)) == 2


def test_two_snapshots_are_kept(tmp_path):
    node = MetadataNode(tmp_path)
    for number in (1, 2, 3):
        append(node, topic_record(number))
        node.worker.work()
        node.log.write_snapshot()
        node.worker.work()

    assert log_directory(tmp_path) == [
        f"{node.log.end_offset - 1:020d}-0000000001.checkpoint",
        f"{node.log.end_offset:020d}-0000000001.checkpoint",
    ]


@pytest.mark.parametrize("lack", [DiskFull, TooManyOpenFiles])
def test_a_system_without_room_for_a_snapshot_is_no_reason_to_stop(tmp_path, lack):
    class NoRoom(FileSystem):
        def replace_atomically(self, path, data, *, fsync, mode=0o644):
            if path.endswith(".checkpoint") and "/00000000000000000000-" not in path and "bootstrap" not in path:
                raise lack(f"writing {path}: no room")
            super().replace_atomically(path, data, fsync=fsync, mode=mode)

    node = MetadataNode(tmp_path, files=NoRoom())
    node.log.write_snapshot()
    node.worker.work()

    assert node.fatal == []
    assert len(log_directory(tmp_path)) == 1


def test_old_segments_go_when_the_log_is_too_large_and_a_snapshot_stands_for_them(tmp_path):
    node = MetadataNode(tmp_path, metadata_max_retention_bytes=0, metadata_log_segment_bytes=1000)
    for number in range(1, 31):
        append(node, topic_record(number))
    node.worker.work()
    node.log.write_snapshot()
    node.worker.work()
    assert (tmp_path / LOG).exists(), "the snapshot before this one needs it"

    node.log.write_snapshot()
    node.worker.work()
    append(node, topic_record(31))
    node.worker.work()
    node.log.write_snapshot()
    node.worker.work()

    assert not (tmp_path / LOG).exists()
    node.stop()
    assert len(MetadataNode(tmp_path, was_clean=True).image.topics.by_name) == 31


@pytest.mark.parametrize(("kept_ms", "goes"), [(60_000, True), (600_000, False), (-1, False)])
def test_segments_below_both_snapshots_go_once_their_records_are_too_old(tmp_path, kept_ms, goes):
    node = MetadataNode(tmp_path, metadata_max_retention_ms=kept_ms, metadata_log_segment_bytes=1000)

    def write(*numbers):
        for number in numbers:
            append(node, topic_record(number))
        node.worker.work()
        node.log.write_snapshot()
        node.worker.work()

    write(*range(1, 31))
    node.clock.advance(100_000)
    write(31)
    write(32)
    assert (tmp_path / LOG).exists() is not goes
    node.stop()
    assert len(MetadataNode(tmp_path, was_clean=True).image.topics.by_name) == 32


def test_of_segments_below_both_snapshots_those_with_young_records_stay(tmp_path):
    node = MetadataNode(tmp_path, metadata_max_retention_ms=60_000, metadata_log_segment_bytes=1000)
    for number in range(1, 31):
        append(node, topic_record(number))
        node.clock.advance(10_000)
    node.worker.work()
    for number in (31, 32):
        append(node, topic_record(number))
        node.worker.work()
        node.log.write_snapshot()
        node.worker.work()

    kept = sorted(int(path.stem) for path in tmp_path.glob("__cluster_metadata-0/*.log"))
    assert kept[0] > 0
    assert len(kept) > 1, "the last minute has more than one segment"


class FailingFile(File):
    __slots__ = ()
    is_broken = False

    def fsync(self):
        if FailingFile.is_broken and self.path.endswith(".log"):
            raise LogDirFailed(f"flushing {self.path}: broken")
        super().fsync()

    def pwrite(self, data, position):
        if FailingFile.is_broken == "writing" and self.path.endswith(".log"):
            raise LogDirFailed(f"writing to {self.path}: broken")
        super().pwrite(data, position)


class FailingFiles(FileSystem):
    def _file(self, path, fd):
        return FailingFile(path, fd)


@pytest.fixture
def breakable():
    yield FailingFile
    FailingFile.is_broken = False


def test_a_failed_fsync_is_fatal_and_nothing_is_answered(tmp_path, breakable):
    node = MetadataNode(tmp_path, files=FailingFiles())
    breakable.is_broken = "syncing"

    seen = append(node, topic_record(1))
    node.worker.work()

    assert seen == []
    assert [str(error) for error in node.fatal] == [f"flushing {tmp_path}/{LOG}: broken"]
    assert node.image.topics.by_name == {}
    with pytest.raises(LogDirFailed):
        append(node, topic_record(2))
    with pytest.raises(LogDirFailed):
        node.log.when_durable(lambda: seen.append("wrong"))
    assert len(node.fatal) == 1


def test_a_failed_write_is_fatal_and_the_controller_forgets_what_it_wanted(tmp_path, breakable):
    node = MetadataNode(tmp_path, files=FailingFiles())
    breakable.is_broken = "writing"

    with pytest.raises(LogDirFailed):
        node.create(NewTopic(name="orders"))

    assert len(node.fatal) == 1
    breakable.is_broken = False
    assert MetadataNode(tmp_path).image.topics.by_name == {}


@pytest.mark.parametrize("bytes_done", [0, 1, 60, 100])
@pytest.mark.parametrize("lack", [errno.ENOSPC, errno.EDQUOT])
def test_a_change_that_finds_no_room_is_refused_and_leaves_nothing_behind(tmp_path, caplog, lack, bytes_done):
    caplog.set_level("INFO")
    node = MetadataNode(tmp_path, files=FaultyFileSystem())
    before = (tmp_path / LOG).stat().st_size
    for _ in range(2):
        node.files.fail("write", lack, suffix=LOG, bytes_done=bytes_done)
        with pytest.raises(DiskFull):
            node.create(NewTopic(name="orders"))
        assert (tmp_path / LOG).stat().st_size == before

    assert node.fatal == []
    answers = node.create(NewTopic(name="orders"))
    node.worker.work()

    assert [answer.error for answer in answers] == [ErrorCode.NONE], "the controller had forgotten what it wanted"
    assert len([line for line in caplog.messages if "cannot be written now, changes are refused" in line]) == 1
    assert "the metadata log can be written again" in caplog.messages
    node.stop()
    assert list(MetadataNode(tmp_path, was_clean=True).image.topics.by_name) == ["orders"]


def test_what_was_appended_before_is_published_though_there_is_no_room_for_more(tmp_path):
    node = MetadataNode(tmp_path, files=FaultyFileSystem())
    seen = append(node, topic_record(1))
    node.files.fill_up()
    with pytest.raises(DiskFull):
        append(node, topic_record(2))
    node.worker.work()
    assert seen == [["t1"]]


def test_without_a_descriptor_for_a_new_segment_the_change_is_refused_and_the_next_one_is_not(tmp_path):
    node = MetadataNode(tmp_path, files=FaultyFileSystem(), metadata_log_segment_bytes=2000)
    while node.log._log.size < 1900:
        append(node, topic_record(node.log.end_offset))
    node.worker.work()
    node.files.fail("open", errno.EMFILE, suffix=f"{node.log.end_offset:020d}.log")
    with pytest.raises(TooManyOpenFiles):
        append(node, topic_record(100), topic_record(101))
    seen = append(node, topic_record(102), topic_record(103))
    node.worker.work()

    assert node.fatal == []
    assert "t103" in seen[0]
    assert "t101" not in seen[0]


def test_a_flush_that_finds_no_descriptor_is_owed(tmp_path):
    node = MetadataNode(tmp_path, files=FaultyFileSystem(), metadata_log_segment_bytes=1300)
    while len(node.log._log.segments) == 1:
        append(node, topic_record(node.log.end_offset))
    node.files.fail("open", errno.EMFILE, suffix="__cluster_metadata-0")  # to sync the names in it
    seen = append(node, topic_record(100))
    node.worker.work()
    assert (seen, node.fatal) == ([], [])

    more = append(node, topic_record(101))
    node.clock.advance(RETRY_MS)
    node.worker.work()

    assert ("t100" in seen[0], "t101" in more[0]) == (True, True)


def test_a_directory_of_another_node_is_refused(tmp_path):
    MetadataNode(tmp_path, node_id=1).stop()

    with pytest.raises(InconsistentMetadata, match="belongs to the voters 1; this is node 2"):
        MetadataNode(tmp_path, node_id=2, was_clean=True)


def test_a_directory_of_a_kafka_too_new_is_refused(tmp_path):
    node = MetadataNode(tmp_path)
    append(node, FeatureLevelRecord(name="metadata.version", feature_level=34))
    node.stop()

    with pytest.raises(InconsistentMetadata, match=r"metadata\.version 34; up to 33 can be read here"):
        MetadataNode(tmp_path, was_clean=True)


def test_a_log_that_ends_before_its_snapshot_is_refused(tmp_path):
    node = MetadataNode(tmp_path)
    node.stop()
    snapshots = tmp_path / "__cluster_metadata-0"
    (snapshots / "00000000000000000000-0000000000.checkpoint").rename(
        snapshots / "00000000000000009999-0000000000.checkpoint"
    )

    with pytest.raises(InconsistentMetadata, match="its newest snapshot, at 9999, does not fit"):
        MetadataNode(tmp_path, was_clean=True)


def test_a_log_that_contradicts_itself_is_refused_with_the_place(tmp_path):
    node = MetadataNode(tmp_path)
    node.log.append([(ConfigRecord(resource_type=2, resource_name="x", name="y", value="z"), 0)], lambda: None)
    offset = node.log.append([(topic_record(1), 0), (topic_record(1), 0)], lambda: None)

    with pytest.raises(InconsistentMetadata, match=f"batch at offset {offset}: topic t1 is created twice"):
        MetadataNode(tmp_path)


def damage(tmp_path, name):
    """Turn over a byte of a topic's name in the log; what the batch says of itself is as it was."""
    path = tmp_path / LOG
    content = bytearray(path.read_bytes())
    content[content.index(name)] ^= 0x20
    path.write_bytes(content)


def two_topics(tmp_path):
    """A node that has `t1` and `t2` on disk and was killed, a second after the flush."""
    node = MetadataNode(tmp_path)
    append(node, topic_record(1))
    append(node, topic_record(2))
    node.worker.work()
    node.clock.advance(RECOVERY_POINT_AFTER_MS)
    node.worker.work()
    return node


def test_what_the_disk_had_and_has_lost_is_not_cut_off_with_the_topics_behind_it(tmp_path):
    two_topics(tmp_path)
    damage(tmp_path, b"t1")

    with pytest.raises(InconsistentMetadata, match=r"the batch at offset \d+ names the CRC [0-9a-f]{8}, and its bytes"):
        MetadataNode(tmp_path)


def test_after_a_clean_stop_too_damage_is_found_and_refused(tmp_path):
    two_topics(tmp_path).stop()
    damage(tmp_path, b"t2")

    with pytest.raises(InconsistentMetadata, match="names the CRC"):
        MetadataNode(tmp_path, was_clean=True)


def test_an_end_that_the_disk_had_and_has_lost_is_refused(tmp_path):
    end_offset = two_topics(tmp_path).log.end_offset
    path = tmp_path / LOG
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(InconsistentMetadata, match=f"records from offset {end_offset - 1} to .* are lost"):
        MetadataNode(tmp_path)


def test_what_may_not_have_been_on_disk_is_cut_where_it_is_torn(tmp_path):
    node = two_topics(tmp_path)
    append(node, topic_record(3))
    append(node, topic_record(4))
    damage(tmp_path, b"t3")

    assert sorted(MetadataNode(tmp_path).image.topics.by_name) == ["t1", "t2"]


def test_a_recovery_point_that_finds_no_room_is_written_later(tmp_path, caplog):
    files = FaultyFileSystem()
    node = MetadataNode(tmp_path, files=files)
    node.clock.advance(RECOVERY_POINT_AFTER_MS)
    node.worker.work()
    path = tmp_path / "__cluster_metadata-0" / "recovery-point-offset-checkpoint"
    before = path.read_text()
    append(node, topic_record(1))
    node.worker.work()
    files.fill_up()
    node.clock.advance(RECOVERY_POINT_AFTER_MS)
    node.worker.work()
    assert path.read_text() == before
    assert "stays as it is" in caplog.text

    files.make_room()
    append(node, topic_record(2))
    node.worker.work()
    node.clock.advance(RECOVERY_POINT_AFTER_MS)
    node.worker.work()
    assert path.read_text() == f"0\n1\n__cluster_metadata 0 {node.log.end_offset}\n"
    assert node.fatal == []
