"""Membership: what a broker has with its controller during one run of its process, wherever the controller is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.membership.controller_channel import ControllerChannel, FeatureChannel
from broker.membership.directory_assignments import DirectoryAssignments
from broker.membership.member import BrokerMember, MemberSettings
from broker.membership.producer_id_blocks import ProducerIdBlocks
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.metadata.registration import Registration, known_directories
from broker.runtime.backoff import Backoff
from broker.runtime.clock import Clock
from broker.runtime.shutdown import CONTROLLED_SHUTDOWN_MS, Shutdown, first_of
from broker.runtime.waiting import set_by
from config.broker_settings import BrokerSettings
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.replication.isr_alteration import IsrAlterer

log = logging.getLogger(__name__)

HEARTBEAT: Final = "heartbeat"
ALTER_PARTITION: Final = "alter-partition"
DIRECTORY_ASSIGNMENTS: Final = "directory-assignments"
"""The purposes of channels, by Kafka's names for them. Producer ids are asked for with the assignments."""


class HasImage(Protocol):
    """What has the newest published image of the metadata."""

    @property
    def image(self) -> MetadataImage:
        """The image."""


class Channels(Protocol):
    """Makes the channels to the controller."""

    def feature_channel(self, purpose: str) -> FeatureChannel:
        """The channel for registration and heartbeats."""

    def channel(self, purpose: str) -> ControllerChannel:
        """A channel for one purpose."""


class Membership:
    """`begin` is called once; then `registered`, `unfence` and `leave` in this order, and `close` in any case.

    What is reported of log directories before `begin` is told then.
    """

    def __init__(
        self, settings: BrokerSettings, *, clock: Clock, chance: Callable[[], float], shutdown: Shutdown
    ) -> None:
        """``shutdown`` is told of what ends the membership for good; ``chance`` returns a number from 0 to 1."""
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._shutdown = shutdown
        self._tasks: list[asyncio.Task[None]] = []
        self._has_begun = False
        self._has_left = False
        self._failed_directories: set[bytes] = set()
        self._cordoned: Collection[bytes] | None = None
        self._channels: Channels
        self.member: BrokerMember
        self.directories: DirectoryAssignments
        self.producer_ids: ProducerIdBlocks

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration, which the clean-shutdown marker names; -1 before the first."""
        return self.member.broker_epoch if self._has_begun else -1

    def begin(
        self,
        registration: Registration,
        *,
        cluster_id: str,
        previous_broker_epoch: int,
        channels: Channels,
        metadata: HasImage,
        heartbeat_interval_ms: int | None,
    ) -> None:
        """Begin to register.

        Args:
            registration: of this run of the process.
            cluster_id: that of the data directories.
            previous_broker_epoch: see `BrokerMember`.
            channels: to the controller.
            metadata: the metadata that this broker has applied.
            heartbeat_interval_ms: see `MemberSettings`.
        """
        settings, node_id = self._settings, self._settings.node_id
        self._channels = channels
        self.member = BrokerMember(
            registration,
            cluster_id=cluster_id,
            previous_broker_epoch=previous_broker_epoch,
            channel=channels.feature_channel(HEARTBEAT),
            applied_offset=lambda: metadata.image.end_offset - 1,
            metadata_version=lambda: metadata.image.features.metadata_version,
            known_directories=lambda: known_directories(metadata.image, node_id),
            clock=self._clock,
            chance=self._chance,
            settings=MemberSettings(
                heartbeat_interval_ms=heartbeat_interval_ms,
                session_timeout_ms=settings.broker_session_timeout_ms,
                registration_timeout_ms=settings.initial_broker_registration_timeout_ms,
            ),
        )
        assignments = channels.channel(DIRECTORY_ASSIGNMENTS)
        self.directories = DirectoryAssignments(
            assignments,
            node_id=node_id,
            broker_epoch=lambda: self.broker_epoch,
            known_directories=lambda: known_directories(metadata.image, node_id),
            clock=self._clock,
            backoff=Backoff(self._chance),
        )
        self.producer_ids = ProducerIdBlocks(
            assignments,
            node_id=node_id,
            broker_epoch=lambda: self.broker_epoch,
            clock=self._clock,
            backoff=Backoff(self._chance),
        )
        self._has_begun = True
        for directory_id in self._failed_directories:
            self.member.directory_failed(directory_id)
        if self._cordoned is not None:
            self.member.cordon(self._cordoned)
        self.run(self.member.run(), "membership")
        self.run(self.directories.run(), "directory assignments")
        self.run(self.producer_ids.run(), "producer ids")

    def alter_isrs(self) -> IsrAlterer:
        """Begin to have the ISRs changed of the partitions that this broker leads. A broker alone never does."""
        from broker.membership.alter_partition import AlterPartitionSender

        sender = AlterPartitionSender(
            self._channels.channel(ALTER_PARTITION),
            node_id=self._settings.node_id,
            broker_epoch=lambda: self.broker_epoch,
            clock=self._clock,
        )
        self.run(sender.run(), "in-sync replicas")
        return sender

    def run(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task until `close`; what it raises stops the broker."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, StorageError):  # which the metadata log has logged
                log.error("this broker is no member of its cluster any more: %s", error)
            self._shutdown.fail(error)

    async def registered(self) -> None:
        """Return once this broker is registered and has replayed its registration, or a stop was asked for.

        Raises what has ended the membership.
        """
        await self._shutdown.wait_unless(self.member.caught_up)

    async def unfence(self) -> None:
        """The logs are there: return once this broker may lead, or a stop was asked for."""
        self.member.ready()
        await first_of(self.member.unfenced, self._shutdown.asked)

    async def leave(self) -> None:
        """Have other brokers lead the partitions of this broker, and return when it may stop (KIP-631).

        Without an answer of the controllers for the time of a session, other brokers lead them already, or none can.
        """
        if self._has_left or self._shutdown.failure is not None or self.broker_epoch < 0:
            return
        self._has_left, member = True, self.member
        member.shut_down()
        began_ms = self._clock.monotonic_ms()
        while not member.may_stop.is_set():
            answered_ms = max(member.answered_ms, began_ms)
            until_ms = min(began_ms + CONTROLLED_SHUTDOWN_MS, answered_ms + self._settings.broker_session_timeout_ms)
            if (now_ms := self._clock.monotonic_ms()) >= until_ms:
                _log_early_stop(was_answered=now_ms < answered_ms + self._settings.broker_session_timeout_ms)
                break
            await set_by(self._clock, until_ms, member.may_stop)

    def directory_failed(self, directory_id: bytes) -> None:
        """Report a log directory that has failed; it stays offline until the next start.

        First the controller hears where replicas are: a replica may have been on its way into that directory.
        """
        self._failed_directories.add(directory_id)
        if self._has_begun:
            self.directories.when_told(lambda: self.member.directory_failed(directory_id))

    def cordon(self, directory_ids: Collection[bytes]) -> None:
        """Report exactly which log directories take no new replicas."""
        self._cordoned = directory_ids
        if self._has_begun:
            self.member.cordon(directory_ids)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Part of `MetadataSubscriber`."""
        if not delta.features.is_empty:
            self.member.levels_changed()

    async def close(self) -> None:
        """End all tasks and connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _log_early_stop(*, was_answered: bool) -> None:
    if was_answered:
        log.warning(
            "stopping though not every other broker has the new leaders: they had %d ms for it", CONTROLLED_SHUTDOWN_MS
        )
    else:
        log.warning("stopping without the leave of the controllers, who have not answered")
