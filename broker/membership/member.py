"""BrokerMember: keeps a broker registered with its controller, and tells it the broker's state by heartbeats (KIP-631).

register ──► heartbeats, fenced ── caught up, `ready` ──► unfenced ── `shut_down` ──► may stop
   ▲                 │                                       │
   ├─── STALE_BROKER_EPOCH: the controllers know another registration, or none
   └─── the cluster's level has log directories now, and the registration has none
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from broker.membership.controller_channel import FeatureChannel
from broker.membership.features import check_features
from broker.metadata.record_versions import CORDONED_SINCE
from broker.metadata.registration import (
    Registration,
    RegistrationRefused,
    registered_features,
    registered_listeners,
)
from broker.runtime.backoff import Backoff
from broker.runtime.clock import Clock
from broker.runtime.waiting import pause_until, set_by
from protocol.errors import ErrorCode, described
from protocol.messages.broker_lifecycle import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from storage.errors import StorageError

log = logging.getLogger(__name__)

RETRY_FIRST_MS: Final = 100
RETRY_JITTER: Final = 0.02
"""As Kafka's."""

DUPLICATE_RETRY_MS: Final = 500
"""A broker that is restarted is refused until the session of its last run is over. Even pauses lose little then;
Kafka's grow up to the length of a session."""

CATCHING_UP_MS: Final = 10
SHUTTING_DOWN_MS: Final = 50
"""Between two heartbeats while this broker waits for the controllers, as in Kafka."""

FULL_DISK_RETRY_MS: Final = 1_000
"""After how long the controller in this process is told again what it could not write."""


class MemberSettings(NamedTuple):
    """The settings of a member, with Kafka's defaults."""

    heartbeat_interval_ms: int | None = 2_000
    """`broker.heartbeat.interval.ms`. None where the controller is in this process: its own broker's silence is no
    news, and it sends a heartbeat when something has changed."""
    session_timeout_ms: int = 9_000
    """`broker.session.timeout.ms`"""
    registration_timeout_ms: int = 60_000
    """`initial.broker.registration.timeout.ms`"""


DEFAULTS: Final = MemberSettings()


class MemberStats:
    """What a member counts."""

    __slots__ = ("heartbeats", "heartbeats_failed", "registrations")

    def __init__(self) -> None:
        self.registrations = 0
        """Registrations that the controllers have accepted."""
        self.heartbeats = 0
        self.heartbeats_failed = 0
        """Heartbeats that were not answered, or with an error."""


_REASONS: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "they belong to another cluster than its data directories",
    ErrorCode.INVALID_REGISTRATION: "they do not accept its log directories or its features",
    ErrorCode.UNSUPPORTED_VERSION: "it does not support a feature at the level that the cluster has finalised",
}


class BrokerMember:
    """The member that one broker is during one run of its process. `run` is a task of the broker."""

    def __init__(
        self,
        registration: Registration,
        *,
        cluster_id: str,
        previous_broker_epoch: int,
        channel: FeatureChannel,
        applied_offset: Callable[[], int],
        metadata_version: Callable[[], int],
        known_directories: Callable[[], Sequence[bytes] | None],
        clock: Clock,
        chance: Callable[[], float],
        settings: MemberSettings = DEFAULTS,
    ) -> None:
        """
        Args:
            registration: the ids, endpoints and log directories of this run.
            cluster_id: that of the data directories.
            previous_broker_epoch: the epoch of the last registration if all logs were flushed and closed since, else
                -1: a broker that may have lost records is taken out of all replicas in sync (KIP-966).
            channel: to the controllers' leader, for this member alone. Half a session is a good time-out.
            applied_offset: the offset of the last record of the metadata log that this broker has applied.
            metadata_version: the level of metadata.version by these records.
            known_directories: the log directories in this broker's registration by these records; None where the level
                does not have them.
            clock: the time of heartbeats and retries.
            chance: returns a number from 0 to 1.
            settings: the intervals.
        """
        self._registration = registration
        self._cluster_id = cluster_id
        self._previous_broker_epoch = previous_broker_epoch
        self._channel = channel
        self._applied_offset = applied_offset
        self._metadata_version = metadata_version
        self._known_directories = known_directories
        self._clock = clock
        self._settings = settings
        self._backoff = Backoff(
            chance, first_ms=RETRY_FIRST_MS, longest_ms=settings.session_timeout_ms, jitter=RETRY_JITTER
        )
        self._news_level = logging.INFO if settings.heartbeat_interval_ms else logging.DEBUG
        """What the controller in this process says is no news."""
        self._wants_fence = True
        self._wants_shutdown = False
        self._offline: set[bytes] = set()
        self._cordoned: list[bytes] | None = None
        self._news = asyncio.Event()
        """Set when the controllers are to be told something at once."""
        self._is_refusal_logged = False
        self._has_told_directories = False
        """Whether this broker has registered again because its registration had no log directories."""
        self.broker_epoch = -1
        """The epoch of the registration, -1 before the first."""
        self.answered_ms = clock.monotonic_ms()
        """When the controllers have last answered a heartbeat."""
        self.stats = MemberStats()
        self.is_fenced = True
        """Whether the controllers let this broker lead nothing, by the last heartbeat."""
        self.registered = asyncio.Event()
        """Set from the first registration on."""
        self.caught_up = asyncio.Event()
        """Set once this broker has applied its own registration."""
        self.unfenced = asyncio.Event()
        """Set once this broker may lead partitions; it stays set when the broker is fenced later."""
        self.may_stop = asyncio.Event()
        """Set when no partition depends on this broker any more, after `shut_down`."""

    def ready(self) -> None:
        """From now on the broker wants to be unfenced: its logs are there, and it answers requests."""
        self._wants_fence = False
        self._news.set()

    def shut_down(self) -> None:
        """From now on the broker wants to stop: `may_stop` is set when it may."""
        self._wants_shutdown = True
        self._news.set()

    def directory_failed(self, directory_id: bytes) -> None:
        """A log directory (its id of 16 bytes) is offline until the next start."""
        self._offline.add(directory_id)
        self._news.set()

    def cordon(self, directory_ids: Collection[bytes]) -> None:
        """Exactly these log directories take no new replicas (KIP-1066)."""
        self._cordoned = list(directory_ids)
        self._news.set()

    def levels_changed(self) -> None:
        """The cluster has other feature levels: the controllers may be told what there was no level for."""
        self._news.set()

    async def run(self) -> None:
        """Be a member until the broker may stop, or the task is cancelled.

        Raises:
            RegistrationRefused: the controllers refuse this broker for good, or the cluster has finalised a level that
                this broker does not support (`UnsupportedFeatures`).
            StorageError: the controller in this process could not write that this broker starts.
        """
        try:
            while not self.may_stop.is_set():
                await self._register()
                await self._send_heartbeats()
        finally:
            self._channel.close()

    # Registration -----------------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        """Register; raises RegistrationRefused if that takes too long for the first time."""
        began_ms = self._clock.monotonic_ms()
        request = self._registration_request()
        while True:
            if (levels := await self._channel.finalized_features()) is not None:
                check_features(levels)
            answer = await self._channel.ask(request, BrokerRegistrationResponse)
            code = None if answer is None else answer.error_code
            if answer is not None and code == ErrorCode.NONE:
                break
            if code in _REASONS:
                raise RegistrationRefused(
                    f"the controllers do not register broker {self._registration.node_id}: {_REASONS[ErrorCode(code)]}"
                )
            if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self._log_duplicate()
                pause_ms = DUPLICATE_RETRY_MS
            else:
                pause_ms = self._backoff.next_ms()
            waited_ms = self._clock.monotonic_ms() - began_ms
            if not self.registered.is_set() and waited_ms + pause_ms > self._settings.registration_timeout_ms:
                reason = "no controller has answered" if code is None else f"the last answer was {described(code)}"
                if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                    reason = "another process is this broker"
                raise RegistrationRefused(
                    f"broker {self._registration.node_id} could not be registered within "
                    f"{self._settings.registration_timeout_ms} ms: {reason}"
                )
            await pause_until(self._clock, self._clock.monotonic_ms() + pause_ms)
        self._backoff.reset()
        if answer.broker_epoch != self.broker_epoch:
            self.is_fenced = True
        self.broker_epoch = answer.broker_epoch
        self.stats.registrations += 1
        self.registered.set()
        log.log(self._news_level, "registered as broker %d, in epoch %d", self._registration.node_id, self.broker_epoch)

    def _log_duplicate(self) -> None:
        if not self._is_refusal_logged:
            self._is_refusal_logged = True
            log.warning(
                "broker %d is registered by another process, or by the last run of this one, whose session of %d ms is "
                "not over: trying again every %d ms",
                self._registration.node_id, self._settings.session_timeout_ms, DUPLICATE_RETRY_MS,
            )  # fmt: skip

    def _registration_request(self) -> BrokerRegistrationRequest:
        of_request = BrokerRegistrationRequest
        registration = self._registration
        return of_request(
            broker_id=registration.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=registration.incarnation_id,
            listeners=registered_listeners(of_request.Listener, registration.endpoints),
            features=registered_features(of_request.Feature),
            rack=registration.rack,
            log_dirs=list(registration.directories),
            # Only the first registration of a run follows a stop.
            previous_broker_epoch=self._previous_broker_epoch if self.broker_epoch < 0 else self.broker_epoch,
        )

    # Heartbeats -------------------------------------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        """Send heartbeats until the registration is not valid any more, or the broker may stop."""
        while not (self.may_stop.is_set() or self._must_tell_directories()):
            self._news.clear()
            request = BrokerHeartbeatRequest(
                broker_id=self._registration.node_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=self._applied_offset(),
                want_fence=self._wants_fence,
                want_shut_down=self._wants_shutdown,
                offline_log_dirs=sorted(self._offline),
                # As in Kafka, None says nothing of them.
                cordoned_log_dirs=self._cordoned if self._metadata_version() >= CORDONED_SINCE else None,
            )
            self.stats.heartbeats += 1
            try:
                answer = await self._channel.ask(request, BrokerHeartbeatResponse)
            except StorageError as error:
                await self._could_not_be_written(error)
                continue
            if answer is None or answer.error_code != ErrorCode.NONE:
                self.stats.heartbeats_failed += 1
            if answer is not None and answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
                log.warning("the controllers do not know epoch %d of this broker any more", self.broker_epoch)
                return
            if answer is None or answer.error_code != ErrorCode.NONE:
                await self._pause(self._backoff.next_ms())
                continue
            self._backoff.reset()
            self._take(answer)
            if self.may_stop.is_set():
                return
            if request.want_shut_down:
                await pause_until(self._clock, self._clock.monotonic_ms() + SHUTTING_DOWN_MS)
            elif not answer.is_caught_up:
                await self._catch_up()
            elif self._settings.heartbeat_interval_ms is None:
                await self._news.wait()
            else:
                await self._pause(self._settings.heartbeat_interval_ms)

    async def _could_not_be_written(self, error: StorageError) -> None:
        """The controller in this process could not write what it was told. A broker that has not been unfenced yet
        cannot start. A stop is not held up: the next start registers anew in any case. All else is told again."""
        if self._wants_shutdown:
            log.warning("the stop of this node could not be written to the metadata log: %s", error)
            self.may_stop.set()
        elif self.unfenced.is_set():
            await self._pause(FULL_DISK_RETRY_MS)
        else:
            raise error

    def _must_tell_directories(self) -> bool:
        """Whether this broker has to register again, since the cluster has reached the level that has log directories.

        True once, until the registration has them, as in Kafka: the record of it may still be on its way.
        """
        known = self._known_directories()
        if known is None or known or self._wants_shutdown or self._applied_offset() < self.broker_epoch:
            self._has_told_directories = False
        elif not self._has_told_directories:
            self._has_told_directories = True
            log.info("registering again: the cluster has reached the level that has log directories")
            return True
        return False

    def _take(self, answer: BrokerHeartbeatResponse) -> None:
        self.answered_ms = self._clock.monotonic_ms()
        if answer.is_caught_up:
            self.caught_up.set()
        if answer.is_fenced != self.is_fenced:
            self.is_fenced = answer.is_fenced
            state = "fenced" if answer.is_fenced else "unfenced"
            log.log(self._news_level, "broker %d is %s", self._registration.node_id, state)
        if not answer.is_fenced:
            self.unfenced.set()
        if self._wants_shutdown and answer.should_shut_down:
            self.may_stop.set()

    async def _catch_up(self) -> None:
        """Wait until this broker has applied its registration, but for no longer than between two heartbeats."""
        until_ms = self._clock.monotonic_ms() + (self._settings.heartbeat_interval_ms or CATCHING_UP_MS)
        while self._clock.monotonic_ms() < until_ms and not self._news.is_set():
            await pause_until(self._clock, self._clock.monotonic_ms() + CATCHING_UP_MS)
            if self._applied_offset() >= self.broker_epoch:
                return

    async def _pause(self, pause_ms: int) -> None:
        """Wait, or until there is something to tell the controllers."""
        await set_by(self._clock, self._clock.monotonic_ms() + pause_ms, self._news)
