"""The errors of `storage`; `broker.request.faults` maps them to Kafka's error codes."""

from collections.abc import Sequence


class StorageError(Exception):
    """The base of all errors that `storage` raises on purpose.

    `str(error)` is a sentence for logs. `message_for_client` is the text that belongs into a response's ErrorMessage;
    it is None where Apache Kafka 4.4.0 sends null.
    """

    message_for_client: str | None = None


# Appending ------------------------------------------------------------------------------------------------------------


class CorruptBatch(StorageError):
    """The bytes are not a whole, undamaged record batch: an impossible size or magic, or a CRC that does not match."""

    def __init__(self, message: str, *, message_for_client: str | None = None) -> None:
        super().__init__(message)
        self.message_for_client = message_for_client


class BatchTooLarge(StorageError):
    """The batch exceeds `max.message.bytes`, as it came or recompressed, or opens to more than is worth holding."""


class BatchLargerThanSegment(StorageError):
    """The batch exceeds `segment.bytes`, so that no segment could hold it."""


class RejectedRecords(StorageError):
    """A batch was refused as a whole; `record_errors` names the records at fault as (index in the batch, message)."""

    def __init__(
        self,
        message: str,
        *,
        record_errors: Sequence[tuple[int, str]] = (),
        records_without_key: int = 0,
        message_for_client: str | None = None,
    ) -> None:
        super().__init__(message)
        self.record_errors = tuple(record_errors)
        self.records_without_key = records_without_key
        """How many record errors there are, where each record needs one of its own."""
        self.message_for_client = message_for_client


class InvalidRecord(RejectedRecords):
    """The batch or records in it break a rule other than that of timestamps."""


class InvalidOffsetsOrSequence(InvalidRecord):
    """The batch's offsets do not count its records, or its sequence number goes with no producer."""


class NotOneBatch(InvalidRecord):
    """Produced bytes are not one whole batch of magic 2 but none, a part of one, one of an old magic, or several."""


class InvalidTimestamp(RejectedRecords):
    """Records are older or newer than the topic allows, or claim a LogAppendTime that only a broker may give."""


class UnsupportedCompression(StorageError):
    """The batch uses a codec that this version of the request may not carry (zstd before Produce v7)."""


class UndecodableRecords(StorageError):
    """Records cannot be read: an unknown codec, damaged compressed data, a record that contradicts its own lengths."""


class RecordTooLarge(UndecodableRecords):
    """A record in a compressed batch is larger than `max.decompressed.message.bytes`."""


class DecompressionTooLarge(UndecodableRecords):
    """Compressed data would open to more bytes than the caller is willing to hold."""


# Producers ------------------------------------------------------------------------------------------------------------


class OutOfOrderSequence(StorageError):
    """The batch's first sequence number does not follow the producer's last one."""


class InvalidProducerEpoch(StorageError):
    """The batch carries an older epoch than the producer's current one: the producer has been fenced."""


class InvalidTransactionState(StorageError):
    """The batch does not fit the state of the producer's transaction."""


class TransactionCoordinatorFenced(StorageError):
    """A marker of a transaction coordinator that another has replaced."""


# Reading --------------------------------------------------------------------------------------------------------------


class OffsetOutOfRange(StorageError):
    """The offset lies before the log's start or behind its end."""


# Disk -----------------------------------------------------------------------------------------------------------------


class DiskFull(StorageError):
    """There is no disk space for the write (ENOSPC, EDQUOT). The log stays online: space may become free."""


class FileTooLarge(DiskFull):
    """The file may not become so large (EFBIG), by a limit of the file system or of the user (`ulimit -f`). The log
    stays online, and goes on in a new segment."""


class LogDirFailed(StorageError):
    """The data directory can no longer be trusted (EIO, a failed fsync): it is offline until the process restarts."""


class SegmentTooLarge(StorageError):
    """A cleaned segment would have batches at positions that no index entry can hold."""


class FilesRemoved(LogDirFailed):
    """Another process has removed a file or a directory. Where it was a partition's, and the data directory itself is
    there, the other partitions go on."""


class LogRemoved(StorageError):
    """The log was deleted while a write to it was under way."""


class LogMoved(LogRemoved):
    """The log has been removed here, since its replica has moved to another broker."""


class TooManyOpenFiles(StorageError):
    """The process has no file descriptor left (EMFILE, ENFILE), or the system no memory for the call (ENOMEM). Nothing
    has changed; the log stays online."""


class CorruptIndex(StorageError):
    """An index file contradicts itself or its segment; it is rebuilt from the segment."""


class CorruptSnapshot(StorageError):
    """A producer snapshot cannot be read; it is removed and the state rebuilt from the segments."""


class CorruptCheckpoint(StorageError):
    """A checkpoint file or `meta.properties` cannot be read."""


class DirectoryLocked(StorageError):
    """Another process, Apache Kafka included, works in the data directory."""


class WrongDirectory(StorageError):
    """The directory belongs to another cluster or node, or holds what is not a data directory of this broker."""
