"""The contents of each kind of file of a data directory, as `ottla dump` shows them.

No file is trusted: damage becomes an entry that says what was found at which position, and the rest of the file is
shown as far as it can be read.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from broker.metadata.topic_rules import CLUSTER_METADATA
from broker.raft.quorum import QUORUM_STATE
from broker.tools.output import Entry
from broker.tools.record_contents import shown_record
from storage.batch.record_batch import CODEC_BITS, BatchHeader, Codec
from storage.batch.records import iterate_records
from storage.batch.walk import StoredBatch
from storage.check.batches import Unreadable, batches_to_the_end, crc_fault
from storage.check.index_entries import (
    TRANSACTION_INDEX_VERSION,
    offset_entries,
    time_entries,
    transaction_entries,
)
from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    format_id,
    read_leader_epochs,
    read_meta_properties,
    read_offset_checkpoint,
    read_topic_id,
)
from storage.errors import CorruptCheckpoint, CorruptSnapshot, UndecodableRecords, WrongDirectory
from storage.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from storage.files import FileSystem
from storage.index import offset_index, time_index, transaction_index
from storage.producer_state import decode_snapshot

METADATA_SNAPSHOT_SUFFIX: Final = ".checkpoint"

_LEFT_BEHIND: Final = (DELETED_SUFFIX, ".cleaned", ".swap", ".tmp", ".part")
"""Suffixes of files that are being made or removed: their content has the form of the name before the suffix."""

Contents = Callable[[FileSystem, str, "Wanted"], Iterator[Entry]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which part of a file is to be shown, and how it is to be decoded."""

    topic: str | None = None
    """The topic of the records; None if it is not known."""
    from_offset: int = 0
    with_records: bool = True


def contents_of(name: str) -> Contents | None:
    """The function that shows files of this name; None for a name that no file of a data directory has."""
    for suffix in _LEFT_BEHIND:
        name = name.removesuffix(suffix)
    found = _BY_NAME.get(name)
    if found is not None:
        return found
    return next((contents for suffix, contents in _BY_SUFFIX.items() if name.endswith(suffix)), None)


def damage(found: str, expected: str | None = None, position: int | None = None) -> Entry:
    """An entry for damage: what is wrong, and where."""
    fields: dict[str, Any] = {} if position is None else {"position": position}
    fields["found"] = found
    if expected is not None:
        fields["expected"] = expected
    return Entry("damage", fields)


# Batches --------------------------------------------------------------------------------------------------------------


def segment(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """The batches of a segment, each followed by its records."""
    file = files.open_read(path)
    for batch in batches_to_the_end(file, file.size):
        if isinstance(batch, Unreadable):
            yield damage(f"{batch.found}, {batch.size} bytes before the end", batch.expected, batch.position)
        elif batch.header.last_offset >= wanted.from_offset:
            yield from _batch(batch, wanted)


def metadata_snapshot(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """A snapshot of the metadata log has the form of a segment; its offsets run from 0."""
    yield from segment(files, path, Wanted(topic=CLUSTER_METADATA, with_records=wanted.with_records))


def _batch(batch: StoredBatch, wanted: Wanted) -> Iterator[Entry]:
    header = batch.header
    fault = crc_fault(batch)
    yield Entry("batch", _batch_fields(header, batch.position, crc_valid=fault is None))
    if fault is not None:
        yield damage(fault.found, fault.expected, batch.position)
    if not wanted.with_records:
        return
    try:
        for record in iterate_records(batch.data):
            if record.offset >= wanted.from_offset:
                yield Entry("record", shown_record(record, wanted.topic, is_control=header.is_control), 1)
    except UndecodableRecords as error:
        yield damage(str(error), "records", batch.position)


def _batch_fields(header: BatchHeader, position: int, *, crc_valid: bool) -> dict[str, Any]:
    codec = header.attributes & CODEC_BITS
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "position": position,
        "size": header.size,
        "crc": header.crc,
        "crc_valid": crc_valid,
        "leader_epoch": header.partition_leader_epoch,
        "codec": _CODECS.get(codec, f"unknown {codec}"),
        "timestamp_type": header.timestamp_type.value,
        "max_timestamp": header.max_timestamp,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "delete_horizon": header.base_timestamp if header.has_delete_horizon else -1,
    }


_CODECS: Final = {codec.value: codec.name.lower() for codec in Codec}

# Indexes and producers ------------------------------------------------------------------------------------------------


def offsets(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """The entries of an offset index; a preallocated file ends with zeros."""
    file = files.open_read(path)
    entries = 0
    for offset, position in offset_entries(file, _base_offset(path)):
        if entries and position == 0:
            break
        entries += 1
        if offset >= wanted.from_offset:
            yield Entry("entry", {"offset": offset, "position": position})
    yield from _behind_entries(file.size, entries, offset_index.ENTRY.size)


def timestamps(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """The entries of a time index; a preallocated file ends with zeros."""
    file = files.open_read(path)
    entries = 0
    base_offset = _base_offset(path)
    for timestamp, offset in time_entries(file, base_offset):
        if timestamp == 0 and offset == base_offset:
            break
        entries += 1
        if offset >= wanted.from_offset:
            yield Entry("entry", {"timestamp": timestamp, "offset": offset})
    yield from _behind_entries(file.size, entries, time_index.ENTRY.size)


def _behind_entries(size: int, entries: int, entry_size: int) -> Iterator[Entry]:
    left = size - entries * entry_size
    if left >= entry_size:
        yield Entry("preallocated", {"position": entries * entry_size, "bytes": left})
    elif left:
        yield damage(f"{left} bytes", f"an entry of {entry_size}", entries * entry_size)


def aborted_transactions(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """The entries of a transaction index."""
    file = files.open_read(path)
    size = transaction_index.ENTRY.size
    for number, (version, transaction) in enumerate(transaction_entries(file)):
        if version != TRANSACTION_INDEX_VERSION:
            yield damage(f"version {version}", f"{TRANSACTION_INDEX_VERSION}", number * size)
        if transaction.last_offset >= wanted.from_offset:
            yield Entry("aborted", transaction._asdict())
    if left := file.size % size:
        yield damage(f"{left} bytes", f"an entry of {size}", file.size - left)


def producers(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """The producers in a producer snapshot."""
    try:
        entries = decode_snapshot(files.read_file(path), path)
    except CorruptSnapshot as error:
        yield damage(str(error))
        return
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        yield Entry(
            "producer",
            {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.producer_epoch,
                "last_sequence": entry.last_sequence,
                "last_offset": -1 if last is None else last.last_offset,
                "offset_delta": 0 if last is None else last.offset_delta,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "transaction_first_offset": entry.transaction_first_offset,
            },
        )


def _base_offset(path: str) -> int:
    digits = path.rpartition("/")[2][:20]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


# Small text files -----------------------------------------------------------------------------------------------------


def offset_checkpoint(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """The offsets of all partitions in one checkpoint."""
    try:
        for (topic, partition), offset in read_offset_checkpoint(files, path).items():
            yield Entry("checkpoint", {"topic": topic, "partition": partition, "offset": offset})
    except CorruptCheckpoint as error:
        yield damage(str(error))


def leader_epochs(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """Where each leader epoch of a partition begins."""
    try:
        for epoch, start_offset in read_leader_epochs(files, path):
            yield Entry("leader_epoch", {"epoch": epoch, "start_offset": start_offset})
    except CorruptCheckpoint as error:
        yield damage(str(error))


def partition_metadata(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """The id of the partition's topic."""
    try:
        topic_id = read_topic_id(files, path)
    except CorruptCheckpoint as error:
        yield damage(str(error))
        return
    if topic_id is not None:
        yield Entry("topic", {"topic_id": format_id(topic_id)})


def meta_properties(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """The node and cluster that the directory belongs to."""
    try:
        properties = read_meta_properties(files, path)
    except WrongDirectory as error:
        yield damage(str(error))
        return
    if properties is not None:
        directory_id = properties.directory_id
        yield Entry(
            "belongs_to",
            {
                "cluster_id": properties.cluster_id,
                "node_id": properties.node_id,
                "directory_id": None if directory_id is None else format_id(directory_id),
            },
        )


def quorum_state(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """The leader epoch and vote of this node in the metadata quorum."""
    yield from _json("quorum_state", files.read_file(path))


def clean_shutdown(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """The marker of a clean shutdown. Markers of old versions are empty."""
    content = files.read_file(path)
    yield from _json("clean_shutdown", content) if content else iter([Entry("clean_shutdown", {})])


def _json(kind: str, content: bytes) -> Iterator[Entry]:
    try:
        fields = json.loads(content)
    except ValueError:
        fields = None
    if isinstance(fields, dict):
        yield Entry(kind, fields)
    else:
        yield damage(f"{content[:60]!r}", "an object in JSON", 0)


_BY_NAME: Final[dict[str, Contents]] = {
    RECOVERY_POINTS: offset_checkpoint,
    LOG_START_OFFSETS: offset_checkpoint,
    HIGH_WATERMARKS: offset_checkpoint,
    CLEANER_OFFSETS: offset_checkpoint,
    LEADER_EPOCHS: leader_epochs,
    PARTITION_METADATA: partition_metadata,
    META_PROPERTIES: meta_properties,
    QUORUM_STATE: quorum_state,
    CLEAN_SHUTDOWN: clean_shutdown,
}

_BY_SUFFIX: Final[dict[str, Contents]] = {
    LOG_SUFFIX: segment,
    OFFSET_INDEX_SUFFIX: offsets,
    TIME_INDEX_SUFFIX: timestamps,
    TRANSACTION_INDEX_SUFFIX: aborted_transactions,
    SNAPSHOT_SUFFIX: producers,
    METADATA_SNAPSHOT_SUFFIX: metadata_snapshot,
}
