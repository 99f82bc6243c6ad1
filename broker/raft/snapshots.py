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
from broker.raft.batches import encode_control_records, encode_records
from broker.raft.quorum import Quorum
from protocol.records.control_records import ControlRecord, SnapshotFooter, SnapshotHeader
from storage.files import FileSystem

READ_ONLY: Final = 0o400
"""A snapshot is never changed once it has its name."""

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_RECORDS_PER_BATCH: Final = 1024


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
