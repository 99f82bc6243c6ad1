"""KnownBrokers: what replication has to know of the other brokers, read off the current metadata image."""

from broker.metadata.brokers import endpoint_of
from broker.metadata.cache import MetadataCache
from broker.metadata.image.cluster import is_active
from broker.peers.endpoint import PeerEndpoint


class KnownBrokers:
    """The `broker.replication.other_brokers.OtherBrokers` of one broker."""

    def __init__(self, metadata: MetadataCache, *, node_id: int, inter_broker_listener: str) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._listener = inter_broker_listener

    @property
    def broker_epoch(self) -> int:
        """Part of `OtherBrokers`; -1 before the registration is replayed."""
        own = self._metadata.image.cluster.brokers.get(self._node_id)
        return -1 if own is None else own.broker_epoch

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Part of `OtherBrokers`."""
        broker = self._metadata.image.cluster.brokers.get(broker_id)
        return broker is not None and is_active(broker) and broker_epoch in (-1, broker.broker_epoch)

    def is_outdated(self, broker_id: int, broker_epoch: int) -> bool:
        """Part of `OtherBrokers`."""
        broker = self._metadata.image.cluster.brokers.get(broker_id)
        return broker is not None and -1 < broker_epoch < broker.broker_epoch

    def is_alive(self, broker_id: int) -> bool:
        """Part of `OtherBrokers`."""
        broker = self._metadata.image.cluster.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def address_of(self, broker_id: int) -> PeerEndpoint | None:
        """Part of `OtherBrokers`."""
        endpoint = endpoint_of(self._metadata.image, broker_id, self._listener)
        return None if endpoint is None else PeerEndpoint(broker_id, endpoint.host, endpoint.port)
