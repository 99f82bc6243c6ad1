"""Formatting of data directories: meta.properties, and the first records of a new cluster.

meta.properties                                              in every log directory, written last
bootstrap.checkpoint                                         the features to finalise first        \\  in the metadata
__cluster_metadata-0/00000000000000000000-0000000000.checkpoint   kraft.version 1, this node as voter /  directory only
"""

from collections.abc import Sequence
from typing import Final

from broker.metadata.image.features import (
    ELIGIBLE_LEADERS_FEATURE,
    GROUP_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)
from broker.metadata.image.records import InconsistentMetadata, Record
from broker.metadata.registration import (
    FORMATTED_KRAFT_VERSION,
    FORMATTED_METADATA_VERSION,
    GROUP_VERSIONS,
    METADATA_VERSIONS,
    TRANSACTION_VERSIONS,
)
from broker.raft.batches import decode_batches
from broker.raft.quorum import Quorum, only_voter
from broker.raft.single_voter_log import METADATA_PARTITION
from broker.raft.snapshots import READ_ONLY, SnapshotId, check_snapshot, encode_snapshot
from broker.runtime.clock import Ids
from config.listeners import Listener
from config.resources import ConfigResource
from protocol.records.cluster_metadata import ConfigRecord, FeatureLevelRecord
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
            _write_bootstrap(files, directory, now_ms, first_records)
            _write_voters(files, directory, node_id, properties.directory_id, controller_endpoint, now_ms)
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
        or _our_bootstrap()
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


def _our_bootstrap() -> list[Record]:
    return [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=FORMATTED_METADATA_VERSION),
        FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=TRANSACTION_VERSIONS[1]),
        FeatureLevelRecord(name=GROUP_VERSION, feature_level=GROUP_VERSIONS[1]),
    ]


def _write_bootstrap(files: FileSystem, directory: str, now_ms: int, first_records: Sequence[Record]) -> None:
    content = encode_snapshot(
        [(record, 0) for record in (*_our_bootstrap(), *first_records)],
        quorum=Quorum(),
        epoch=0,
        last_contained_timestamp_ms=0,
        now_ms=now_ms,
    )
    files.replace_atomically(f"{directory}/{BOOTSTRAP}", content, fsync=True)


def _write_voters(
    files: FileSystem, directory: str, node_id: int, directory_id: bytes, endpoint: Listener, now_ms: int
) -> None:
    content = encode_snapshot(
        [],
        quorum=Quorum(kraft_version=FORMATTED_KRAFT_VERSION, voters=only_voter(node_id, directory_id, endpoint)),
        epoch=0,
        last_contained_timestamp_ms=now_ms,
        now_ms=now_ms,
    )
    log_directory = f"{directory}/{METADATA_PARTITION.dir_name}"
    files.make_directory(log_directory)
    path = f"{log_directory}/{SnapshotId(0, 0).file_name}"
    files.replace_atomically(path, content, fsync=True, mode=READ_ONLY)
