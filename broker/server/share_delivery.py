"""ShareDelivery: what delivers records to share groups, put together at the first request of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from broker.controller.client import AutoCreation
from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from broker.metrics.sources import MetricSources
from broker.replication.replica_manager import ReplicaManager
from broker.runtime.purgatory import Purgatory
from broker.runtime.services import Services
from broker.runtime.timing_wheel import TimingWheel
from config.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from broker.coordinators.share.persister import SharePersister
    from broker.share.group_configs import ShareGroupConfigs
    from broker.share.remote_letters import RemoteLetters
    from broker.share.sessions import ShareSessions
    from broker.share.share_partitions import SharePartitions
    from broker.share.stats import ShareGroupStats


class ShareDelivery:
    """The share groups of one broker, as the leader of partitions sees them."""

    def __init__(
        self,
        settings: BrokerSettings,
        services: Services,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        config_view: ConfigView,
        persister: Callable[[], SharePersister],
        auto_creation: AutoCreation,
        sources: MetricSources,
        *,
        remote_letters: RemoteLetters | None,
    ) -> None:
        """
        Args:
            settings, services, replicas, metadata, config_view, auto_creation, sources: the broker's.
            persister: gives what keeps the state of share partitions.
            remote_letters: writes dead letters to partitions of other nodes; None where there are no other nodes.
        """
        self._settings = settings
        self._services = services
        self._replicas = replicas
        self._metadata = metadata
        self._config_view = config_view
        self._auto_creation = auto_creation
        self._remote_letters = remote_letters
        self._get_persister = persister
        self.wheel: TimingWheel = services.wheel
        self.purgatory = Purgatory(
            services.fetch_wheel, purge_interval=settings.share_fetch_purgatory_purge_interval_requests
        )
        """Where share fetches wait."""
        self._sources = sources
        sources.share_fetch_purgatory = self.purgatory

    @cached_property
    def persister(self) -> SharePersister:
        """Keeps the state of share partitions."""
        return self._get_persister()

    @cached_property
    def configs(self) -> ShareGroupConfigs:
        """The settings of groups."""
        from broker.share.group_configs import ShareGroupConfigs

        return ShareGroupConfigs(self._config_view, self._metadata)

    @cached_property
    def stats(self) -> ShareGroupStats:
        """What is counted of all groups."""
        from broker.share.stats import ShareGroupStats

        return ShareGroupStats()

    @cached_property
    def partitions(self) -> SharePartitions:
        """The share partitions."""
        from broker.handlers.partition_lookup import find_partition
        from broker.share.dead_letters import DeadLetters
        from broker.share.share_partitions import SharePartitions

        services = self._services
        made = self._sources.share_partitions = SharePartitions(
            partial(find_partition, self._replicas, self._metadata),
            self.persister,
            self.configs,
            clock=services.clock,
            wheel=services.wheel,
            purgatory=self.purgatory,
            read_ahead=services.read_ahead,
            dead_letters=DeadLetters(
                self._replicas,
                self._metadata,
                self.configs,
                node_id=self._settings.node_id,
                remote=self._remote_letters,
                topic_config=self._config_view.topic_config,
                create_topic=self._auto_creation.create_topic,
                clock=services.clock,
                wheel=services.wheel,
                stats=self.stats,
            ),
            stats=self.stats,
        )
        self._sources.on_period.append(made.period_is_over)
        return made

    @cached_property
    def sessions(self) -> ShareSessions:
        """The share sessions. Records of a session that ends with its connection are released."""
        from broker.share.sessions import ShareSessions

        made = self._sources.share_sessions = ShareSessions(
            self._settings.group_share_max_share_sessions,
            on_ended=self.partitions.release,
            on_left=self.partitions.remove_group,
        )
        return made
