"""BrokerLifecycle: registration, heartbeats, failed directories and controlled shutdown with the controller.

STARTING ── metadata replayed ── RECOVERY ── logs loaded, registered, unfenced ── RUNNING ── PENDING_CONTROLLED_SHUTDOWN
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from broker.controller.client import ControllerClient, Heartbeat, HeartbeatAnswer
from broker.metadata.broker_state import BrokerState
from broker.metadata.cache import MetadataCache
from broker.metadata.image.records import Record
from broker.metadata.registration import Registration
from broker.runtime.clock import Clock
from broker.runtime.counted import counted
from broker.runtime.scheduler import Scheduler
from broker.runtime.shutdown import CONTROLLED_SHUTDOWN_MS, Shutdown, first_of
from broker.server.log_dirs import LogDirs
from config.broker_settings import BrokerSettings
from storage.errors import DiskFull, LogDirFailed, StorageError, TooManyOpenFiles
from storage.log_dir import LogDir
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.membership.cluster_membership import ClusterMembership

log = logging.getLogger(__name__)

HEARTBEAT_MS: Final = 2_000
"""Time between two heartbeats while the controller has not agreed: Kafka's ``broker.heartbeat.interval.ms``."""

SHUTTING_DOWN_MS: Final = 50
"""The same while other brokers take the leaderships over."""

RETRY_MS: Final = 1_000
"""After how long the report of a failed directory is tried again if the metadata log's disk was full."""


class BrokerLifecycle:
    """Reports this broker's state to the controller; stops a broker without a directory it needs (KIP-631, KIP-858)."""

    def __init__(
        self,
        *,
        log_dirs: LogDirs,
        metadata: MetadataCache,
        clock: Clock,
        scheduler: Scheduler,
        shutdown: Shutdown,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """``call_soon`` is the loop's: its callbacks run in a later turn, outside of the current call."""
        self._log_dirs = log_dirs
        self._metadata = metadata
        self._clock = clock
        self._scheduler = scheduler
        self._shutdown = shutdown
        self._call_soon = call_soon
        self._controller: ControllerClient | None = None
        self._membership: ClusterMembership | None = None
        self._has_left = False
        """Whether the controller in this process lets this broker stop."""
        self._unreported: list[tuple[bytes | None, Collection[TopicPartition]]] = []
        """Failed directories that are not reported to the controller yet."""
        self.state = BrokerState.STARTING

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration, which the clean-shutdown marker names; -1 before the registration."""
        if self._membership is not None:
            return self._membership.broker_epoch
        return -1 if self._controller is None else self._controller.broker_epoch

    def become_member(self, membership: "ClusterMembership") -> None:
        """The controllers are other nodes: failed directories are reported to them."""
        self._membership = membership
        self._report_all()

    async def unfence(self) -> None:
        """Requests are answered: return once this broker may lead its partitions, or a stop was asked for."""
        if self._membership is not None:
            await self._membership.unfence()

    async def leave(self) -> None:
        """Have other brokers lead this broker's partitions, before it answers no more requests."""
        if self._membership is not None:
            await self._membership.leave()
        elif self._controller is not None and self._controller.has_other_brokers and not self._shutdown.failed.is_set():
            await self._hand_over()

    async def register(
        self,
        controller: ControllerClient,
        registration: Registration,
        *,
        bootstrap: Callable[[], Sequence[Record]],
        was_clean: bool,
        found: Mapping[TopicPartition, bytes],
    ) -> None:
        """Register this run of the broker, and return once it is unfenced. The arguments are the controller's.

        Raises StorageError, or the error that keeps the broker from going on; returns early if a stop was asked for.
        """
        self._controller = controller
        registered = asyncio.Event()
        controller.register(registration, bootstrap=bootstrap, was_clean=was_clean, found=found, then=registered.set)
        await self._shutdown.wait_unless(registered)
        self._report_all()
        unfenced = asyncio.Event()
        self._beat(
            controller, unfenced, lambda answer: not answer.is_fenced, wants_shutdown=False, failed=self._shutdown.fail
        )
        await self._shutdown.wait_unless(unfenced)

    async def shut_down(self) -> None:
        """Ask the controller in this process whether this broker may stop, and return when it may."""
        if self._membership is None and not self._has_left:
            await self._hand_over()

    async def _hand_over(self) -> None:
        """Send heartbeats that ask to stop until the controller agrees.

        Its log may be unable to take the stop, and another broker may never apply that it leads the partitions now. The
        node stops all the same: the next start registers anew in any case.
        """
        assert self._controller is not None, "a broker that never registered leads nothing"
        ended, late = asyncio.Event(), asyncio.Event()

        def failed(error: StorageError) -> None:
            log.warning("the stop of this node could not be written to the metadata log: %s", error)
            ended.set()

        alarm = self._clock.call_at(self._clock.monotonic_ms() + CONTROLLED_SHUTDOWN_MS, late.set)
        self._beat(self._controller, ended, lambda answer: answer.should_shut_down, wants_shutdown=True, failed=failed)
        await first_of(ended, late, self._shutdown.failed)
        alarm.cancel()
        if late.is_set() and not ended.is_set():
            log.warning(
                "stopping though not every other broker has the new leaders: they had %d ms for it",
                CONTROLLED_SHUTDOWN_MS,
            )
        ended.set()  # no heartbeat any more
        self._has_left = True

    def _beat(
        self,
        controller: ControllerClient,
        ended: asyncio.Event,
        agrees: Callable[[HeartbeatAnswer], bool],
        *,
        wants_shutdown: bool,
        failed: Callable[[StorageError], None],
    ) -> None:
        """Send heartbeats until the controller's answer is as wanted, which sets ``ended``, or ``ended`` is set anyway.

        ``failed`` gets the error of a heartbeat that the metadata log could not take; no other heartbeat follows.
        """

        def answered(answer: HeartbeatAnswer) -> None:
            if agrees(answer):
                ended.set()
            else:
                pause_ms = SHUTTING_DOWN_MS if wants_shutdown else HEARTBEAT_MS
                self._clock.call_at(self._clock.monotonic_ms() + pause_ms, again)

        def again() -> None:
            if self._shutdown.failure is None and not ended.is_set():
                self._beat(controller, ended, agrees, wants_shutdown=wants_shutdown, failed=failed)

        try:
            controller.heartbeat(Heartbeat(self._metadata.image.end_offset, wants_shutdown=wants_shutdown), answered)
        except StorageError as error:
            failed(error)

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
        # Not at once: this call may come from the publication of a metadata change.
        directory_id = self._log_dirs.id_of(directory)
        self._call_soon(lambda: self._report(directory_id, partitions))

    def report_failed_before(self) -> None:
        """Report the directories that have failed since this broker registered as a member, which it does before it
        loads its logs."""
        if self._membership is not None:
            for directory in self._log_dirs.for_logs:
                if directory.has_failed:
                    self._membership.directory_failed(self._log_dirs.id_of(directory))

    def assign_directory(self, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        """Tell the controller in which log directory a replica is."""
        if self._membership is not None:
            self._membership.requests.assign_directory(topic_id, partition, directory_id)
        else:
            # Not at once: this call may come from the publication of a metadata change.
            self._call_soon(lambda: self._assign_directory(topic_id, partition, directory_id))

    def _assign_directory(self, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        assert self._controller is not None, "a broker registers before it hosts replicas"
        try:
            self._controller.assign_directory(topic_id, partition, directory_id, _nothing)
        except (DiskFull, TooManyOpenFiles):
            self._scheduler.once(RETRY_MS, lambda: self._assign_directory(topic_id, partition, directory_id))
        except LogDirFailed:
            pass  # the metadata log has failed too, and has logged it: the node stops

    def cordon(self, settings: BrokerSettings) -> None:
        """Let the directories of `cordoned.log.dirs` take no new replicas, and tell the controller."""
        self._log_dirs.cordon(settings.cordoned_directories)
        # Not at once: this call may come from the publication of a metadata change.
        self._call_soon(self._report_cordoned)

    def _report_cordoned(self) -> None:
        cordoned = self._log_dirs.cordoned_ids
        if self._membership is not None:
            self._membership.cordon(cordoned)
        elif self._controller is not None:  # else the registration will say so
            try:
                self._controller.cordon(cordoned)
            except (DiskFull, TooManyOpenFiles):
                self._scheduler.once(RETRY_MS, self._report_cordoned)
            except LogDirFailed:
                pass  # the metadata log has failed too, and has logged it: the node stops

    def partition_removed(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """A partition is offline until the next start, since another process has removed its files."""
        log.error("%s is offline until the next start: %s", topic_partition, error)
        self._call_soon(lambda: self._report(None, [topic_partition]))

    def _report_all(self) -> None:
        unreported, self._unreported = self._unreported, []
        for directory_id, partitions in unreported:
            self._report(directory_id, partitions)

    def _report(self, directory_id: bytes | None, partitions: Collection[TopicPartition]) -> None:
        if self._membership is not None:
            self._membership.directory_failed(directory_id)
            return
        if self._controller is None:
            self._unreported.append((directory_id, partitions))
            return
        try:
            self._controller.directory_failed(directory_id, partitions)
        except (DiskFull, TooManyOpenFiles):
            self._scheduler.once(RETRY_MS, lambda: self._report(directory_id, partitions))
        except LogDirFailed:
            pass  # the metadata log has failed too, and has logged it: the node stops


def _nothing() -> None:
    pass
