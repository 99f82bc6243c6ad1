"""Formatting: the content of a new directory, and of one whose formatting was interrupted."""

import os

import pytest

from broker.metadata.image.records import InconsistentMetadata
from broker.raft.batches import decode_batches
from broker.raft.formatting import format_directories, read_bootstrap
from broker.raft.quorum import Quorum
from broker.raft.snapshots import encode_snapshot
from broker.runtime.clock import SystemIds
from config.listeners import Listener
from config.release_versions import NEWEST, read_release_version
from protocol.records.cluster_metadata import ConfigRecord, FeatureLevelRecord
from protocol.records.control_records import KRaftVersion, KRaftVoters
from storage.checkpoints import format_id, read_meta_properties
from storage.files import FileSystem
from tests.unit.broker.metadata.metadata_node import CountedIds, MetadataNode

FIRST_SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def format_them(*directories, files=None, cluster_id=None, release_version=NEWEST):
    return format_directories(
        files or FileSystem(),
        [str(directory) for directory in directories],
        metadata_directory=str(directories[0]),
        node_id=3,
        cluster_id=cluster_id,
        controller_endpoint=Listener(name="CONTROLLER", host="localhost", port=9093),
        ids=CountedIds(),
        now_ms=5,
        date="Fri Nov 20 10:23:46 UTC 2026",
        release_version=release_version,
    )


def levels(*features):
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in features]


def test_all_directories_belong_to_one_cluster_and_each_has_an_id(tmp_path):
    format_them(tmp_path / "a", tmp_path / "b")

    a = read_meta_properties(FileSystem(), f"{tmp_path}/a/meta.properties")
    b = read_meta_properties(FileSystem(), f"{tmp_path}/b/meta.properties")
    assert (a.node_id, b.node_id) == (3, 3)
    assert a.cluster_id == b.cluster_id
    assert len(a.cluster_id) == 22
    assert a.directory_id != b.directory_id
    assert sorted(os.listdir(tmp_path / "b")) == ["meta.properties"]


def test_a_directory_that_is_added_joins_the_cluster(tmp_path):
    formatted = format_them(tmp_path, cluster_id="de0ohGe4TLC73WPV_09qrg")

    assert formatted[str(tmp_path)].cluster_id == "de0ohGe4TLC73WPV_09qrg"


def test_the_first_snapshot_names_this_node_as_the_voter(tmp_path):
    formatted = format_them(tmp_path)

    header, _, footer = decode_batches(memoryview((tmp_path / FIRST_SNAPSHOT).read_bytes()))
    _, version, voters = header.control_records
    assert version == KRaftVersion(kraft_version=1)
    (voter,) = voters.voters
    assert (voter.voter_id, voter.voter_directory_id) == (3, formatted[str(tmp_path)].directory_id)
    assert voter.endpoints == [KRaftVoters.Voter.Endpoint(name="CONTROLLER", host="localhost", port=9093)]
    assert oct((tmp_path / FIRST_SNAPSHOT).stat().st_mode & 0o777) == "0o400"
    assert len(footer.control_records) == 1


def test_a_new_cluster_begins_with_the_levels_of_kafka_4_4(tmp_path):
    format_them(tmp_path)

    assert read_bootstrap(FileSystem(), str(tmp_path)) == [
        *levels(
            ("metadata.version", 33),
            ("eligible.leader.replicas.version", 1),
            ("group.version", 1),
            ("share.version", 2),
            ("streams.version", 1),
            ("transaction.version", 2),
        ),
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
    ]


def test_a_new_cluster_begins_with_the_levels_of_the_release_that_is_wanted(tmp_path):
    format_them(tmp_path, release_version=read_release_version("4.0"))

    assert read_bootstrap(FileSystem(), str(tmp_path)) == levels(
        ("metadata.version", 25), ("group.version", 1), ("transaction.version", 2)
    )


def test_the_first_records_go_into_the_log_once(tmp_path):
    """A Kafka that takes over reads the log, not the snapshot before the first offset."""
    for _ in range(2):
        node = MetadataNode(tmp_path, node_id=3)
        assert node.image.features.metadata_version == 33
        node.stop()

    (log,) = tmp_path.glob("__cluster_metadata-0/*.log")
    written = [record for batch in decode_batches(memoryview(log.read_bytes())) for record in batch.records]
    features = [(one.name, one.feature_level) for one in written if isinstance(one, FeatureLevelRecord)]
    assert features == list(NEWEST.levels.items())


def test_a_directory_that_kafka_before_4_4_has_formatted_begins_with_the_records_beside_the_log(tmp_path):
    format_them(tmp_path)
    records = levels(("metadata.version", 25), ("group.version", 1))
    write_bootstrap(tmp_path, records)

    assert read_bootstrap(FileSystem(), str(tmp_path)) == records


def write_bootstrap(directory, records):
    content = encode_snapshot(
        [(record, 0) for record in records], quorum=Quorum(), epoch=0, last_contained_timestamp_ms=0, now_ms=1
    )
    (directory / "bootstrap.checkpoint").write_bytes(content)


def test_a_directory_that_was_formatted_for_a_kafka_too_new_is_refused(tmp_path):
    write_bootstrap(tmp_path, levels(("metadata.version", 34)))

    with pytest.raises(InconsistentMetadata, match=r"metadata\.version 34; up to 33"):
        read_bootstrap(FileSystem(), str(tmp_path))


def test_a_bootstrap_with_eligible_leaders_fixes_the_minimum_in_sync(tmp_path):
    features = levels(("metadata.version", 30), ("eligible.leader.replicas.version", 1))
    write_bootstrap(tmp_path, features)

    assert read_bootstrap(FileSystem(), str(tmp_path)) == [
        *features,
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
    ]


def test_a_directory_counts_as_formatted_only_when_all_of_it_is_there(tmp_path):
    written = []

    class Recorder(FileSystem):
        def replace_atomically(self, path, data, *, fsync, mode=0o644):
            assert fsync
            written.append(os.path.relpath(path, tmp_path))
            super().replace_atomically(path, data, fsync=fsync, mode=mode)

    format_them(tmp_path / "b", tmp_path / "a", files=Recorder())

    assert written == [
        f"b/{FIRST_SNAPSHOT}",
        "b/meta.properties",
        "a/meta.properties",
    ]


def test_formatting_again_what_was_half_formatted_works(tmp_path):
    format_them(tmp_path)
    (tmp_path / "meta.properties").unlink()

    format_them(tmp_path)

    assert read_meta_properties(FileSystem(), f"{tmp_path}/meta.properties") is not None


def test_ids_never_begin_with_a_dash():
    # 0xf8 to 0xfb in the first byte are a dash in Base64.
    drawn = iter([bytes([first]) + bytes(range(15)) for first in (0xF8, 0xFB, 0xFC)])

    text = format_id(SystemIds(lambda count: next(drawn)[:count]).uuid())

    assert text[0] == "_"
    assert len(text) == 22


def test_ids_are_version_4_uuids():
    raw = SystemIds(lambda count: bytes([0x7F]) * count).uuid()

    assert (raw[6] >> 4, raw[8] >> 6) == (4, 0b10)
