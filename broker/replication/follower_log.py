"""FollowerLogs: changes the logs of followed partitions as their fetches decide (a `StepPerformer`)."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from broker.replication.log_start_checkpoints import LogStartCheckpoints
from broker.replication.partition import Partition
from broker.replication.replica_fetch import Append, BeginAnew, Truncate, append
from broker.replication.replica_fetcher import WRITE_ENDS_MS, FollowedPartition
from broker.replication.traffic import ReplicaStats, count_followed
from broker.runtime.clock import Clock
from broker.runtime.waiting import pause_until
from broker.runtime.worker_thread import WorkerThread
from storage.errors import StorageError
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class FollowerLogs:
    """Carries out what the fetches of followed partitions decide."""

    def __init__(
        self,
        *,
        clock: Clock,
        logs: LogManager,
        housekeeper: WorkerThread,
        log_starts: LogStartCheckpoints,
        find: Callable[[str, int], Partition | None],
        appended: Callable[[Partition], None],
        failed: Callable[[Partition, StorageError], None],
        flush: Callable[[Partition, Callable[[], None]], None],
        stop_cleaning: Callable[[TopicPartition], None],
        stats: ReplicaStats,
    ) -> None:
        """
        Args:
            clock: the time.
            logs: has the checkpoints.
            housekeeper: the thread that writes all checkpoints.
            log_starts: saves the log starts that a truncation changes.
            find: the partition of this broker, None if there is none any more.
            appended: called when a partition has new records, or another high watermark or log start.
            failed: called when a log could not be changed.
            flush: does the flush of a partition that is due, and calls back when it is done or has failed.
            stop_cleaning: ends the cleaner's work on a log before it is truncated.
            stats: counts what is appended.
        """
        self._clock = clock
        self._logs = logs
        self._housekeeper = housekeeper
        self._log_starts = log_starts
        self._find = find
        self._appended = appended
        self._failed = failed
        self._flush = flush
        self._stop_cleaning = stop_cleaning
        self._stats = stats

    async def perform(self, followed: FollowedPartition, step: Append | Truncate | BeginAnew) -> None:
        """Part of `StepPerformer`. Does nothing where the partition has another leader epoch by now."""
        topic_partition = followed.topic_partition
        partition = await self._released(followed)
        if partition is None:
            return
        try:
            if isinstance(step, Append):
                self._append(partition, step)
            else:
                cuts = isinstance(step, BeginAnew) or step.offset < partition.log.log_end_offset
                if cuts and not await self._may_cut(followed, partition, step.offset):
                    return
                if partition.log.lost_from == step.offset:
                    log.warning(
                        "%s: records from offset %d on are fetched again from node %d, since the disk has lost some",
                        topic_partition, step.offset, partition.leader,
                    )  # fmt: skip
                self._stop_cleaning(topic_partition)
                change = self._logs.truncate_to if isinstance(step, Truncate) else self._logs.truncate_fully_to
                change(topic_partition, step.offset, self._clock.now_ms())
                # Before the next append: a start that finds an old log start drops what is below it.
                error = (await self._log_starts.saved()).get(partition.log_dir)
                if error is not None:
                    raise error
        except StorageError as error:
            self._failed(partition, error)
            raise
        self._appended(partition)

    async def _released(self, followed: FollowedPartition) -> Partition | None:
        """The partition, once its log's files are not changing their place; None if it is not followed any more."""
        partition = self._followed(followed)
        while partition is not None and partition.log.is_writing:
            await pause_until(self._clock, self._clock.monotonic_ms() + WRITE_ENDS_MS)
            partition = self._followed(followed)
        return partition

    async def _may_cut(self, followed: FollowedPartition, partition: Partition, offset: int) -> bool:
        """Lower the recovery point, and once more if the log's files have changed their place meanwhile. False: the
        partition is not followed any more."""
        while True:
            await self._lower_recovery_point(partition, offset)
            if self._followed(followed) is not partition:
                return False
            if not partition.log.is_writing:
                return True
            if await self._released(followed) is not partition:
                return False

    async def _lower_recovery_point(self, partition: Partition, offset: int) -> None:
        """Let the checkpoint vouch for nothing that is about to be cut off.

        Else the log would go on, after a crash, where the checkpoint says, and lack what is below."""
        followed = partition.log
        while self._logs.get(followed.topic_partition) is followed:
            write = self._logs.begin_truncation(followed.topic_partition, offset)
            if write is None:
                break
            lowered = followed.recovery_point
            await self._housekeeper.run(write.perform)
            if followed.recovery_point <= lowered:
                break  # else a flush was done meanwhile

    def is_log_start_saved(self, followed: FollowedPartition) -> bool:
        """Part of `StepPerformer`. True for a partition that is not followed any more."""
        partition = self._followed(followed)
        return partition is None or partition.log.is_start_saved(
            partition.log_dir.saved_log_start(followed.topic_partition)
        )

    async def save_log_starts(self, unsaved: Sequence[FollowedPartition]) -> Mapping[TopicPartition, StorageError]:
        """Part of `StepPerformer`: one write for each directory."""
        failures = await self._log_starts.saved()
        errors = {}
        for followed in unsaved:
            partition = self._find(*followed.topic_partition)
            if partition is not None and (error := failures.get(partition.log_dir)) is not None:
                self._failed(partition, error)
                errors[followed.topic_partition] = error
        return errors

    async def flush(self, due: Sequence[FollowedPartition]) -> None:
        """Part of `StepPerformer`: the flushes of all these logs, each of which was begun by the append."""
        partitions = [found for one in due if (found := self._followed(one)) is not None]
        await asyncio.gather(*map(self._flushed, partitions))

    async def _flushed(self, partition: Partition) -> None:
        done = asyncio.Event()
        self._flush(partition, done.set)
        await done.wait()

    def _append(self, partition: Partition, step: Append) -> None:
        before = replace(partition.log.stats)
        try:
            append(partition.log, step, self._clock.now_ms())
        finally:  # a full disk may have left some of the batches
            count_followed(partition, before, self._stats)

    def _followed(self, followed: FollowedPartition) -> Partition | None:
        partition = self._find(*followed.topic_partition)
        if partition is None or partition.is_leader or partition.leader_epoch != followed.leader_epoch:
            return None
        return partition
