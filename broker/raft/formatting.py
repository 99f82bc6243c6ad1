"""Formatting of data directories: meta.properties, and the first records of a new cluster.

meta.properties                                                   in every log directory, written last
__cluster_metadata-0/00000000000000000000-0000000000.checkpoint   in the metadata directory only: kraft.version 1, this
                                                                  node as voter, the features to finalise first

Kafka before 4.4 keeps the features, and users with a password, in a bootstrap.checkpoint beside meta.properties.
"""

from collections.abc import Sequence
from typing import Final

from broker.metadata.image.features import ELIGIBLE_LEADERS_FEATURE, METADATA_VERSION
from broker.metadata.image.records import InconsistentMetadata, Record
from broker.metadata.registration import FORMATTED_KRAFT_VERSION, METADATA_VERSIONS
from broker.raft.batches import decode_batches
from broker.raft.quorum import Quorum, only_voter
from broker.raft.single_voter_log import METADATA_PARTITION
from broker.raft.snapshots import READ_ONLY, SnapshotId, check_snapshot, encode_snapshot
from broker.runtime.clock import Ids
from config.listeners import Listener
from config.release_versions import NEWEST, ReleaseVersion
from config.resources import ConfigResource
from protocol.records.cluster_metadata import ConfigRecord, FeatureLevelRecord
from protocol.records.control_records import KRaftVoters
from storage.checkpoints import META_PROPERTIES, MetaProperties, format_id, write_meta_properties
from storage.errors import CorruptBatch
from storage.files import FileSystem

BOOTSTRAP: Final = "bootstrap.checkpoint"


def format_directories(
    files: FileSystem,
    directories: Sequence[str],
    *,
    metadata_directory: str,
    node_id: int,
    cluster_id: str | None,
    controller_endpoint: Listener | None,
    ids: Ids,
    now_ms: int,
    date: str,
    release_version: ReleaseVersion = NEWEST,
    first_records: Sequence[Record] = (),
) -> dict[str, MetaProperties]:
    """Format ``directories``, which are empty or missing, as Kafka's own ``kafka-storage format --standalone`` would.

    A directory counts as formatted once it has its `meta.properties`, which is therefore written last: after a crash
    before that, the directory is formatted again.

    Args:
        directories: all directories without a `meta.properties`.
        metadata_directory: where the metadata log goes; if it is among ``directories``, a new cluster is made there.
        node_id: the node that the directories belong to.
        cluster_id: of the cluster that other directories already belong to; None for a new one.
        controller_endpoint: the endpoint in the voters record; None where the controllers are other nodes, so that
            there is no metadata log.
        ids: makes the new ids.
        now_ms: time stamp of the records.
        date: for people who read `meta.properties`.
        release_version: gives the features of a new cluster their levels.
        first_records: what a new cluster has beside its features.

    Returns: the content of `meta.properties` by directory.
    """
    cluster_id = cluster_id or format_id(ids.uuid())
    formatted: dict[str, MetaProperties] = {}
    # The metadata directory comes first: an interrupted format must not leave log directories without a metadata log.
    for directory in sorted(directories, key=lambda directory: directory != metadata_directory):
        properties = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=ids.uuid())
        files.make_directory(directory)
        if directory == metadata_directory and controller_endpoint is not None:
            assert properties.directory_id is not None
            voters = only_voter(node_id, properties.directory_id, controller_endpoint)
            records = [*_levels(release_version), *first_records]
            _write_first_snapshot(files, directory, voters, records, now_ms)
        write_meta_properties(files, f"{directory}/{META_PROPERTIES}", properties, date)
        formatted[directory] = properties
    return formatted


def read_bootstrap(files: FileSystem, metadata_directory: str, *, min_insync_replicas: int = 1) -> list[Record]:
    """The first records of a new cluster: those in ``bootstrap.checkpoint``, or else those in the snapshot before the
    first offset, where Kafka 4.4 has them, or else the defaults.

    Where eligible leader replicas are among the features (KIP-966), ``min.insync.replicas`` becomes a dynamic default,
    as the controller of Kafka 4.1 and later does it.

    Raises InconsistentMetadata if the file is damaged, or if its records are those of a Kafka too new.
    """
    records = (
        _read_records(files, f"{metadata_directory}/{BOOTSTRAP}")
        or _read_records(files, f"{metadata_directory}/{METADATA_PARTITION.dir_name}/{SnapshotId(0, 0).file_name}")
        or _levels(NEWEST)
    )
    levels = {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}
    newest = METADATA_VERSIONS[1]
    if (level := levels.get(METADATA_VERSION, newest)) > newest:
        raise InconsistentMetadata(
            f"{metadata_directory} was formatted for metadata.version {level}; up to {newest} can be read here"
        )
    if ELIGIBLE_LEADERS_FEATURE in levels:
        records.append(
            ConfigRecord(
                resource_type=ConfigResource.BROKER,
                resource_name="",
                name="min.insync.replicas",
                value=str(min_insync_replicas),
            )
        )
    return records


def first_levels(files: FileSystem, metadata_directory: str) -> dict[str, int]:
    """The feature levels of a formatted directory whose metadata log has no records yet. Raises as `read_bootstrap`."""
    records = read_bootstrap(files, metadata_directory)
    return {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}


def _read_records(files: FileSystem, path: str) -> list[Record]:
    """The metadata records of a snapshot; none if there is no such file."""
    try:
        content = memoryview(files.read_file(path))
    except FileNotFoundError:
        return []
    try:
        check_snapshot(content, epoch=0)
    except CorruptBatch as error:
        raise InconsistentMetadata(f"{path} is damaged: {error}") from None
    return [record for batch in decode_batches(content) for record in batch.records]


def _levels(release_version: ReleaseVersion) -> list[Record]:
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in release_version.levels.items()]


def _write_first_snapshot(
    files: FileSystem, directory: str, voters: KRaftVoters, records: Sequence[Record], now_ms: int
) -> None:
    content = encode_snapshot(
        [(record, 0) for record in records],
        quorum=Quorum(kraft_version=FORMATTED_KRAFT_VERSION, voters=voters),
        epoch=0,
        last_contained_timestamp_ms=now_ms,
        now_ms=now_ms,
    )
    log_directory = f"{directory}/{METADATA_PARTITION.dir_name}"
    files.make_directory(log_directory)
    path = f"{log_directory}/{SnapshotId(0, 0).file_name}"
    files.replace_atomically(path, content, fsync=True, mode=READ_ONLY)
