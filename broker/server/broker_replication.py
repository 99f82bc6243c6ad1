"""BrokerReplication: puts together what this broker replicates with other brokers, and tells it of new metadata."""

from broker.coordinators.remote_end_offsets import RemoteEndOffsets
from broker.coordinators.remote_markers import RemoteMarkers
from broker.coordinators.remote_share_states import RemoteShareStates
from broker.coordinators.remote_verification import RemoteVerification
from broker.logs.cleaner import LogCleaner
from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.peers.connector import Connector
from broker.peers.endpoint import PeerEndpoint
from broker.peers.nodes import Nodes
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.replication.follower_log import FollowerLogs
from broker.replication.isr_alteration import IsrAlterer
from broker.replication.log_start_checkpoints import LogStartCheckpoints
from broker.replication.replica_fetcher import FetcherSettings
from broker.replication.replica_fetchers import ReplicaFetchers
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication import Replication
from broker.replication.throttles import ReplicationThrottles
from broker.runtime.backoff import Backoff
from broker.runtime.services import Services
from broker.runtime.shutdown import Shutdown
from broker.server.known_brokers import KnownBrokers
from broker.server.log_dirs import LogDirs
from broker.server.replication_quotas import ReplicationQuotas
from broker.share.remote_letters import RemoteLetters
from config.broker_settings import BrokerSettings
from storage.log_manager import LogManager


class BrokerReplication:
    """Replication of one broker, as a metadata subscriber."""

    def __init__(
        self,
        settings: BrokerSettings,
        services: Services,
        *,
        connector: Connector,
        metadata: MetadataCache,
        logs: LogManager,
        log_dirs: LogDirs,
        replicas: ReplicaManager,
        log_cleaner: LogCleaner,
        alterer: IsrAlterer,
        shutdown: Shutdown,
    ) -> None:
        self._settings = settings
        self._services = services
        self._connector = connector
        self.channels: dict[str, PeerStats] = {}
        """What the connections to other brokers count, by their purpose. Those of fetchers count by themselves."""
        self.view = KnownBrokers(
            metadata, node_id=settings.node_id, inter_broker_listener=settings.inter_broker_listener
        )
        clock = services.clock
        self.throttles = ReplicationThrottles(
            clock,
            windows=settings.replication_quota_window_num,
            window_ms=settings.replication_quota_window_size_seconds * 1_000,
        )
        """How fast replicas that lag may catch up."""
        self._quotas = ReplicationQuotas(self.throttles, settings.node_id)
        self._quotas.read(metadata.image.configs)
        self.fetchers = ReplicaFetchers(
            node_id=settings.node_id,
            make_peer=self._fetchers_peer,
            performer=FollowerLogs(
                clock=clock,
                logs=logs,
                housekeeper=services.housekeeper,
                log_starts=LogStartCheckpoints(logs, services.housekeeper),
                find=replicas.find,
                appended=replicas.followed,
                failed=replicas.follower_failed,
                flush=replicas.flush,
                stop_cleaning=log_cleaner.abort,
                stats=replicas.stats,
            ),
            broker_epoch=lambda: self.view.broker_epoch,
            directory_id=lambda partition: log_dirs.id_of(partition.log_dir),
            clock=clock,
            settings=FetcherSettings(
                max_wait_ms=settings.replica_fetch_wait_max_ms,
                min_bytes=settings.replica_fetch_min_bytes,
                response_max_bytes=settings.replica_fetch_response_max_bytes,
                partition_max_bytes=settings.replica_fetch_max_bytes,
                backoff_ms=settings.replica_fetch_backoff_ms,
                timeout_ms=settings.replica_socket_timeout_ms,
            ),
            count=settings.num_replica_fetchers,
            on_failure=shutdown.fail,
            throttle=self.throttles.follower,
        )
        self._replicas = replicas
        self._replication = replication = Replication(
            clock=clock,
            view=self.view,
            alterer=alterer,
            fetchers=self.fetchers,
            stats=replicas.stats,
            watermark_moved=replicas.watermark_moved,
            throttles=self.throttles,
        )
        replicas.replicate_with(replication)
        self.markers = RemoteMarkers(self._nodes("txn-marker-sender", "txn-marker-channel"), on_failure=shutdown.fail)
        """Sends the markers of transactions to the leaders of their partitions."""
        self.verification = RemoteVerification(
            self._nodes("add-partitions", "AddPartitionsManager-channel"), on_failure=shutdown.fail
        )
        """Asks the coordinators of transactions that write to partitions of this broker."""
        self.share_states = RemoteShareStates(
            self._nodes("share-persister", "Persister-channel"), on_failure=shutdown.fail
        )
        """Asks the share coordinators on other brokers."""
        self.dead_letters = RemoteLetters(
            self._nodes("dead-letters", "ShareGroupDLQManager-channel"), on_failure=shutdown.fail
        )
        """Sends dead letters of share groups to the leaders of their queues."""
        self.end_offsets = RemoteEndOffsets(
            self._nodes("end-offsets", "NetworkPartitionMetadataClient-channel"),
            later=services.scheduler.once,
            on_failure=shutdown.fail,
        )
        """Asks leaders on other brokers for the ends of their partitions."""
        services.scheduler.every(
            max(settings.replica_lag_time_max_ms // 2, 1), lambda: replication.maintain_isrs(replicas.partitions())
        )

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Part of `MetadataSubscriber`: brokers may have other addresses, and replication another rate."""
        self._quotas.apply(delta, image)
        if not delta.cluster.is_empty:
            self.fetchers.addresses_changed(self.view.address_of)
            self._replication.brokers_changed(self._replicas.partitions())

    async def close(self) -> None:
        """Replicate nothing any more, ask no other broker, and return when no log is being changed."""
        await self.fetchers.close()
        await self.markers.close()
        await self.verification.close()
        await self.share_states.close()
        await self.dead_letters.close()
        await self.end_offsets.close()

    def _nodes(self, purpose: str, channel: str) -> Nodes:
        """The other brokers, to be asked for one purpose; ``channel`` is Kafka's name of these connections."""
        client_id = f"broker-{self._settings.node_id}-{purpose}"
        stats = self.channels[channel] = PeerStats()
        return Nodes(self.view.address_of, lambda address: self._peer(address, client_id, stats))

    def _fetchers_peer(self, broker_id: int, client_id: str) -> Peer | None:
        address = self.view.address_of(broker_id)
        return None if address is None else self._peer(address, client_id, PeerStats())

    def _peer(self, address: PeerEndpoint, client_id: str, stats: PeerStats) -> Peer:
        ids = self._services.ids
        return Peer(
            address,
            client_id=client_id,
            connector=self._connector,
            clock=self._services.clock,
            backoff=Backoff(lambda: ids.uuid()[0] / 0xFF),
            request_timeout_ms=self._settings.replica_socket_timeout_ms,
            stats=stats,
        )
