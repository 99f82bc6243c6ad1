"""Checks that the metadata log is undamaged and consistent; the logs are then compared with its image."""

from broker.metadata.image.metadata_image import EMPTY, MetadataDelta, MetadataImage
from broker.metadata.image.records import InconsistentMetadata
from broker.metadata.loader import MetadataTransaction
from broker.raft.batches import MetadataBatch, decode_batch
from broker.raft.quorum import QUORUM_STATE, read_leader_epoch
from broker.raft.single_voter_log import METADATA_TOPIC_ID
from broker.raft.snapshots import SnapshotId, list_snapshots
from protocol.primitives import Malformed
from protocol.records.control_records import SnapshotFooter, SnapshotHeader
from storage.batch.walk import StoredBatch
from storage.check.batches import Unreadable, batches_to_the_end, crc_fault, record_faults
from storage.check.findings import Findings
from storage.check.log_check import ALL_OF_IT, Claims, LogExtent, check_log
from storage.checkpoints import PARTITION_METADATA, format_id, read_topic_id
from storage.errors import CorruptCheckpoint
from storage.files import FileSystem


def check_metadata(
    files: FileSystem, directory: str, findings: Findings, *, was_clean: bool, producer_id_expiration_ms: int
) -> MetadataImage:
    """Check ``__cluster_metadata-0``. Returns the image of its records, as far as they can be replayed."""
    return _MetadataCheck(files, directory, findings).run(was_clean, producer_id_expiration_ms)


def check_snapshot_file(files: FileSystem, path: str, findings: Findings) -> list[MetadataBatch]:
    """Check a file in the form of a metadata snapshot. Returns its batches. Raises StorageError, FileNotFoundError."""
    file = files.open_read(path)
    decoded: list[MetadataBatch] = []
    for batch in batches_to_the_end(file, file.size):
        if isinstance(batch, Unreadable):
            findings.damage(path, f"{batch.found} ({batch.size} bytes before the end)", batch.expected, batch.position)
            return decoded
        findings.read(len(batch.data))
        fault = crc_fault(batch) or next(record_faults(batch), None)
        if fault is not None:
            findings.damage(path, fault.found, fault.expected, batch.position)
            return decoded
        try:
            decoded.append(decode_batch(batch.header, batch.data))
        except Malformed as error:
            findings.damage(path, str(error), "metadata records", batch.position)
            return decoded
    first = decoded[0].control_records[:1] if decoded else []
    last = decoded[-1].control_records[-1:] if decoded else []
    if not first or not isinstance(first[0], SnapshotHeader):
        findings.damage(path, "no SNAPSHOT_HEADER", "one in the first record", 0)
    if not last or not isinstance(last[0], SnapshotFooter):
        findings.damage(path, "no SNAPSHOT_FOOTER", "one in the last record", file.size)
    return decoded


class _MetadataCheck:
    def __init__(self, files: FileSystem, directory: str, findings: Findings) -> None:
        self._files = files
        self._directory = directory
        self._findings = findings
        self._delta = MetadataDelta(EMPTY)
        self._transaction = MetadataTransaction()
        self._snapshot = SnapshotId(0, 0)
        self._makes_sense = True

    def run(self, was_clean: bool, producer_id_expiration_ms: int) -> MetadataImage:
        for snapshot in list_snapshots(self._files, self._directory):
            path = f"{self._directory}/{snapshot.file_name}"
            batches = check_snapshot_file(self._files, path, self._findings)
            # Replay begins with the newest snapshot; older snapshots must only be undamaged.
            self._delta, self._snapshot, self._makes_sense = MetadataDelta(EMPTY), snapshot, True
            for batch in batches:
                self._replay(batch, path)
        extent = check_log(
            self._files,
            self._directory,
            Claims(
                was_clean=was_clean,
                recovery_point=ALL_OF_IT if was_clean else 0,
                producer_id_expiration_ms=producer_id_expiration_ms,
                is_preallocated=True,
            ),
            self._findings,
            self._batch,
        )
        end_offset = self._snapshot.end_offset
        if not extent.start_offset <= end_offset <= extent.end_offset:
            self._findings.damage(
                f"{self._directory}/{self._snapshot.file_name}",
                f"a newest snapshot at offset {end_offset}",
                f"one between {extent.start_offset} and {extent.end_offset}, which the log has",
            )
        self._check_quorum_state(extent)
        self._check_topic_id()
        return self._delta.apply(extent.end_offset)

    def _batch(self, batch: StoredBatch) -> None:
        if batch.header.base_offset < self._snapshot.end_offset:
            return
        path = f"{self._directory}"
        try:
            decoded = decode_batch(batch.header, batch.data)
        except Malformed as error:
            self._findings.damage(path, f"at offset {batch.header.base_offset}: {error}", "metadata records")
            self._makes_sense = False
            return
        self._replay(decoded, path)

    def _replay(self, batch: MetadataBatch, path: str) -> None:
        for record in batch.records:
            if not self._makes_sense:
                return
            try:
                for counts in self._transaction.pass_on(record):
                    self._delta.replay(counts)
            except InconsistentMetadata as error:
                self._findings.damage(
                    path, f"in the batch at offset {batch.base_offset}: {error}", "records that fit those before them"
                )
                # The records that follow would not fit either.
                self._makes_sense = False

    def _check_quorum_state(self, extent: LogExtent) -> None:
        path = f"{self._directory}/{QUORUM_STATE}"
        try:
            epoch = read_leader_epoch(self._files, path)
        except CorruptCheckpoint as error:
            self._findings.damage(path, str(error), "the state of the quorum")
            return
        if epoch < extent.latest_epoch:
            self._findings.damage(path, f"epoch {epoch}", f"{extent.latest_epoch} or more, as the log has it")

    def _check_topic_id(self) -> None:
        path = f"{self._directory}/{PARTITION_METADATA}"
        try:
            topic_id = read_topic_id(self._files, path)
        except CorruptCheckpoint as error:
            self._findings.damage(path, str(error), "a topic id")
            return
        if topic_id not in (None, METADATA_TOPIC_ID):
            self._findings.damage(path, f"topic id {format_id(topic_id or b'')}", format_id(METADATA_TOPIC_ID))
