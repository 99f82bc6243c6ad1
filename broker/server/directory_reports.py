"""DirectoryReports: tells the controller of this broker's log directories (KIP-858, KIP-1066).

They fail, take no new replicas, and lose replicas; a broker without a directory that it needs stops.
"""

import logging
from collections.abc import Collection

from broker.membership.membership import Membership
from broker.metadata.cache import MetadataCache
from broker.runtime.counted import counted
from broker.runtime.shutdown import Shutdown
from broker.server.log_dirs import LogDirs
from config.broker_settings import BrokerSettings
from storage.errors import StorageError
from storage.log_dir import LogDir
from storage.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class DirectoryReports:
    """The log directories of one broker, as its controller is told of them."""

    def __init__(
        self, node_id: int, log_dirs: LogDirs, membership: Membership, metadata: MetadataCache, shutdown: Shutdown
    ) -> None:
        self._node_id = node_id
        self._log_dirs = log_dirs
        self._membership = membership
        self._metadata = metadata
        self._shutdown = shutdown

    def report_failed_before(self) -> None:
        """Report the directories that have failed while the logs were loaded."""
        for directory in self._log_dirs.for_logs:
            if directory.has_failed:
                self._report(directory, ())

    def directory_failed(self, directory: LogDir, error: StorageError, partitions: Collection[TopicPartition]) -> None:
        """A directory is offline until the next start, and ``partitions`` with it.

        Without the directory of the metadata, or any directory for logs, the broker cannot go on.
        """
        if not self._log_dirs.can_go_on:
            log.error("%s has failed, and the node cannot go on without it: %s", directory.path, error)
            self._shutdown.fail(error)
            return
        log.error(
            "%s is offline until the next start, and %s with it: %s",
            *(directory.path, counted(len(partitions), "partition"), error),
        )
        self._report(directory, partitions)

    def _report(self, directory: LogDir, partitions: Collection[TopicPartition]) -> None:
        directory_id = self._log_dirs.id_of(directory)
        if directory_id is not None:
            self._membership.directory_failed(directory_id)
        for topic_partition in partitions:
            self._lose(topic_partition, directory_id)

    def partition_removed(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """A partition is offline until the next start, since another process has removed its files."""
        log.error("%s is offline until the next start: %s", topic_partition, error)
        self._lose(topic_partition, None)

    def _lose(self, topic_partition: TopicPartition, directory_id: bytes | None) -> None:
        """Say that a replica is in no directory, unless the metadata has it in ``directory_id``."""
        topic = self._metadata.image.topics.by_name.get(topic_partition.topic)
        partition = None if topic is None else topic.partition(topic_partition.partition)
        if topic is None or partition is None:
            return
        if directory_id is None or partition.directory_of(self._node_id) != directory_id:
            self._membership.directories.lost(topic.topic_id, partition.index)

    def assign(self, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        """Tell the controller in which log directory a replica is."""
        self._membership.directories.assign(topic_id, partition, directory_id)

    def cordon(self, settings: BrokerSettings) -> None:
        """Let the directories of `cordoned.log.dirs` take no new replicas, and tell the controller."""
        self._log_dirs.cordon(settings.cordoned_directories)
        self._membership.cordon(self._log_dirs.cordoned_ids)
