"""ReplicationQuotas: a metadata subscriber that reads the throttles of replication from the configs (KIP-73)."""

from collections.abc import Set
from typing import Final

from broker.metadata.image.configs import ConfigsImage
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.replication.throttles import ReplicationThrottles
from config.replication_quotas import FOLLOWER, LEADER, replicated_bytes_per_second, throttled_partitions
from config.resources import BrokerTexts, ConfigResource

_EVERY_BROKER: Final = ""


class ReplicationQuotas:
    """Keeps the throttles of one broker as the image of the configs has them."""

    def __init__(self, throttles: ReplicationThrottles, node_id: int) -> None:
        self._throttles = throttles
        self._node_id = node_id

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over changed configs of this broker, of all brokers, and of topics."""
        if any(kind in (ConfigResource.TOPIC, ConfigResource.BROKER) for kind, _ in delta.configs.changed):
            self.read(image.configs)

    def read(self, configs: ConfigsImage) -> None:
        """Take over configs."""
        texts = BrokerTexts(
            {},
            configs.of(ConfigResource.BROKER, str(self._node_id)),
            configs.of(ConfigResource.BROKER, _EVERY_BROKER),
        )
        for direction, throttle in ((LEADER, self._throttles.leader), (FOLLOWER, self._throttles.follower)):
            throttle.update(replicated_bytes_per_second(texts, direction), self._partitions(configs, direction))

    def _partitions(self, configs: ConfigsImage, direction: str) -> dict[str, Set[int] | None]:
        key = f"{direction}.replicas"
        return {
            topic: throttled_partitions(of_topic[key], self._node_id)
            for (kind, topic), of_topic in configs.by_resource.items()
            if kind == ConfigResource.TOPIC and of_topic.get(key)
        }
