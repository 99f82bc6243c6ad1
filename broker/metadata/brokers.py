"""The brokers of the cluster as the image has them, each with its address on one listener.

A client that came in on a listener is told the addresses of the listener of the same name, on every broker. A broker
without such a listener is not there for that client (KIP-103).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from broker.metadata.cache import ImageSource
from broker.metadata.image.cluster import ClusterImage
from broker.metadata.image.metadata_image import MetadataImage
from broker.request.node import NO_NODE, Endpoint
from protocol.records.cluster_metadata import RegisterBrokerRecord


class ListedBroker(NamedTuple):
    """A registered broker that has the listener asked for."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    """A fenced broker leads nothing, and ordinary clients are not told of it (KIP-631)."""


def endpoint_of(image: MetadataImage, broker_id: int, listener: str) -> Endpoint | None:
    """The address of a broker on a listener, whether the broker is fenced or not; None if it is not registered, or has
    no such listener."""
    broker = image.cluster.brokers.get(broker_id)
    return None if broker is None else _endpoint(broker, listener)


Placement = tuple[tuple[int, ...], tuple[bytes, ...]]
"""The brokers with a partition's replicas, and the log directory of each replica."""


class BrokersOnListener:
    """The brokers that have one listener, as one image has them."""

    __slots__ = ("alive", "by_id", "directories", "offline", "registered_ids")

    def __init__(self, cluster: ClusterImage, listener: str) -> None:
        listed = _listed(cluster, listener)
        self.registered_ids = cluster.brokers.keys()
        """The ids of all registered brokers, with or without the listener."""
        self.by_id: Mapping[int, ListedBroker] = {broker.broker_id: broker for broker in listed}
        """All brokers with the listener, fenced ones too."""
        self.alive: Sequence[ListedBroker] = [broker for broker in listed if not broker.is_fenced]
        """The brokers that are not fenced, by ascending id."""
        self.directories: Mapping[int, frozenset[bytes]] = {
            broker.broker_id: frozenset(bytes(directory) for directory in cluster.brokers[broker.broker_id].log_dirs)
            for broker in self.alive
        }
        """The online log directories of each broker in `alive`; no directory for brokers older than 3.7, which do not
        say them."""
        self.offline: dict[Placement, list[int]] = {}
        """The offline replicas of partitions placed so, as far as `broker.handlers.replica_views` has been asked."""

    @property
    def listed(self) -> Sequence[ListedBroker]:
        """All brokers with the listener, fenced ones too, by ascending id."""
        return list(self.by_id.values())

    def find(self, broker_id: int) -> ListedBroker | None:
        """The broker; None if it is not registered, or has no such listener."""
        return self.by_id.get(broker_id)

    def find_alive(self, broker_id: int) -> ListedBroker | None:
        """The broker; None also if it is fenced."""
        broker = self.by_id.get(broker_id)
        return None if broker is None or broker.is_fenced else broker


class Brokers:
    """The brokers of the current image, for many requests: they are looked up anew only when a registration changes."""

    __slots__ = ("_alive_ids", "_choose", "_cluster", "_metadata", "_on_listener")

    def __init__(self, metadata: ImageSource, choose: Callable[[Sequence[int]], int]) -> None:
        """``choose`` picks one of several broker ids by chance."""
        self._metadata = metadata
        self._choose = choose
        self._cluster: ClusterImage | None = None
        self._alive_ids: Sequence[int] = ()
        self._on_listener: dict[str, BrokersOnListener] = {}

    def on(self, listener: str) -> BrokersOnListener:
        """The brokers that have this listener."""
        self._look()
        found = self._on_listener.get(listener)
        if found is None:
            assert self._cluster is not None
            found = self._on_listener[listener] = BrokersOnListener(self._cluster, listener)
        return found

    def any_alive(self) -> int:
        """The id of a broker that is not fenced, whatever listeners it has; `NO_NODE` if all are fenced.

        Clients are told of it as the controller: they send to it what the controller decides, and it forwards this
        (KIP-590).
        """
        self._look()
        ids = self._alive_ids
        return (ids[0] if len(ids) == 1 else self._choose(ids)) if ids else NO_NODE

    def _look(self) -> None:
        """Forget what was found in another image's registrations."""
        cluster = self._metadata.image.cluster
        if cluster is not self._cluster:
            self._cluster = cluster
            self._on_listener.clear()
            self._alive_ids = sorted(broker_id for broker_id, broker in cluster.brokers.items() if not broker.fenced)


def _listed(cluster: ClusterImage, listener: str) -> list[ListedBroker]:
    return [
        ListedBroker(broker.broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
        for _, broker in sorted(cluster.brokers.items())
        if (endpoint := _endpoint(broker, listener)) is not None
    ]


def _endpoint(broker: RegisterBrokerRecord, listener: str) -> Endpoint | None:
    for endpoint in broker.end_points:
        if endpoint.name == listener:
            return Endpoint(endpoint.host, endpoint.port)
    return None
