"""Broker settings that Kafka had once: which version removed them, and what to write instead.

The names are all those that Kafka 2.8 to 4.3 had and 4.4.0 has not. A start goes on without them, as Kafka's does, and
says so, but stops where the setting decided something that another setting has to decide now.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Removed(NamedTuple):
    """One setting, or all that begin alike."""

    since: str
    """The first version of Kafka without it."""
    instead: str = "leave it out"
    stops: bool = False
    """Whether another setting has to say what it said."""


_ADDRESS: Final = Removed("3.0", "use listeners=PLAINTEXT://host:port", stops=True)
_ADVERTISED: Final = Removed("3.0", "use advertised.listeners=PLAINTEXT://host:port", stops=True)
_QUOTA: Final = Removed("3.0", "set default quotas with kafka-configs", stops=True)

_REMOVED: Final[Mapping[str, Removed]] = {
    "advertised.host.name": _ADVERTISED,
    "advertised.port": _ADVERTISED,
    "auto.include.jmx.reporter": Removed("4.0", "leave it out, metrics are served without it"),
    "broker.id.generation.enable": Removed("4.0", "set node.id"),
    "control.plane.listener.name": Removed("4.0"),
    "controlled.shutdown.max.retries": Removed("4.0"),
    "controlled.shutdown.retry.backoff.ms": Removed("4.0"),
    "delegation.token.master.key": Removed("4.0", "use delegation.token.secret.key", stops=True),
    "eligible.leader.replicas.enable": Removed("4.0", "leave it out, the feature's level decides"),
    "group.coordinator.new.enable": Removed("4.1", "leave it out, there is one group coordinator"),
    "group.share.enable": Removed("4.3", "leave it out, the level of share.version decides"),
    "group.share.max.groups": Removed("4.1"),
    "host.name": _ADDRESS,
    "inter.broker.protocol.version": Removed("4.0", "leave it out, the data directory knows its own version"),
    "internal.metadata.max.fetch.size.in.bytes": Removed("4.3"),
    "leader.imbalance.per.broker.percentage": Removed(
        "4.0", "leave it out, and auto.leader.rebalance.enable=false where leaders are not to move", stops=True
    ),
    "log.message.downconversion.enable": Removed("4.0", "leave it out, records are never converted downwards"),
    "log.message.format.version": Removed("4.0", "leave it out, records are always in format 2"),
    "log.message.timestamp.difference.max.ms": Removed(
        "4.0", "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms", stops=True
    ),
    "metadata.log.segment.min.bytes": Removed("4.1"),
    "offsets.commit.required.acks": Removed("4.0", "leave it out, commits wait for all replicas"),
    "port": _ADDRESS,
    "quota.consumer.default": _QUOTA,
    "quota.producer.default": _QUOTA,
    "reserved.broker.max.id": Removed("4.0", "leave it out, any node.id may be used"),
    "share.fetch.max.fetch.records": Removed("4.1"),
    "unstable.metadata.versions.enable": Removed("3.8"),
    "zookeeper.connect": Removed("4.0", "leave it out, metadata lives in the data directory", stops=True),
    "zookeeper.sync.time.ms": Removed("3.2"),
}
STOPPING: Final = tuple(name for name, one in _REMOVED.items() if one.stops)
"""The names with which the broker does not start."""

_REMOVED_PREFIXES: Final[Mapping[str, Removed]] = {
    "password.encoder.": Removed("4.0"),
    "zookeeper.": Removed("4.0", "leave it out, metadata lives in the data directory"),
}


def removed(key: str) -> Removed | None:
    """What became of a name of older versions; None if it is no such name."""
    found = _REMOVED.get(key)
    return found or next((one for prefix, one in _REMOVED_PREFIXES.items() if key.startswith(prefix)), None)


def removed_sentence(key: str) -> str | None:
    """Since when a name of older versions is gone, and what to write instead; None if it is no such name."""
    found = removed(key)
    return found and f"{key} no longer exists: Kafka {found.since} removed it: {found.instead}"
