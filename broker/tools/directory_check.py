"""Whether the data directories of one node are whole, and say the same: layout, identity, checkpoints, logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.metadata.image import RESOURCE_BROKER, MetadataImage
from broker.tools.findings import Findings
from broker.tools.log_check import Claims, check_log
from broker.tools.log_files import LogFiles
from broker.tools.metadata_check import check_metadata, check_snapshot_file
from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    MetaProperties,
    format_id,
    read_meta_properties,
    read_offset_checkpoint,
    read_topic_id,
)
from storage.errors import CorruptCheckpoint, StorageError, WrongDirectory
from storage.files import FileSystem
from storage.log_dir import METADATA_DIR_NAME, NOT_LOGS
from storage.topic_partition import TopicPartition, parse_dir_name

BOOTSTRAP: Final = "bootstrap.checkpoint"

_RESERVED_IDS: Final = 100
"""Directory ids below this number mean that a replica's directory is not known (KIP-858)."""
_PRODUCER_ID_EXPIRATION: Final = "producer.id.expiration.ms"


@dataclass(slots=True, kw_only=True)
class _DataDirectory:
    path: str
    was_clean: bool
    properties: MetaProperties | None = None
    logs: dict[TopicPartition, str] = field(default_factory=dict)
    """The directory of each partition that is in use here."""
    checkpoints: dict[str, Mapping[TopicPartition, int] | None] = field(default_factory=dict)
    """What the checkpoints hold; None for one that is not there, or damaged."""

    def at(self, name: str, topic_partition: TopicPartition) -> int | None:
        """What a checkpoint says of a partition."""
        offsets = self.checkpoints[name]
        return None if offsets is None else offsets.get(topic_partition)


def bytes_to_check(files: FileSystem, paths: Sequence[str]) -> int:
    """How many bytes of batches there are, for whoever wants to know how far a check has come."""
    total = 0
    for path in paths:
        for entry in files.list_directory(path):
            if entry.is_directory and (entry.name == METADATA_DIR_NAME or _is_in_use(entry.name)):
                total += LogFiles.found_in(files, f"{path}/{entry.name}").log_bytes
    return total


def _is_in_use(name: str) -> bool:
    try:
        return not parse_dir_name(name).fate
    except WrongDirectory:
        return False


def check_directories(
    files: FileSystem, paths: Sequence[str], findings: Findings, *, producer_id_expiration_ms: int
) -> None:
    """Check ``paths``, all or some of one node's data directories. Raises StorageError if one cannot be listed."""
    _NodeCheck(files, findings, producer_id_expiration_ms).run(paths)


class _NodeCheck:
    def __init__(self, files: FileSystem, findings: Findings, producer_id_expiration_ms: int) -> None:
        self._files = files
        self._findings = findings
        self._expiration_ms = producer_id_expiration_ms
        self._image: MetadataImage | None = None

    def run(self, paths: Sequence[str]) -> None:
        directories = [self._survey(path) for path in paths]
        self._check_identities(directories)
        for directory in directories:
            self._check_metadata(directory)
        self._check_places(directories)
        for directory in directories:
            for topic_partition in sorted(directory.logs):
                self._check_partition(directory, topic_partition)

    # The directories as such ------------------------------------------------------------------------------------------

    def _survey(self, path: str) -> _DataDirectory:
        """What is in a directory; other directories than logs are not allowed there."""
        directory = _DataDirectory(path=path, was_clean=self._files.exists(f"{path}/{CLEAN_SHUTDOWN}"))
        try:
            directory.properties = read_meta_properties(self._files, f"{path}/{META_PROPERTIES}")
            if directory.properties is None:
                self._findings.damage(f"{path}/{META_PROPERTIES}", "no file", "one that says whose directory it is")
        except WrongDirectory as error:
            self._findings.damage(f"{path}/{META_PROPERTIES}", str(error), "whose directory it is")
        for entry in self._files.list_directory(path):
            if not entry.is_directory or entry.name in NOT_LOGS:
                continue
            try:
                topic_partition, fate = parse_dir_name(entry.name)
            except WrongDirectory:
                self._findings.damage(
                    f"{path}/{entry.name}", "a directory of this name",
                    "<topic>-<partition>, or the same with .<id>-delete, -future or -stray",
                )  # fmt: skip
                continue
            if not fate:
                directory.logs[topic_partition] = f"{path}/{entry.name}"
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS):
            directory.checkpoints[name] = self._checkpoint(directory, name)
        return directory

    def _checkpoint(self, directory: _DataDirectory, name: str) -> Mapping[TopicPartition, int] | None:
        path = f"{directory.path}/{name}"
        try:
            offsets = read_offset_checkpoint(self._files, path)
        except CorruptCheckpoint as error:
            self._findings.damage(path, str(error), "a checkpoint")
            return None
        if not self._files.exists(path):
            return None
        # The cleaner's is only written when something is cleaned: it may name what is gone since.
        if directory.was_clean and name != CLEANER_OFFSETS:
            for topic_partition in offsets:
                if topic_partition not in directory.logs:
                    self._findings.damage(path, f"an offset of {topic_partition}", "partitions of this directory only")
        return offsets

    def _check_identities(self, directories: Sequence[_DataDirectory]) -> None:
        known = [(directory, directory.properties) for directory in directories if directory.properties is not None]
        ids: dict[bytes, str] = {}
        for directory, properties in known:
            path = f"{directory.path}/{META_PROPERTIES}"
            other, expected = known[0]
            if properties.cluster_id != expected.cluster_id:
                found = f"cluster.id {properties.cluster_id}"
                self._findings.damage(path, found, f"{expected.cluster_id}, as {other.path} has it")
            if properties.node_id != expected.node_id:
                self._findings.damage(
                    path, f"node.id {properties.node_id}", f"{expected.node_id}, as {other.path} has it"
                )
            directory_id = properties.directory_id
            if directory_id is None:
                continue
            if directory_id in ids:
                found = f"directory.id {format_id(directory_id)}"
                self._findings.damage(path, found, f"one of its own: {ids[directory_id]} has it")
            ids.setdefault(directory_id, directory.path)

    def _check_metadata(self, directory: _DataDirectory) -> None:
        bootstrap = f"{directory.path}/{BOOTSTRAP}"
        if self._files.exists(bootstrap):
            check_snapshot_file(self._files, bootstrap, self._findings)
        path = f"{directory.path}/{METADATA_DIR_NAME}"
        if not self._files.exists(path):
            return
        if self._image is not None:
            self._findings.damage(path, "a second metadata log", "one for all directories")
            return
        self._findings.logs += 1
        self._image = check_metadata(
            self._files, path, self._findings, was_clean=directory.was_clean,
            producer_id_expiration_ms=self._expiration_ms,
        )  # fmt: skip
        if directory.properties is not None:
            for resource in ("", str(directory.properties.node_id)):
                configs = self._image.configs.get((RESOURCE_BROKER, resource), {})
                self._expiration_ms = int(configs.get(_PRODUCER_ID_EXPIRATION, self._expiration_ms))

    # Which log stands where -------------------------------------------------------------------------------------------

    def _check_places(self, directories: Sequence[_DataDirectory]) -> None:
        """Every log is known to the metadata, and every partition of this node has its log."""
        found: dict[TopicPartition, _DataDirectory] = {}
        for directory in directories:
            for topic_partition, path in directory.logs.items():
                other = found.setdefault(topic_partition, directory)
                if other is not directory:
                    self._findings.damage(path, f"a log of {topic_partition}", f"one only: {other.path} has it too")
        if self._image is None:
            return
        for directory in directories:
            for topic_partition, path in directory.logs.items():
                self._check_is_known(self._image, directory, topic_partition, path)
        for topic in self._image.topics_by_name.values():
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.index)
                if topic_partition not in found:
                    self._check_may_be_missing(self._image, directories, topic_partition)

    def _check_is_known(
        self, image: MetadataImage, directory: _DataDirectory, topic_partition: TopicPartition, path: str
    ) -> None:
        topic = image.topics_by_name.get(topic_partition.topic)
        if topic is None or topic.partition(topic_partition.partition) is None:
            self._findings.either(
                path, "a log", f"no {topic_partition}: the metadata log does not know it", is_damage=directory.was_clean
            )
            return
        metadata_path = f"{path}/{PARTITION_METADATA}"
        try:
            topic_id = read_topic_id(self._files, metadata_path)
        except CorruptCheckpoint as error:
            self._findings.either(metadata_path, str(error), "a topic id", is_damage=directory.was_clean)
            return
        if topic_id != topic.topic_id:
            self._findings.either(
                metadata_path, "no file" if topic_id is None else f"topic id {format_id(topic_id)}",
                f"{format_id(topic.topic_id)}, as the metadata log has it", is_damage=directory.was_clean,
            )  # fmt: skip

    def _check_may_be_missing(
        self, image: MetadataImage, directories: Sequence[_DataDirectory], topic_partition: TopicPartition
    ) -> None:
        """A partition has no log. It may stand in a directory that was not given, or be another node's."""
        known = [directory for directory in directories if directory.properties is not None]
        if not known or known[0].properties is None:
            return
        node_id = known[0].properties.node_id
        partition = image.topics_by_name[topic_partition.topic].partition(topic_partition.partition)
        if partition is None or node_id not in partition.replicas:
            return
        given = {directory.properties.directory_id: directory for directory in known if directory.properties}
        assigned = partition.directory_of(node_id)
        registration = image.brokers.get(node_id)
        all_ids = set(registration.log_dirs) if registration is not None else set()
        if assigned in given:
            home = given[assigned]
        elif int.from_bytes(assigned, "big") < _RESERVED_IDS and all_ids <= set(given):
            home = known[0]
        else:
            return
        self._findings.either(
            f"{home.path}/{topic_partition.dir_name}", "no directory", "the log of a partition of the metadata log",
            is_damage=all(directory.was_clean for directory in directories),
        )  # fmt: skip

    # Logs -------------------------------------------------------------------------------------------------------------

    def _check_partition(self, directory: _DataDirectory, topic_partition: TopicPartition) -> None:
        self._findings.logs += 1
        path = directory.logs[topic_partition]
        recovery_point = directory.at(RECOVERY_POINTS, topic_partition)
        high_watermark = directory.at(HIGH_WATERMARKS, topic_partition)
        if directory.was_clean:
            for name, offset in ((RECOVERY_POINTS, recovery_point), (HIGH_WATERMARKS, high_watermark)):
                if offset is None:
                    self._findings.damage(f"{directory.path}/{name}", f"no offset of {topic_partition}", "one")
        claims = Claims(
            was_clean=directory.was_clean,
            recovery_point=recovery_point or 0,
            log_start_offset=directory.at(LOG_START_OFFSETS, topic_partition) or 0,
            high_watermark=high_watermark,
            producer_id_expiration_ms=self._expiration_ms,
        )
        try:
            check_log(self._files, path, claims, self._findings)
        except (StorageError, FileNotFoundError) as error:
            self._findings.damage(path, str(error), "files that can be read")
