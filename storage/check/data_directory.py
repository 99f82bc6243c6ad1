"""The check of a data directory: its node and cluster, its logs, and its checkpoints' offsets for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from storage.check.findings import Findings
from storage.check.log_check import Claims
from storage.check.log_files import LogFiles
from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    MetaProperties,
    format_id,
    read_meta_properties,
    read_offset_checkpoint,
)
from storage.errors import CorruptCheckpoint, WrongDirectory
from storage.files import FileSystem
from storage.log_dir import METADATA_DIR_NAME, NOT_LOGS
from storage.topic_partition import MISNAMED, TopicPartition, parse_dir_name

_OF_THE_PAST: Final = (CLEANER_OFFSETS, HIGH_WATERMARKS)
"""Checkpoints that may name partitions which are gone: the first is written when something is cleaned, and Kafka writes
the second only in directories that have partitions left."""


@dataclass(slots=True, kw_only=True)
class DataDirectory:
    """The content of one data directory as `survey` found it."""

    path: str
    was_clean: bool
    """Whether it has its clean-shutdown marker."""
    properties: MetaProperties | None = None
    logs: dict[TopicPartition, str] = field(default_factory=dict)
    """The directory of each partition that is in use here."""
    checkpoints: dict[str, Mapping[TopicPartition, int] | None] = field(default_factory=dict)
    """The checkpoints' offsets; None for a checkpoint that is missing or damaged."""

    def at(self, name: str, topic_partition: TopicPartition) -> int | None:
        """A partition's offset in a checkpoint."""
        offsets = self.checkpoints[name]
        return None if offsets is None else offsets.get(topic_partition)

    def claims(self, topic_partition: TopicPartition, *, producer_id_expiration_ms: int) -> Claims:
        """The claims of the directory's files about one log."""
        return Claims(
            was_clean=self.was_clean,
            recovery_point=self.at(RECOVERY_POINTS, topic_partition) or 0,
            log_start_offset=self.at(LOG_START_OFFSETS, topic_partition) or 0,
            high_watermark=self.at(HIGH_WATERMARKS, topic_partition),
            cleaned_to=self.at(CLEANER_OFFSETS, topic_partition),
            producer_id_expiration_ms=producer_id_expiration_ms,
        )

    def check_offsets(self, topic_partition: TopicPartition, findings: Findings) -> None:
        """Report logs that the checkpoints lack: after a clean stop the checkpoints name every log."""
        if self.was_clean:
            for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
                if self.at(name, topic_partition) is None:
                    findings.damage(f"{self.path}/{name}", f"no offset of {topic_partition}", "one")


def survey(files: FileSystem, path: str, findings: Findings) -> DataDirectory:
    """Read a data directory's content; a directory in it that is no log is reported.

    Raises FileNotFoundError, StorageError if it cannot be listed.
    """
    directory = DataDirectory(path=path, was_clean=files.exists(f"{path}/{CLEAN_SHUTDOWN}"))
    try:
        directory.properties = read_meta_properties(files, f"{path}/{META_PROPERTIES}")
        if directory.properties is None:
            findings.damage(f"{path}/{META_PROPERTIES}", "no file", "one that says whose directory it is")
    except WrongDirectory as error:
        findings.damage(f"{path}/{META_PROPERTIES}", str(error), "whose directory it is")
    for entry in files.list_directory(path):
        if not entry.is_directory or entry.name in NOT_LOGS:
            continue
        try:
            topic_partition, fate = parse_dir_name(entry.name)
        except WrongDirectory:
            findings.damage(
                f"{path}/{entry.name}", "a directory of this name",
                "<topic>-<partition>, or the same with .<id>-delete, -future or -stray",
            )  # fmt: skip
            continue
        if fate == MISNAMED:
            findings.damage(f"{path}/{entry.name}", "a directory of this name", topic_partition.dir_name)
        elif not fate:
            directory.logs[topic_partition] = f"{path}/{entry.name}"
    for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS):
        directory.checkpoints[name] = _checkpoint(files, directory, name, findings)
    return directory


def _checkpoint(
    files: FileSystem, directory: DataDirectory, name: str, findings: Findings
) -> Mapping[TopicPartition, int] | None:
    path = f"{directory.path}/{name}"
    try:
        offsets = read_offset_checkpoint(files, path)
    except CorruptCheckpoint as error:
        findings.damage(path, str(error), "a checkpoint")
        return None
    if not files.exists(path):
        return None
    if directory.was_clean and name not in _OF_THE_PAST:
        for topic_partition in offsets:
            if topic_partition not in directory.logs:
                findings.damage(path, f"an offset of {topic_partition}", "partitions of this directory only")
    return offsets


def check_identities(directories: Sequence[DataDirectory], findings: Findings) -> None:
    """Check that all directories belong to one node, and that each has a directory id of its own."""
    known = [(directory, directory.properties) for directory in directories if directory.properties is not None]
    ids: dict[bytes, str] = {}
    for directory, properties in known:
        path = f"{directory.path}/{META_PROPERTIES}"
        other, expected = known[0]
        if properties.cluster_id != expected.cluster_id:
            found = f"cluster.id {properties.cluster_id}"
            findings.damage(path, found, f"{expected.cluster_id}, as {other.path} has it")
        if properties.node_id != expected.node_id:
            findings.damage(path, f"node.id {properties.node_id}", f"{expected.node_id}, as {other.path} has it")
        directory_id = properties.directory_id
        if directory_id is None:
            continue
        if directory_id in ids:
            found = f"directory.id {format_id(directory_id)}"
            findings.damage(path, found, f"one of its own: {ids[directory_id]} has it")
        ids.setdefault(directory_id, directory.path)


def check_no_log_twice(directories: Sequence[DataDirectory], findings: Findings) -> dict[TopicPartition, DataDirectory]:
    """Check that each partition is in one data directory only; returns which one that is."""
    found: dict[TopicPartition, DataDirectory] = {}
    for directory in directories:
        for topic_partition, path in directory.logs.items():
            other = found.setdefault(topic_partition, directory)
            if other is not directory:
                findings.damage(path, f"a log of {topic_partition}", f"one only: {other.path} has it too")
    return found


def bytes_of_logs(files: FileSystem, directory: DataDirectory) -> int:
    """Bytes of batches in all logs, to show how far a check has come."""
    paths = list(directory.logs.values())
    if files.exists(metadata := f"{directory.path}/{METADATA_DIR_NAME}"):
        paths.append(metadata)
    return sum(LogFiles.found_in(files, path).log_bytes for path in paths)
