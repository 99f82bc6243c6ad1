"""Checks that the data directories of one node are undamaged and consistent: layout, identity, checkpoints, logs."""

from collections.abc import Sequence
from typing import Final

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.topic_rules import TRANSACTION_STATE
from broker.tools.metadata_check import check_metadata, check_snapshot_file
from broker.tools.transaction_check import TransactionCheck
from config.resources import ConfigResource
from storage.check.data_directory import DataDirectory, bytes_of_logs, check_identities, check_no_log_twice, survey
from storage.check.findings import Findings
from storage.check.log_check import check_log, ignore_batch
from storage.checkpoints import PARTITION_METADATA, format_id, read_topic_id
from storage.errors import CorruptCheckpoint, StorageError
from storage.files import FileSystem
from storage.log_dir import METADATA_DIR_NAME
from storage.topic_partition import TopicPartition

BOOTSTRAP: Final = "bootstrap.checkpoint"

_RESERVED_IDS: Final = 100
"""Directory ids below this number mean that a replica's directory is not known (KIP-858)."""
_PRODUCER_ID_EXPIRATION: Final = "producer.id.expiration.ms"


def bytes_to_check(files: FileSystem, paths: Sequence[str]) -> int:
    """How many bytes of batches the directories have, for showing the progress of a check."""
    unheard = Findings(lambda finding: None, lambda size: None)
    return sum(bytes_of_logs(files, survey(files, path, unheard)) for path in paths)


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
        self._transactions = TransactionCheck(findings)

    def run(self, paths: Sequence[str]) -> None:
        directories = [survey(self._files, path, self._findings) for path in paths]
        check_identities(directories, self._findings)
        for directory in directories:
            self._check_metadata(directory)
        self._check_places(directories)
        for directory in directories:
            for topic_partition in sorted(directory.logs):
                self._check_partition(directory, topic_partition)
        self._check_transactions(directories)

    # The metadata log -------------------------------------------------------------------------------------------------

    def _check_metadata(self, directory: DataDirectory) -> None:
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
                configs = self._image.configs.of(ConfigResource.BROKER, resource)
                self._expiration_ms = int(configs.get(_PRODUCER_ID_EXPIRATION, self._expiration_ms))

    # Places of logs ---------------------------------------------------------------------------------------------------

    def _check_places(self, directories: Sequence[DataDirectory]) -> None:
        """Check that the metadata has the partition of every log, and that every partition of this node has a log."""
        found = check_no_log_twice(directories, self._findings)
        if self._image is None:
            return
        for directory in directories:
            for topic_partition, path in directory.logs.items():
                self._check_is_known(self._image, directory, topic_partition, path)
        for topic in self._image.topics.by_name.values():
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.index)
                if topic_partition not in found:
                    self._check_may_be_missing(self._image, directories, topic_partition)

    def _check_is_known(
        self, image: MetadataImage, directory: DataDirectory, topic_partition: TopicPartition, path: str
    ) -> None:
        topic = image.topics.by_name.get(topic_partition.topic)
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
        self, image: MetadataImage, directories: Sequence[DataDirectory], topic_partition: TopicPartition
    ) -> None:
        """Report a partition without log, unless the log may be in a directory not given or on another node."""
        known = [directory for directory in directories if directory.properties is not None]
        if not known or known[0].properties is None:
            return
        node_id = known[0].properties.node_id
        partition = image.topics.by_name[topic_partition.topic].partition(topic_partition.partition)
        if partition is None or node_id not in partition.replicas:
            return
        given = {directory.properties.directory_id: directory for directory in known if directory.properties}
        assigned = partition.directory_of(node_id)
        registration = image.cluster.brokers.get(node_id)
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

    def _check_partition(self, directory: DataDirectory, topic_partition: TopicPartition) -> None:
        self._findings.logs += 1
        path = directory.logs[topic_partition]
        directory.check_offsets(topic_partition, self._findings)
        claims = directory.claims(topic_partition, producer_id_expiration_ms=self._expiration_ms)
        on_batch = self._transactions.replay if topic_partition.topic == TRANSACTION_STATE else ignore_batch
        damages = self._findings.damages
        try:
            extent = check_log(self._files, path, claims, self._findings, on_batch)
        except (StorageError, FileNotFoundError) as error:
            self._findings.damage(path, str(error), "files that can be read")
            return
        if self._findings.damages == damages:
            self._transactions.log_read(topic_partition, path, extent.open_transactions)

    def _check_transactions(self, directories: Sequence[DataDirectory]) -> None:
        node_ids = {directory.properties.node_id for directory in directories if directory.properties is not None}
        if self._image is not None and len(node_ids) == 1:
            self._transactions.finish(self._image, node_ids.pop())
