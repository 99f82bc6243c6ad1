"""Sessions of brokers: their last heartbeats, and the states that heartbeats lead to (KIP-631).

FENCED ── caught up, wants to be unfenced ──► UNFENCED ── wants to stop, leads partitions ──► CONTROLLED_SHUTDOWN
   ▲ └── wants to stop ──► SHUTDOWN_NOW           │ └── wants to stop, leads nothing ──► SHUTDOWN_NOW ◄── leads nothing,
   └────────── wants to be fenced, or its session is over                                    the active brokers know it

Time is an argument, in milliseconds of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto

from protocol.records.cluster_metadata import RegisterBrokerRecord


class BrokerControlState(Enum):
    """A broker's state as the controller sees it."""

    FENCED = auto()
    """It may lead nothing, and clients do not see it."""
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    """It hands its leaderships over."""
    SHUTDOWN_NOW = auto()
    """It is fenced and may stop."""


def state_of(broker: RegisterBrokerRecord) -> BrokerControlState:
    """The state that is in the broker's registration."""
    if broker.fenced:
        return BrokerControlState.FENCED
    return BrokerControlState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerControlState.UNFENCED


def next_state(
    state: BrokerControlState,
    *,
    wants_fence: bool,
    wants_shutdown: bool,
    is_caught_up: bool,
    leads_anything: Callable[[], bool],
    is_shutdown_known: Callable[[], bool],
) -> BrokerControlState:
    """The state after a heartbeat.

    Args:
        state: the state before.
        wants_fence: the heartbeat asks for the broker to be fenced.
        wants_shutdown: the heartbeat asks whether the broker may stop.
        is_caught_up: the broker has applied its own registration.
        leads_anything: whether the broker leads a partition.
        is_shutdown_known: whether all active brokers have applied the change with which the broker gave up its
            leaderships.
    """
    if state is BrokerControlState.FENCED:
        if wants_shutdown:
            return BrokerControlState.SHUTDOWN_NOW
        return BrokerControlState.UNFENCED if is_caught_up and not wants_fence else BrokerControlState.FENCED
    if wants_shutdown and (wants_fence or not leads_anything()):
        is_over = state is BrokerControlState.UNFENCED or wants_fence or is_shutdown_known()
        return BrokerControlState.SHUTDOWN_NOW if is_over else BrokerControlState.CONTROLLED_SHUTDOWN
    if wants_fence:
        return BrokerControlState.FENCED
    return BrokerControlState.CONTROLLED_SHUTDOWN if wants_shutdown else state


class _Session:
    __slots__ = ("broker_epoch", "last_contact_ms", "metadata_offset", "waits")

    def __init__(
        self, broker_epoch: int, last_contact_ms: int, metadata_offset: int = -1, *, waits: bool = False
    ) -> None:
        self.broker_epoch = broker_epoch
        self.last_contact_ms = last_contact_ms
        self.metadata_offset = metadata_offset
        """The offset of the last record that the broker has applied, as it said last."""
        self.waits = waits
        """Whether a heartbeat waits for the controller's answer. The broker sends the next one behind that."""


class BrokerSessions:
    """The last contact with each broker."""

    def __init__(self, timeout_ms: int) -> None:
        """``timeout_ms``: how long a session lasts without a heartbeat (``broker.session.timeout.ms``)."""
        self.timeout_ms = timeout_ms
        self._sessions: dict[int, _Session] = {}
        self.timed_out = 0
        """Brokers that were fenced since their sessions were over."""
        self._shutdown_offsets: dict[int, int] = {}
        """The offset of the record with which a broker in controlled shutdown gave up its leaderships."""

    def begin(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """The broker has registered, or a controller that has just started finds it unfenced."""
        self._sessions[broker_id] = _Session(broker_epoch, now_ms)
        self._shutdown_offsets.pop(broker_id, None)

    def touch(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> None:
        """The broker has sent a heartbeat. Its session cannot be over before `answered`, which is the controller's own
        time: an answer waits for the disk of the metadata log."""
        self._sessions[broker_id] = _Session(broker_epoch, now_ms, metadata_offset, waits=True)

    def answered(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """The heartbeat is answered, and the next one due."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch:
            session.waits = False
            session.last_contact_ms = now_ms

    def renew(self, broker_id: int, now_ms: int) -> None:
        """The same run of the broker has registered again."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.last_contact_ms = now_ms

    def end(self, broker_id: int) -> None:
        """The broker is no longer registered."""
        self._sessions.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)

    def is_valid(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether this registration of the broker has been in contact within the timeout."""
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.broker_epoch == broker_epoch
            and (session.waits or now_ms - session.last_contact_ms <= self.timeout_ms)
        )

    def silent_ms(self, broker_id: int, now_ms: int) -> int | None:
        """For how long the broker has not been in contact; None without a session."""
        session = self._sessions.get(broker_id)
        return None if session is None else now_ms - session.last_contact_ms

    def overdue(self, unfenced: Iterable[int], now_ms: int) -> list[int]:
        """Which of the brokers ``unfenced`` have been silent for longer than the timeout, the longest first."""
        silent = [
            (session.last_contact_ms, broker_id)
            for broker_id in unfenced
            if (session := self._sessions.get(broker_id)) is not None
            and not session.waits
            and now_ms - session.last_contact_ms > self.timeout_ms
        ]
        return [broker_id for _, broker_id in sorted(silent)]

    def next_deadline_ms(self, unfenced: Iterable[int]) -> int | None:
        """When the first session of ``unfenced`` brokers is over if no heartbeat comes; None if there is none."""
        return min(
            (
                session.last_contact_ms + self.timeout_ms + 1
                for broker_id in unfenced
                if (session := self._sessions.get(broker_id)) is not None and not session.waits
            ),
            default=None,
        )

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """The broker has given up its leaderships with the record at ``offset``."""
        self._shutdown_offsets[broker_id] = offset

    def is_shutdown_known(self, broker_id: int, active: Iterable[int], *, end_offset: int, high_watermark: int) -> bool:
        """Whether the ``active`` brokers have applied the record with which ``broker_id`` gave up its leaderships.

        The controller's own broker is not among them: it has applied what is below ``high_watermark``. A controller
        that has started since does not know which record it was, and takes the last one of the log.
        """
        offset = self._shutdown_offsets.setdefault(broker_id, end_offset - 1)
        return high_watermark > offset and all(
            (session := self._sessions.get(broker)) is not None and session.metadata_offset >= offset
            for broker in active
        )
