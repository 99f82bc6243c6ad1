"""ClusterView: which brokers may lead and follow, and by which settings, according to one metadata image."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from broker.metadata.configs import ConfigView
from broker.metadata.directories import LOST, MIGRATING, UNASSIGNED, is_online
from broker.metadata.image.cluster import is_active
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topics import PartitionImage, TopicImage
from config.log_config import LogConfig
from protocol.records.cluster_metadata import RegisterBrokerRecord

NO_BROKER = -1
"""Stands instead of the id of a broker that is being fenced or unfenced, where there is none."""


class ClusterView:
    """What a planner knows of the cluster. It belongs to one plan: settings of topics are read once."""

    def __init__(
        self,
        image: MetadataImage,
        configs: ConfigView,
        *,
        own: int = NO_BROKER,
        others: Collection[int] = (),
        arriving: int = NO_BROKER,
        leaving: int = NO_BROKER,
    ) -> None:
        """
        Args:
            image: all that has been appended to the metadata log.
            configs: the settings, according to the same image.
            own: the broker in the controller's own process.
            others: the registered brokers that can reach the controller, without ``own``.
            arriving: a broker that counts as active, since the same plan unfences it.
            leaving: a broker that does not count as active, since the same plan fences it or takes it out of service.
        """
        self.image = image
        self._configs = configs
        self.own = own
        self._others = others
        self._arriving = arriving
        self._leaving = leaving
        self._topic_configs: dict[str, LogConfig] = {}

    def with_arriving(self, broker_id: int) -> ClusterView:
        """The cluster in which ``broker_id`` is active."""
        return ClusterView(self.image, self._configs, own=self.own, others=self._others, arriving=broker_id)

    def with_leaving(self, broker_id: int) -> ClusterView:
        """The cluster in which ``broker_id`` is not active."""
        return ClusterView(self.image, self._configs, own=self.own, others=self._others, leaving=broker_id)

    @property
    def metadata_version(self) -> int:
        """The finalised level of metadata.version."""
        return self.image.features.metadata_version

    @property
    def has_elr(self) -> bool:
        """Whether the cluster keeps eligible leader replicas (KIP-966)."""
        return self.image.features.has_eligible_leader_replicas

    def broker(self, broker_id: int) -> RegisterBrokerRecord | None:
        """The registration of a broker, None if there is none."""
        return self.image.cluster.brokers.get(broker_id)

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker is registered and active: it may be in sync and lead."""
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None or broker_id == self._leaving:
            return False
        return broker_id == self._arriving or is_active(broker)

    def is_alone(self, partition: PartitionImage) -> bool:
        """Whether the controller's own broker has the only replica that counts: while it is away, nobody takes over.

        Brokers that an adopted directory names and that cannot reach the controller are gone for good.
        """
        return self.own in partition.replicas and not any(broker in self._others for broker in partition.replicas)

    def has_online_directory(self, broker_id: int, directory: bytes) -> bool:
        """Whether the broker has registered the log directory, or a replica in it will get a directory yet.

        Brokers older than 3.7 register no directories; all of theirs count.
        """
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None:
            return False
        return directory != LOST if not broker.log_dirs else is_online(directory, broker.log_dirs)

    def default_directory(self, broker_id: int) -> bytes:
        """The id that stands for the log directory of a new replica: that of the only directory, or UNASSIGNED."""
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None or not broker.log_dirs:
            return MIGRATING
        return bytes(broker.log_dirs[0]) if len(broker.log_dirs) == 1 else UNASSIGNED

    def min_isr(self, topic: TopicImage) -> int:
        """How many replicas must be in sync for a record to be committed: ``min.insync.replicas``, or all replicas."""
        replicas = len(topic.partitions[0].replicas) if topic.partitions else 1
        return self._config(topic.name).required_in_sync(replicas)

    def allows_unclean_leaders(self, topic: TopicImage) -> bool:
        """Whether a replica out of sync may lead where no other can (``unclean.leader.election.enable``)."""
        return self._config(topic.name).unclean_leader_election_enable

    def partitions(self) -> Iterator[tuple[TopicImage, PartitionImage]]:
        """All partitions with their topics."""
        for topic in self.image.topics.by_name.values():
            for partition in topic.partitions:
                yield topic, partition

    def leads_anything(self, broker_id: int) -> bool:
        """Whether the broker leads a partition."""
        return any(partition.leader == broker_id for _, partition in self.partitions())

    def _config(self, topic: str) -> LogConfig:
        config = self._topic_configs.get(topic)
        if config is None:
            config = self._topic_configs[topic] = self._configs.topic_config(topic)
        return config
