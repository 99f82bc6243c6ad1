"""Metrics of the connections that this node makes to other nodes, by their purpose."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from broker.metrics.series import Family, Samples, counter, gauge
from broker.metrics.sources import MetricSources
from broker.metrics.survey import fetcher_name
from broker.peers.stats import PeerStats

_TO_CONTROLLERS: Final = ("heartbeat", "forwarding", "alter-partition", "directory-assignments")
_OTHERS: Final = (
    "raft-channel",
    "txn-marker-channel",
    "AddPartitionsManager-channel",
    "Persister-channel",
    "ShareGroupDLQManager-channel",
    "NetworkPartitionMetadataClient-channel",
)
_FETCHER: Final = "replica-fetcher"

_LABELS: Final = {**dict.fromkeys(_TO_CONTROLLERS, ("BrokerId",)), **dict.fromkeys(_OTHERS, ())}
"""The labels that the connections of each purpose have in Kafka."""

_SAID: Final = {
    "heartbeat": "to the controllers for registration and heartbeats",
    "forwarding": "to the controllers for requests of clients",
    "alter-partition": "to the controllers for replicas in sync",
    "directory-assignments": "to the controllers for the directories of replicas and for producer ids",
    "raft-channel": "to the controllers for the metadata log",
    "txn-marker-channel": "to other brokers for the markers of transactions",
    "AddPartitionsManager-channel": "to the coordinators of transactions",
    "Persister-channel": "to the coordinators of share groups' states",
    "ShareGroupDLQManager-channel": "to the leaders of dead letter queues",
    "NetworkPartitionMetadataClient-channel": "to the leaders of partitions for their ends",
    _FETCHER: "to a leader that is followed",
}

_READ: Final = {
    "connection_count": (gauge, "Open connections {}", attrgetter("connections")),
    "connection_creation_total": (counter, "Connections made {}", attrgetter("connections_made")),
    "connection_close_total": (counter, "Connections closed {}", attrgetter("connections_closed")),
    "incoming_byte_total": (counter, "Bytes received on connections {}", attrgetter("bytes_in")),
    "outgoing_byte_total": (counter, "Bytes sent on connections {}", attrgetter("bytes_out")),
    "request_total": (counter, "Requests sent on connections {}", attrgetter("requests_sent")),
    "response_total": (counter, "Answers received on connections {}", attrgetter("requests_answered")),
}
"""What Kafka tells of each: how the family is made, what its values are, and where they are read."""


def _families(purpose: str, labels: tuple[str, ...], keys: str) -> dict[str, Family]:
    prefix = f"kafka_server_{purpose.lower().replace('-', '_')}_metrics"
    bean = f"kafka.server:type={purpose}-metrics{keys}"
    return {
        name: make(f"{prefix}_{name}", help.format(_SAID[purpose]), *labels, bean=bean)
        for name, (make, help, _) in _READ.items()
    }


_CHANNELS: Final = {
    purpose: _families(purpose, labels, ",BrokerId=*" if labels else "") for purpose, labels in _LABELS.items()
}
_FETCHERS: Final = _families(_FETCHER, ("broker_id", "fetcher_id"), ",broker-id=*,fetcher-id=*")

CONNECTIONS_FAILED: Final = counter(
    "ottla_peers_connections_failed_total", "Attempts to connect to another node that have failed", "channel"
)
TIMED_OUT: Final = counter(
    "ottla_peers_requests_timed_out_total", "Requests that another node has not answered in time", "channel"
)
IN_FLIGHT: Final = gauge("ottla_peers_requests_in_flight", "Requests that another node is to answer", "channel")
_OURS: Final = {
    CONNECTIONS_FAILED: attrgetter("connections_failed"),
    TIMED_OUT: attrgetter("requests_timed_out"),
    IN_FLIGHT: attrgetter("requests_in_flight"),
}


class Peers:
    """Reads the counters of all connections to other nodes. A purpose has series where the node has it."""

    families: tuple[Family, ...] = (
        *[family for families in _CHANNELS.values() for family in families.values()],
        *_FETCHERS.values(),
        *_OURS,
    )

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Samples]:
        channels = self._sources.channels
        node_id = str(self._sources.settings.node_id)
        for purpose, families in _CHANNELS.items():
            stats = channels.get(purpose)
            if stats is not None:
                for name, family in families.items():
                    yield Samples(family, [((node_id,) if family.labels else (), _READ[name][2](stats))])
        fetchers = self._fetchers()
        for name, family in _FETCHERS.items():
            yield Samples(
                family,
                [((str(leader), str(number)), _READ[name][2](stats)) for (leader, number), stats in fetchers.items()],
            )
        everything = {**channels, **{fetcher_name(*key): stats for key, stats in fetchers.items()}}
        for family, value in _OURS.items():
            yield Samples(family, [((channel,), value(stats)) for channel, stats in everything.items()])

    def _fetchers(self) -> dict[tuple[int, int], PeerStats]:
        replication = self._sources.replicas.replication
        if replication is None:
            return {}
        return {(one.leader, one.number): one.peer.stats for one in replication.fetchers.running}
