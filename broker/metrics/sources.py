"""The parts of the broker whose figures the metrics read; the broker server fills them in while it starts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.controller.local_controller import LocalController
    from broker.coordinators.group_coordinator import GroupCoordinator
    from broker.coordinators.share_coordinator import ShareCoordinator
    from broker.coordinators.transaction_coordinator import TransactionCoordinator
    from broker.dispatch.handler_pool import HandlerPool
    from broker.dispatch.registry import Registry
    from broker.fetch.sessions import FetchSessions
    from broker.logs.cleaner import LogCleaner
    from broker.logs.loading import LogLoading
    from broker.logs.replica_moves import ReplicaMoves
    from broker.logs.retention_hold import RetentionHold
    from broker.membership.cluster_membership import ClusterMembership
    from broker.metadata.broker_state import BrokerState
    from broker.metadata.cache import MetadataCache
    from broker.network.acceptor import Acceptor
    from broker.network.processor import Processor
    from broker.peers.stats import PeerStats
    from broker.raft.observers import Observers
    from broker.raft.single_voter_log import SingleVoterLog
    from broker.replication.replica_manager import ReplicaManager
    from broker.replication.throttles import ReplicationThrottles
    from broker.request.channel import RequestChannel
    from broker.runtime.clock import Clock
    from broker.runtime.purgatory import Purgatory
    from broker.runtime.worker_thread import FlusherStats
    from broker.security.acls.standard_authorizer import StandardAuthorizer
    from broker.security.quotas.usage import QuotaUsage
    from broker.share.sessions import ShareSessions
    from broker.share.share_partitions import SharePartitions
    from config.broker_settings import BrokerSettings
    from storage.log_manager import LogManager

PERIOD_MS: Final = 60_000
"""Length of a period. Recent values are those of the present period and of the period before it."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class MetricSources:
    """The parts of the broker. A part that is None has not been made yet."""

    settings: "BrokerSettings"
    clock: "Clock"
    started_ms: int
    channel: "RequestChannel"
    processors: "Sequence[Processor]"
    acceptors: "Sequence[Acceptor]"
    registry: "Registry"
    metadata: "MetadataCache"
    state: "Callable[[], BrokerState]"
    flushers: "Callable[[], Sequence[FlusherStats]]"
    """Gives the counters of each flusher."""
    replicas: "ReplicaManager" = field(init=False)
    """Set before the first page can be asked for."""
    fetch_sessions: "FetchSessions" = field(init=False)
    handlers: "HandlerPool | None" = None
    authorizer: "StandardAuthorizer | None" = None
    """None where every client may do everything."""
    loading: "LogLoading | None" = None
    logs: "LogManager | None" = None
    metadata_log: "SingleVoterLog | None" = None
    controller: "LocalController | None" = None
    observers: "Observers | None" = None
    """The nodes that follow the metadata log of this node; None where none can."""
    membership: "ClusterMembership | None" = None
    """Set where the controllers are other nodes, once this broker follows their metadata log."""
    channels: "dict[str, PeerStats]" = field(default_factory=dict)
    """What the connections to other nodes count, by Kafka's name of their purpose; those of fetchers are not here."""
    group_coordinator: "GroupCoordinator | None" = None
    transaction_coordinator: "Callable[[], TransactionCoordinator] | None" = None
    """Makes it if no transaction has needed it yet."""
    share_coordinator: "Callable[[], ShareCoordinator] | None" = None
    """Makes it if no share group has needed it yet."""
    log_cleaner: "LogCleaner | None" = None
    replica_moves: "ReplicaMoves | None" = None
    retention_hold: "RetentionHold | None" = None
    certificate_expiry_s: "Callable[[], Mapping[str, float]] | None" = None
    """Gives when the certificate of each listener expires, as Unix time; None where no listener has TLS."""
    client_quotas: "QuotaUsage | None" = None
    """None while the cluster has no quota of clients."""
    share_fetch_purgatory: "Purgatory | None" = None
    share_partitions: "SharePartitions | None" = None
    """None while no share group has asked for records here."""
    share_sessions: "ShareSessions | None" = None
    replication_throttles: "ReplicationThrottles | None" = None
    """None where there are no other brokers."""
    on_period: list[Callable[[], None]] = field(default_factory=list)
    """Called whenever a period is over."""

    def period_is_over(self) -> None:
        """Called every `PERIOD_MS`."""
        for call in self.on_period:
            call()
