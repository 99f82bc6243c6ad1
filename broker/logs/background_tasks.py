"""Periodic tasks for logs: retention, checkpoints, flushes by time, expiry of producer state."""

import logging
from collections.abc import Sequence
from functools import partial

from broker.logs.removals import LogRemovals
from broker.logs.retention_hold import RetentionHold
from broker.replication.replica_manager import ReplicaManager
from broker.runtime.clock import Clock
from broker.runtime.counted import counted
from broker.runtime.scheduler import Scheduler
from broker.runtime.worker_thread import WorkerThread
from config.broker_settings import BrokerSettings
from storage.errors import FilesRemoved, LogDirFailed, StorageError
from storage.log_dir import CheckpointWrite, LogDir
from storage.log_manager import LogManager

log = logging.getLogger(__name__)

LONGEST_FLUSH_CHECK_MS = 1000
"""The longest interval between checks whether a topic's ``flush.ms`` is over, or a rolled segment is not on disk yet.

Kafka never checks unless ``log.flush.scheduler.interval.ms`` is set, so that ``flush.ms`` alone does nothing there.
"""


class LogBackgroundTasks:
    """Puts the jobs of `LogManager` on the timing wheel; blocking parts run in the worker thread."""

    def __init__(
        self,
        *,
        clock: Clock,
        logs: LogManager,
        replicas: ReplicaManager,
        removals: LogRemovals,
        retention_hold: RetentionHold,
        worker: WorkerThread,
    ) -> None:
        self._clock = clock
        self._logs = logs
        self._replicas = replicas
        self._removals = removals
        self._retention_hold = retention_hold
        self._worker = worker
        self._full_directories: set[LogDir] = set()
        """Directories that have been logged as full, and in which no write has succeeded since."""

    def start(self, scheduler: Scheduler, settings: BrokerSettings) -> None:
        """Schedule all tasks; the first time after ``log.initial.task.delay.ms``, as in Kafka."""
        delay_ms = settings.log_initial_task_delay_ms
        scheduler.every(settings.log_retention_check_interval_ms, self.apply_retention, first_after_ms=delay_ms)
        scheduler.every(settings.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks)
        scheduler.every(
            settings.log_flush_offset_checkpoint_interval_ms, self.checkpoint_recovery_points, first_after_ms=delay_ms
        )
        scheduler.every(
            settings.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_log_starts, first_after_ms=delay_ms
        )
        scheduler.every(settings.producer_id_expiration_check_interval_ms, self.forget_silent_producers)
        scheduler.every(
            min(settings.log_flush_scheduler_interval_ms, LONGEST_FLUSH_CHECK_MS), self._replicas.flush_what_is_due
        )

    def apply_retention(self) -> None:
        """Take segments whose retention is over out of use, and remove their files once their delay is over."""
        for swept, outcome in self._logs.apply_retention(self._clock.now_ms(), self._retention_hold.held_from):
            directory = self._logs.directory_of(swept.topic_partition)
            assert directory is not None, f"{swept} stands nowhere"
            partition = self._replicas.find(*swept.topic_partition)
            if isinstance(outcome, FilesRemoved) and partition is not None:
                partition.disk_failed(outcome)
                continue
            if isinstance(outcome, StorageError):
                self._failed(directory, outcome)
                continue
            if outcome and partition is not None:
                self._replicas.changed(partition)  # the log starts at a later offset now
            if swept.given_up.size:
                self._retention_hold.log_given_up(swept)
            for removal in outcome:
                log.info("retention: %s", removal)
                self._removals.remove_later(removal, directory)

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of all partitions."""
        self._write(self._logs.high_watermark_checkpoints())

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points: up to where logs are on disk."""
        self._write(self._logs.recovery_point_checkpoints())

    def checkpoint_log_starts(self) -> None:
        """Write the log start offsets of all logs."""
        self._write(self._logs.log_start_checkpoints())

    def forget_silent_producers(self) -> None:
        """Drop the state of producers that have written nothing for ``producer.id.expiration.ms``."""
        forgotten = self._logs.remove_expired_producers(self._clock.now_ms())
        if forgotten:
            log.info("forgot %s after too long a silence", counted(forgotten, "producer"))

    def _write(self, checkpoints: Sequence[CheckpointWrite]) -> None:
        for checkpoint in checkpoints:
            self._worker.submit(
                checkpoint.perform,
                partial(self._written, checkpoint.directory),
                partial(self._failed, checkpoint.directory),
            )

    def _written(self, directory: LogDir, _: None) -> None:
        self._full_directories.discard(directory)

    def _failed(self, directory: LogDir, error: Exception) -> None:
        """A task has failed in a directory. After a full disk the task is tried again the next time."""
        if not isinstance(error, StorageError):
            raise error
        if not isinstance(error, LogDirFailed) and directory not in self._full_directories:
            self._full_directories.add(directory)
            log.error("%s", error)
        self._replicas.disk_failed(directory, error)
