"""The rooms that metrics reads, as far as they are there: the daemon fills this in while it starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.archive_hold import ArchiveHold
    from broker.clock import Clock
    from broker.coordinators.group_coordinator import GroupCoordinator
    from broker.dispatch.handler_pool import HandlerPool
    from broker.dispatch.registry import Registry
    from broker.log_loading import LogLoading
    from broker.metadata.log import MetadataLog
    from broker.network.acceptor import Acceptor
    from broker.network.processor import Processor
    from broker.offload import FlusherStats
    from broker.replication.fetch_sessions import FetchSessions
    from broker.replication.replica_manager import ReplicaManager
    from broker.request.channel import RequestChannel
    from config.broker_settings import BrokerSettings
    from storage.log_manager import LogManager

PERIOD_MS: Final = 60_000
"""What is recent is of the present period and of the one before it."""


class BrokerState(IntEnum):
    """By Kafka's numbers."""

    STARTING = 1
    RECOVERY = 2
    """Logs are being opened, and recovered where they were not closed in order."""
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Rooms:
    """What is None is not there yet."""

    settings: "BrokerSettings"
    clock: "Clock"
    started_ms: int
    channel: "RequestChannel"
    processors: "Sequence[Processor]"
    acceptors: "Sequence[Acceptor]"
    registry: "Registry"
    replicas: "ReplicaManager"
    fetch_sessions: "FetchSessions"
    flushers: "Callable[[], Sequence[FlusherStats]]"
    """What each flusher has counted."""
    state: BrokerState = BrokerState.STARTING
    handlers: "HandlerPool | None" = None
    loading: "LogLoading | None" = None
    logs: "LogManager | None" = None
    metadata_log: "MetadataLog | None" = None
    group_coordinator: "GroupCoordinator | None" = None
    archive_hold: "ArchiveHold | None" = None
    on_period: list[Callable[[], None]] = field(default_factory=list)
    """Called whenever a period is over."""

    def period_is_over(self) -> None:
        """Called every `PERIOD_MS`."""
        for call in self.on_period:
            call()
