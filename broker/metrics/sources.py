"""The parts of the broker whose figures the metrics read; the broker server fills them in while it starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from broker.metadata.broker_state import BrokerState

if TYPE_CHECKING:
    from broker.coordinators.group_coordinator import GroupCoordinator
    from broker.dispatch.handler_pool import HandlerPool
    from broker.dispatch.registry import Registry
    from broker.fetch.sessions import FetchSessions
    from broker.logs.loading import LogLoading
    from broker.logs.retention_hold import RetentionHold
    from broker.network.acceptor import Acceptor
    from broker.network.processor import Processor
    from broker.raft.metadata_log import MetadataLog
    from broker.replication.replica_manager import ReplicaManager
    from broker.request.channel import RequestChannel
    from broker.runtime.clock import Clock
    from broker.runtime.worker_thread import FlusherStats
    from config.broker_settings import BrokerSettings
    from storage.log_manager import LogManager

PERIOD_MS: Final = 60_000
"""What is recent is of the present period and of the one before it."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class MetricSources:
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
    retention_hold: "RetentionHold | None" = None
    on_period: list[Callable[[], None]] = field(default_factory=list)
    """Called whenever a period is over."""

    def period_is_over(self) -> None:
        """Called every `PERIOD_MS`."""
        for call in self.on_period:
            call()
