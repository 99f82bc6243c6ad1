"""Whether the data directories are whole and belong together, checked before anything is written into them.

A directory that has lost its `meta.properties` or the metadata log is not formatted anew: the metadata would know none
of its partitions, and clients would see an empty broker. Kafka refuses most of these directories too; with a metadata
log of no records it sets all partitions aside as stray.
"""

from collections.abc import Mapping, Sequence

from broker.metadata.directories import RESERVED_IDS
from broker.raft.snapshots import list_snapshots
from config.broker_settings import BrokerSettings
from storage.checkpoints import META_PROPERTIES, MetaProperties, format_id
from storage.errors import WrongDirectory
from storage.file_names import LOG_SUFFIX
from storage.files import FileSystem
from storage.log_dir import MEMBERSHIP_MARKER, METADATA_DIR_NAME, LogDir


def check_identities(known: Mapping[str, MetaProperties], settings: BrokerSettings) -> None:
    """Check that all directories belong to this node and to one cluster, and that no two have the same id.

    ``known``: the `meta.properties` of the formatted directories by path. Raises WrongDirectory.
    """
    first: tuple[str, MetaProperties] | None = None
    by_id: dict[bytes, str] = {}
    wanted = settings.ottla_cluster_id
    for path, properties in known.items():
        if properties.node_id != settings.node_id:
            raise WrongDirectory(f"{path} belongs to node {properties.node_id}, and node.id is {settings.node_id}")
        if wanted is not None and properties.cluster_id != wanted:
            raise WrongDirectory(f"{path} belongs to cluster {properties.cluster_id}, and ottla.cluster.id is {wanted}")
        first = first or (path, properties)
        if properties.cluster_id != first[1].cluster_id:
            raise WrongDirectory(
                f"{path} belongs to cluster {properties.cluster_id}, {first[0]} to {first[1].cluster_id}"
            )
        directory_id = properties.directory_id
        if directory_id is None:
            continue
        if int.from_bytes(directory_id, "big") < RESERVED_IDS:
            raise WrongDirectory(f"{path}/{META_PROPERTIES} has the reserved directory.id {format_id(directory_id)}")
        if directory_id in by_id:
            raise WrongDirectory(
                f"{path} and {by_id[directory_id]} have the same directory.id {format_id(directory_id)}: "
                "a copy of a data directory needs an id of its own"
            )
        by_id[directory_id] = path


def check_membership(files: FileSystem, metadata_directory: str, *, is_member: bool) -> None:
    """Check that a node which was a member of a cluster does not go on with the metadata from before that.

    Raises WrongDirectory.
    """
    marker = f"{metadata_directory}/{MEMBERSHIP_MARKER}"
    if not is_member and files.exists(marker):
        raise WrongDirectory(
            f"{marker} says that this node was a member of a cluster whose controllers are other nodes, expected "
            "process.roles=broker: the metadata log here does not know what has happened since. Remove the file to "
            "go on with that log all the same"
        )


def mark_membership(files: FileSystem, metadata_directory: str) -> None:
    """Write that this node is a member of a cluster, for `check_membership`. Raises DiskFull, LogDirFailed."""
    marker = f"{metadata_directory}/{MEMBERSHIP_MARKER}"
    if not files.exists(marker):
        files.replace_atomically(marker, b"process.roles=broker\n", fsync=True)


def check_is_new(directory: LogDir) -> None:
    """Check that a directory without `meta.properties` has no partitions. Raises WrongDirectory, LogDirFailed."""
    partitions = directory.partitions_in_use()
    if partitions:
        raise WrongDirectory(
            f"{directory.path} has {_counted(partitions)} and no {META_PROPERTIES}, expected the {META_PROPERTIES} "
            "that says whose they are, or an empty directory"
        )


def check_place_of_metadata_log(files: FileSystem, directory: LogDir, metadata_directory: str) -> None:
    """Check that a directory other than `metadata.log.dir` has no metadata log. Raises WrongDirectory, LogDirFailed."""
    metadata_log = f"{directory.path}/{METADATA_DIR_NAME}"
    if directory.path != metadata_directory and files.exists(metadata_log):
        raise WrongDirectory(
            f"found the metadata log {metadata_log}, expected it in {metadata_directory}: "
            "metadata.log.dir, or else the first directory of log.dirs, has changed"
        )


def check_metadata_log(
    files: FileSystem, known: Mapping[str, MetaProperties], metadata_directory: str, directories: Sequence[LogDir]
) -> None:
    """Check that the metadata log of these directories has not been lost.

    Args:
        files: the file system of the directories.
        known: the `meta.properties` of the formatted directories by path.
        metadata_directory: `metadata.log.dir`.
        directories: all directories that can be used.

    Raises:
        WrongDirectory: there are partitions and no metadata log, or a metadata log and no `meta.properties`.
        LogDirFailed: a directory cannot be read.
    """
    metadata_log = f"{metadata_directory}/{METADATA_DIR_NAME}"
    has_records = _has_records(files, metadata_log)
    if metadata_directory not in known:
        if has_records:
            raise WrongDirectory(
                f"{metadata_directory} has a metadata log and no {META_PROPERTIES}, expected the {META_PROPERTIES} "
                "that says whose it is, or an empty directory"
            )
        for path, properties in known.items():
            raise WrongDirectory(
                f"{metadata_directory} is new, expected the metadata log of cluster {properties.cluster_id}, "
                f"which {path} belongs to"
            )
    elif not has_records:
        for directory in directories:
            partitions = directory.partitions_in_use()
            if partitions:
                state = "is empty" if files.exists(metadata_log) else "is missing"
                raise WrongDirectory(
                    f"{metadata_log} {state}, expected the metadata log that knows {_counted(partitions)} in "
                    f"{directory.path}"
                )


def _has_records(files: FileSystem, metadata_log: str) -> bool:
    """Whether a metadata log has more than the snapshot that formatting writes before its first record."""
    try:
        entries = files.list_directory(metadata_log)
    except FileNotFoundError:
        return False
    return any(entry.size and entry.name.endswith(LOG_SUFFIX) for entry in entries) or any(
        snapshot.end_offset for snapshot in list_snapshots(files, metadata_log)
    )


def _counted(partitions: Sequence[str]) -> str:
    """How many partitions there are, for a sentence."""
    if len(partitions) == 1:
        return f"the partition {partitions[0]}"
    return f"{len(partitions)} partitions ({partitions[0]}, …)"
