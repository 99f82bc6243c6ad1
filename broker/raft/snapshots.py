"""Snapshots of the metadata log: a file with the records that add up to the image at an offset (KIP-630).

    <end offset, 20 digits>-<epoch, 10 digits>.checkpoint

    control batch    SNAPSHOT_HEADER [KRAFT_VERSION KRAFT_VOTERS]
    data batches     the records of the image
    control batch    SNAPSHOT_FOOTER

Offsets in the file run from 0. The name says which records the snapshot replaces: all below the end offset, the last of
which has that epoch. ``bootstrap.checkpoint`` has the same form.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from broker.metadata.image.records import Record
from broker.raft.batches import decode_batch, encode_control_records, encode_records
from broker.raft.quorum import Quorum
from protocol.records.control_records import ControlRecord, SnapshotFooter, SnapshotHeader
from storage.batch.walk import BatchWalk, WalkPolicy, in_memory
from storage.errors import CorruptBatch
from storage.files import FileSystem

READ_ONLY: Final = 0o400
"""A snapshot is never changed once it has its name."""

DAMAGED_SUFFIX: Final = ".damaged"
"""Behind the name of a damaged snapshot that the log has made up for. Neither Kafka nor Ottla reads such files."""

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_RECORDS_PER_BATCH: Final = 1024
_INTACT: Final = WalkPolicy(checks_crc=True)


class SnapshotId(NamedTuple):
    """The part of the log that a snapshot replaces. The larger id is the newer snapshot's."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """The name of the snapshot's file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


def list_snapshots(files: FileSystem, directory: str) -> list[SnapshotId]:
    """The snapshots in a metadata log's directory, oldest first; none if there is no directory."""
    try:
        entries = files.list_directory(directory)
    except FileNotFoundError:
        return []
    found = (_NAME.fullmatch(entry.name) for entry in entries)
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)


def check_snapshot(content: memoryview, epoch: int) -> None:
    """Check that ``content`` is a whole and undamaged snapshot, each batch of which has the leader epoch ``epoch``.

    Raises CorruptBatch, which says what is wrong and at which position of the file.
    """
    next_offset = 0
    last: ControlRecord | None = None
    walk = BatchWalk(in_memory(content), 0, len(content), _INTACT)
    for header, position, data in walk:
        if (header.base_offset, header.partition_leader_epoch) != (next_offset, epoch):
            # The CRC does not cover these two fields.
            raise CorruptBatch(
                f"position {position}: the batch there has offset {header.base_offset} and epoch "
                f"{header.partition_leader_epoch}, expected offset {next_offset} and epoch {epoch}"
            )
        next_offset = header.next_offset
        control_records = decode_batch(header, data).control_records if header.is_control else []
        if position == 0 and not (control_records and isinstance(control_records[0], SnapshotHeader)):
            raise CorruptBatch("position 0: there is no SNAPSHOT_HEADER")
        last = control_records[-1] if control_records else None
    if walk.fault is not None:
        raise CorruptBatch(f"position {walk.position}: {walk.problem}")
    if not isinstance(last, SnapshotFooter):
        raise CorruptBatch(f"position {len(content)}: it ends without a SNAPSHOT_FOOTER")


def encode_snapshot(
    records: Iterable[tuple[Record, int]],
    *,
    quorum: Quorum,
    epoch: int,
    last_contained_timestamp_ms: int,
    now_ms: int,
) -> bytes:
    """The content of a snapshot file.

    Args:
        records: the records of the image, each with the version to write it in.
        quorum: the voters, written right behind the header.
        epoch: the partition leader epoch of every batch.
        last_contained_timestamp_ms: time stamp of the last batch of the log that the snapshot replaces.
        now_ms: time stamp of the batches.
    """
    content = bytearray()
    offset = 0

    def add_control(control: Sequence[ControlRecord]) -> None:
        nonlocal offset
        content.extend(encode_control_records(control, base_offset=offset, leader_epoch=epoch, now_ms=now_ms))
        offset += len(control)

    def add_data(data: Sequence[tuple[Record, int]]) -> None:
        nonlocal offset
        content.extend(encode_records(data, base_offset=offset, leader_epoch=epoch, now_ms=now_ms))
        offset += len(data)

    header = SnapshotHeader(last_contained_log_timestamp=last_contained_timestamp_ms)
    add_control([header, *quorum.records()])
    batch: list[tuple[Record, int]] = []
    for entry in records:
        batch.append(entry)
        if len(batch) == _RECORDS_PER_BATCH:
            add_data(batch)
            batch = []
    if batch:
        add_data(batch)
    add_control([SnapshotFooter()])
    return bytes(content)
