"""Snapshots: the data of a running broker as another directory, in milliseconds, whatever its size.

The segments that are written to are closed first, so that each file of records is complete: it gets a second name (a
hard link) in the copy. All else is small, and is copied. Nothing else runs on the loop meanwhile, so that the copy is
the state of one moment. It is as a broker leaves it that is killed and has everything on the disk.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.control.sealing import seal
from storage.checkpoints import RECOVERY_POINTS, write_offset_checkpoint
from storage.files import FileSystem

if TYPE_CHECKING:
    from broker.server.broker_server import BrokerServer

_RECORDS: Final = ".log"
_INDEXES: Final = (".index", ".timeindex")
"""Of a segment that is written to they have 10 MB each, nearly all zeros. The broker of the copy makes them anew."""
_METADATA_LOG: Final = "__cluster_metadata-0"
_LOCK: Final = ".lock"
_DELETED: Final = (".deleted", "-delete", ".tmp", ".cleaned", ".swap")


async def take_snapshot(server: BrokerServer, source: Path, target: Path) -> None:
    """Copy the data of ``server``, whose directory is ``source``, to ``target``, which does not exist."""
    await server.services.settle()
    now_ms = server.services.clock.now_ms()
    ends = {}
    sealed: set[str] = set()
    for partition in server.components.replicas.partitions():
        log = partition.log
        seal(partition, now_ms)
        ends[log.topic_partition] = log.log_end_offset
        sealed.update(segment.files.log_path for segment in log.segments if segment is not log.segments.active)
    _copy(source, target, sealed)
    write_offset_checkpoint(FileSystem(), str(target / RECOVERY_POINTS), ends)


def copy_snapshot(source: Path, target: Path) -> None:
    """Make a directory that a broker may start on out of a snapshot, which stays as it is."""
    _copy(source, target, _sealed_in(source))


def _sealed_in(snapshot: Path) -> set[str]:
    """The files of records that no broker will write to: all but the last of each log."""
    sealed: set[str] = set()
    for directory in snapshot.iterdir():
        if directory.is_dir():
            *before, _ = sorted(directory.glob(f"*{_RECORDS}")) or [directory]
            sealed.update(map(str, before))
    return sealed


def _copy(source: Path, target: Path, sealed: set[str]) -> None:
    target.mkdir()
    for entry in os.scandir(source):
        if entry.name == _LOCK or entry.name.endswith(_DELETED):
            continue
        if not entry.is_dir():
            shutil.copyfile(entry.path, target / entry.name)
            continue
        copy = target / entry.name
        copy.mkdir()
        for file in os.scandir(entry.path):
            stem, kind = os.path.splitext(file.path)
            if file.name.endswith(_DELETED) or (kind in _INDEXES and stem + _RECORDS not in sealed):
                continue
            if file.path in sealed:
                os.link(file.path, copy / file.name)
            else:
                shutil.copyfile(file.path, copy / file.name)
