"""A data directory fails while the broker runs: it goes offline, alone where the node can do without it."""

import logging
from collections.abc import Callable, Collection
from typing import Final

from broker.controller.local_controller import Controller
from broker.replication.replica_manager import ReplicaManager
from broker.runtime.scheduler import Scheduler
from broker.server.log_dirs import LogDirs
from storage.errors import DiskFull, LogDirFailed, StorageError, TooManyOpenFiles
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""How long the metadata waits for the news where the metadata log has no room for them."""


class LogDirFailures:
    """Takes directories offline, for as long as the process lives: what a disk said once is not asked again.

    Its partitions answer KAFKA_STORAGE_ERROR from the moment on, and whoever waits for them is told; the metadata log
    says next that nobody leads them. Without the metadata's directory, or any for logs, the node cannot go on.
    """

    def __init__(
        self,
        *,
        log_dirs: LogDirs,
        logs: LogManager,
        replicas: ReplicaManager,
        controller: Controller,
        scheduler: Scheduler,
        call_soon: Callable[[Callable[[], None]], object],
        fail: Callable[[BaseException], None],
    ) -> None:
        """``fail`` is called where the node cannot go on, ``call_soon`` to get out of what is under way."""
        self._log_dirs = log_dirs
        self._logs = logs
        self._replicas = replicas
        self._controller = controller
        self._scheduler = scheduler
        self._call_soon = call_soon
        self._fail = fail

    def disk_failed(self, directory: LogDir, error: StorageError) -> None:
        """Something could not be written to a directory, or read from it.

        A full disk may have room again, and descriptors come back; a directory that has failed cannot be trusted, and
        is said to be offline once, however many find out.
        """
        if not isinstance(error, LogDirFailed) or directory.has_failed:
            return
        goes_on = self._log_dirs.survives_without(directory)
        partitions = {log.topic_partition for log in self._logs.directory_failed(directory)}
        self._replicas.take_offline(partitions)
        if not goes_on:
            log.error("%s has failed, and the node cannot go on without it: %s", directory.path, error)
            self._fail(error)
            return
        log.error(
            "%s is offline until the next start, and %d partitions with it: %s", directory.path, len(partitions), error
        )
        # Not from here: this may be in the middle of what the metadata log has just told.
        directory_id = self._log_dirs.id_of(directory)
        self._call_soon(lambda: self._tell_controller(directory_id, partitions))

    def _tell_controller(self, directory_id: bytes | None, partitions: Collection[TopicPartition]) -> None:
        try:
            self._controller.directory_failed(directory_id, partitions)
        except (DiskFull, TooManyOpenFiles):
            self._scheduler.once(RETRY_MS, lambda: self._tell_controller(directory_id, partitions))
        except LogDirFailed:
            pass  # the metadata log has failed too, and has said so: the node stops
