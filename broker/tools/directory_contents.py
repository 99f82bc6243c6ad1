"""Directories as `ottla dump` shows them: a partition's files in order, or a data directory's logs."""

from collections.abc import Iterator
from typing import Final

from broker.raft.quorum import QUORUM_STATE
from broker.tools.file_contents import METADATA_SNAPSHOT_SUFFIX, Wanted, contents_of, damage
from broker.tools.output import Entry
from storage.check.log_files import LogFiles, log_end_offset
from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    read_offset_checkpoint,
)
from storage.errors import CorruptCheckpoint, StorageError, WrongDirectory
from storage.file_names import SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX
from storage.files import FileSystem
from storage.log_dir import METADATA_DIR_NAME, NOT_LOGS
from storage.topic_partition import TopicPartition, parse_dir_name

_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
_ORDER: Final = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)


def partition(files: FileSystem, directory: str, wanted: Wanted) -> Iterator[Entry]:
    """All files of a partition: its metadata and checkpoints first, then segment by segment."""
    for name in sorted(LogFiles.found_in(files, directory).sizes, key=_place):
        yield from named_file(files, f"{directory}/{name}", wanted)


def _place(name: str) -> tuple[bool, str, int, str]:
    """The sort key of a file name: files without an offset first, then the files of each segment together."""
    offset = name[:20] if name[:20].isdigit() else ""
    suffix = name[20:] if offset else ""
    return bool(offset) and suffix in _ORDER, offset, _ORDER.index(suffix) if suffix in _ORDER else 0, name


def named_file(files: FileSystem, path: str, wanted: Wanted) -> Iterator[Entry]:
    """The contents of a file, after a line with its name."""
    name = path.rpartition("/")[2]
    yield Entry("file", {"name": name, "bytes": files.size(path)})
    contents = contents_of(name)
    if contents is not None:
        for entry in contents(files, path, wanted):
            yield entry._replace(depth=entry.depth + 1)


def data_directory(files: FileSystem, directory: str, wanted: Wanted) -> Iterator[Entry]:
    """The contents of a data directory: its meta.properties, an overview of its logs, and its checkpoints."""
    yield Entry("data_directory", {"path": files.absolute(directory)})
    for name in (META_PROPERTIES, CLEAN_SHUTDOWN):
        contents = contents_of(name)
        if contents is not None and files.exists(f"{directory}/{name}"):
            yield from contents(files, f"{directory}/{name}", wanted)
    known = {name: _checkpoint(files, f"{directory}/{name}") for name in _CHECKPOINTS}
    for entry in files.list_directory(directory):
        if entry.is_directory:
            yield _log(files, directory, entry.name, known)
    for name in ("bootstrap" + METADATA_SNAPSHOT_SUFFIX, *_CHECKPOINTS):
        if files.exists(f"{directory}/{name}"):
            yield from named_file(files, f"{directory}/{name}", wanted)


def _checkpoint(files: FileSystem, path: str) -> dict[TopicPartition, int]:
    try:
        return read_offset_checkpoint(files, path)
    except CorruptCheckpoint:
        return {}


def _log(files: FileSystem, directory: str, name: str, known: dict[str, dict[TopicPartition, int]]) -> Entry:
    try:
        topic_partition, fate = parse_dir_name(name)
    except WrongDirectory as error:
        return Entry("other", {"name": name}) if name in NOT_LOGS else damage(str(error))
    try:
        log = LogFiles.found_in(files, f"{directory}/{name}")
        if not log.segment_bases:
            return Entry("log", {"name": name, "segments": 0})
        first = log.segment_bases[0]
        return Entry(
            "log",
            {
                "name": name,
                "segments": len(log.segment_bases),
                "bytes": log.log_bytes,
                "start_offset": first if fate else max(known[LOG_START_OFFSETS].get(topic_partition, 0), first),
                "end_offset": log_end_offset(files, log),
                "recovery_point": -1 if fate else known[RECOVERY_POINTS].get(topic_partition, -1),
                "high_watermark": -1 if fate else known[HIGH_WATERMARKS].get(topic_partition, -1),
            },
        )
    except (StorageError, FileNotFoundError) as error:
        return damage(f"{name}: {error}")


def is_data_directory(files: FileSystem, directory: str) -> bool:
    """Whether a directory is a data directory, with the logs of many partitions."""
    if files.exists(f"{directory}/{META_PROPERTIES}") or files.exists(f"{directory}/{METADATA_DIR_NAME}"):
        return True
    return any(_is_log_name(entry.name) for entry in files.list_directory(directory) if entry.is_directory)


def is_partition(files: FileSystem, directory: str) -> bool:
    """Whether a directory is that of one partition's log."""
    names = (PARTITION_METADATA, LEADER_EPOCHS, QUORUM_STATE)
    return any(files.exists(f"{directory}/{name}") for name in names) or bool(
        LogFiles.found_in(files, directory).segment_bases
    )


def _is_log_name(name: str) -> bool:
    try:
        parse_dir_name(name)
    except WrongDirectory:
        return False
    return True
