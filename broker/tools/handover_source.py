"""What a hand-over takes along: identity and metadata of a single node that was stopped in order. Only reads.

The node is the only voter of its metadata log. Its directories have their clean-shutdown marker: every file is exact.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import InconsistentMetadata
from broker.metadata.loader import MetadataLoader
from broker.metadata.registration import METADATA_VERSIONS
from broker.raft.batches import MetadataBatch, decode_batch, decode_batches
from broker.raft.quorum import Quorum
from broker.raft.snapshots import SnapshotId, check_snapshot, list_snapshots
from protocol.primitives import Malformed
from storage.batch.walk import StoredBatch
from storage.check.findings import Finding, Findings
from storage.check.log_check import ALL_OF_IT, Claims, check_log
from storage.checkpoints import CLEAN_SHUTDOWN, META_PROPERTIES, MetaProperties, read_meta_properties
from storage.errors import CorruptBatch, StorageError
from storage.files import FileSystem
from storage.loading import PRODUCER_ID_EXPIRATION_MS
from storage.log_dir import MEMBERSHIP_MARKER, METADATA_DIR_NAME

DYNAMIC_VOTERS_SINCE: Final = 21
"""The metadata.version (3.9-IV0) from which on the metadata log can name its voters, at kraft.version 1 (KIP-853)."""


class HandoverRefused(Exception):
    """There is nothing that could be handed over, or not to there. The message is a sentence with the reason."""


class HandoverSource(NamedTuple):
    """A node's metadata, complete, and where a snapshot of it ends."""

    node_id: int
    cluster_id: str
    image: MetadataImage
    quorum: Quorum
    end: SnapshotId
    last_timestamp_ms: int
    """Time stamp of the last batch of the metadata log."""


def find_metadata_directory(files: FileSystem, directories: Sequence[str]) -> str:
    """The one of a node's data directories that has the metadata log, or is marked as a member's.

    Raises HandoverRefused.
    """
    found = [
        path
        for path in directories
        if files.exists(f"{path}/{METADATA_DIR_NAME}") or files.exists(f"{path}/{MEMBERSHIP_MARKER}")
    ]
    if len(found) == 1:
        return found[0]
    where = f"{' and '.join(found)} have" if found else "none has"
    raise HandoverRefused(f"of {', '.join(directories)} {where} a {METADATA_DIR_NAME}, expected one of them to have it")


def read_source(files: FileSystem, directories: Iterable[str], metadata_directory: str) -> HandoverSource:
    """Read the node that ``directories`` belong to; the caller has locked them for reading.

    Raises:
        HandoverRefused: the directories are not those of a single node that was stopped in order.
        StorageError: a file can't be read.
    """
    properties = _identity(files, directories)
    _check_is_single_node(files, metadata_directory)
    for path in properties:
        if not files.exists(f"{path}/{CLEAN_SHUTDOWN}"):
            raise HandoverRefused(
                f"{path} has no {CLEAN_SHUTDOWN}: the broker was not stopped in order. Start it once more on these "
                "directories, stop it with SIGTERM, and wait for `stopped cleanly`"
            )
    log_directory = f"{metadata_directory}/{METADATA_DIR_NAME}"
    reading = _MetadataReading(files, log_directory)
    try:
        reading.run()
    except (CorruptBatch, InconsistentMetadata, Malformed) as error:
        raise _damaged(log_directory, str(error)) from None
    identity = properties[metadata_directory]
    _check_metadata(reading, log_directory, identity)
    return HandoverSource(
        node_id=identity.node_id,
        cluster_id=identity.cluster_id,
        image=reading.loader.image,
        quorum=reading.quorum,
        end=SnapshotId(reading.end_offset, reading.epoch),
        last_timestamp_ms=reading.last_timestamp_ms,
    )


def _identity(files: FileSystem, directories: Iterable[str]) -> Mapping[str, MetaProperties]:
    """The `meta.properties` of each directory. Raises HandoverRefused where they are of several nodes or clusters."""
    found: dict[str, MetaProperties] = {}
    for path in directories:
        properties = read_meta_properties(files, f"{path}/{META_PROPERTIES}")
        if properties is None:
            raise HandoverRefused(f"{path} has no {META_PROPERTIES}: it is no data directory")
        first_path, first = next(iter(found.items()), (path, properties))
        if (properties.node_id, properties.cluster_id) != (first.node_id, first.cluster_id):
            raise HandoverRefused(
                f"{path} belongs to node {properties.node_id} of cluster {properties.cluster_id}, {first_path} to "
                f"node {first.node_id} of cluster {first.cluster_id}: expected the directories of one node"
            )
        found[path] = properties
    return found


def _check_is_single_node(files: FileSystem, metadata_directory: str) -> None:
    marker = f"{metadata_directory}/{MEMBERSHIP_MARKER}"
    if files.exists(marker):
        raise HandoverRefused(
            f"{marker} says that this node is a member of a cluster whose controllers are other nodes: they have the "
            "metadata, and what stands here is older"
        )
    if not files.exists(f"{metadata_directory}/{METADATA_DIR_NAME}"):
        raise HandoverRefused(f"{metadata_directory} has no {METADATA_DIR_NAME}: it is not the metadata's directory")


def _check_metadata(reading: "_MetadataReading", log_directory: str, identity: MetaProperties) -> None:
    if reading.loader.is_in_transaction:
        raise HandoverRefused(
            f"{log_directory} ends inside a metadata transaction, which no controller has ended. Start the broker once "
            "more on these directories and stop it with SIGTERM; if the transaction stays open, start the Apache Kafka "
            "that began it: it ends the transaction"
        )
    level = reading.loader.image.features.metadata_version
    if not DYNAMIC_VOTERS_SINCE <= level <= METADATA_VERSIONS[1]:
        raise HandoverRefused(
            f"{log_directory} has metadata.version {level}, expected {DYNAMIC_VOTERS_SINCE} (3.9-IV0) to "
            f"{METADATA_VERSIONS[1]}: from the former on the metadata names its controllers. Start the broker on these "
            "directories, raise it with `ottla features upgrade --release-version 3.9`, and stop the broker"
        )
    voters = [] if reading.quorum.voters is None else [voter.voter_id for voter in reading.quorum.voters.voters]
    if voters not in ([], [identity.node_id]):
        raise HandoverRefused(
            f"{log_directory} belongs to the voters {', '.join(map(str, voters))}, expected node {identity.node_id} "
            "alone: the other voters have a say in the metadata, so move the controllers with Kafka's own tools"
        )


def _damaged(path: str, found: str) -> HandoverRefused:
    return HandoverRefused(f"{path} is damaged: {found}. `ottla verify` shows all damage of the directory")


class _MetadataReading:
    """One pass over the newest snapshot and the records behind it."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._next_offset = 0
        self._batches: list[MetadataBatch] = []
        self.loader = MetadataLoader(MetadataCache())
        self.quorum = Quorum()
        self.end_offset = 0
        self.epoch = 0
        self.last_timestamp_ms = 0

    def run(self) -> None:
        """Raises HandoverRefused, StorageError, InconsistentMetadata, Malformed."""
        self._read_snapshot()
        damages: list[Finding] = []
        findings = Findings(damages.append, lambda size: None)
        claims = Claims(
            was_clean=True,
            recovery_point=ALL_OF_IT,
            producer_id_expiration_ms=PRODUCER_ID_EXPIRATION_MS,
            is_preallocated=True,
        )
        extent = check_log(self._files, self._directory, claims, findings, self._take)
        if findings.damages:
            damage = next(finding for finding in damages if finding.kind == "damage")
            at = "" if damage.position is None else f" at position {damage.position}"
            raise _damaged(damage.path + at, f"found {damage.found}, expected {damage.expected}")
        if self._next_offset != extent.end_offset or extent.end_offset == 0:
            raise _damaged(self._directory, f"its records end at offset {self._next_offset}")
        self.loader.handle_commit(self._batches)
        self.end_offset, self.epoch = extent.end_offset, extent.latest_epoch

    def _read_snapshot(self) -> None:
        snapshots = list_snapshots(self._files, self._directory)
        if not snapshots:
            return
        newest = snapshots[-1]
        path = f"{self._directory}/{newest.file_name}"
        content = memoryview(self._files.read_file(path))
        try:
            check_snapshot(content, newest.epoch)
            batches = list(decode_batches(content))
        except (StorageError, Malformed) as error:
            raise _damaged(path, str(error)) from None
        self._replay_control(batches)
        self.loader.handle_snapshot((record for batch in batches for record in batch.records), newest.end_offset)
        self._next_offset = newest.end_offset

    def _take(self, stored: StoredBatch) -> None:
        header = stored.header
        self.last_timestamp_ms = header.max_timestamp
        if header.base_offset < self._next_offset:
            return  # the snapshot has its records
        if header.base_offset > self._next_offset:
            raise InconsistentMetadata(
                f"records from offset {self._next_offset} to {header.base_offset - 1} are missing"
            )
        batch = decode_batch(header, stored.data)
        self._replay_control([batch])
        self._batches.append(batch)
        self._next_offset = header.next_offset

    def _replay_control(self, batches: Iterable[MetadataBatch]) -> None:
        for batch in batches:
            for record in batch.control_records:
                self.quorum.replay(record)
