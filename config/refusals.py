"""Settings that the broker refuses at its start, because it cannot keep their promise, and the sentence for each."""

from collections.abc import Mapping
from typing import Final

from config.definitions import Definition
from config.values import parse_value

_MAX_REAUTH: Final = ".connections.max.reauth.ms"
"""Ends the name of a setting that is one of SASL, though its name does not say so."""

_REMOVED: Final[Mapping[str, str]] = {
    "advertised.host.name": "Kafka 3.0 removed it: use advertised.listeners=PLAINTEXT://host:port",
    "advertised.port": "Kafka 3.0 removed it: use advertised.listeners=PLAINTEXT://host:port",
    "auto.include.jmx.reporter": "Kafka 4.0 removed it: leave it out, metrics are served without it",
    "broker.id.generation.enable": "Kafka 4.0 removed it together with ZooKeeper: set node.id",
    "control.plane.listener.name": "Kafka 4.0 removed it together with ZooKeeper: leave it out",
    "delegation.token.master.key": "Kafka 4.0 removed it: use delegation.token.secret.key",
    "host.name": "Kafka 3.0 removed it: use listeners=PLAINTEXT://host:port",
    "inter.broker.protocol.version": "Kafka 4.0 removed it: leave it out, the data directory knows its own version",
    "leader.imbalance.per.broker.percentage": "Kafka 4.0 removed it: leave it out",
    "log.message.downconversion.enable": "Kafka 4.0 removed it: leave it out, records are never converted downwards",
    "log.message.format.version": "Kafka 4.0 removed it: leave it out, records are always in format 2",
    "log.message.timestamp.difference.max.ms": "Kafka 4.0 removed it: use log.message.timestamp.before.max.ms and "
    "log.message.timestamp.after.max.ms",
    "offsets.commit.required.acks": "Kafka 4.0 removed it: leave it out, commits wait for all replicas",
    "port": "Kafka 3.0 removed it: use listeners=PLAINTEXT://host:port",
    "quota.consumer.default": "Kafka 3.0 removed it: leave it out, default quotas are set by clients",
    "quota.producer.default": "Kafka 3.0 removed it: leave it out, default quotas are set by clients",
    "reserved.broker.max.id": "Kafka 4.0 removed it together with ZooKeeper: leave it out, any node.id may be used",
}
_REMOVED_PREFIXES: Final[Mapping[str, str]] = {
    "password.encoder.": "Kafka 4.0 removed it together with ZooKeeper: leave it out",
    "zookeeper.": "Kafka 4.0 removed ZooKeeper: leave it out, metadata lives in the data directory",
}

_REFUSED_UNLESS_EMPTY: Final[Mapping[str, str]] = {
    "config.providers": "values are not looked up elsewhere: write them into the file or give them with -o",
}


def removed_sentence(key: str) -> str | None:
    """Why a name of older versions is refused and what to write instead; None if it is no such name."""
    if key in _REMOVED:
        return f"{key} no longer exists: {_REMOVED[key]}"
    for prefix, reason in _REMOVED_PREFIXES.items():
        if key.startswith(prefix):
            return f"{key} no longer exists: {reason}"
    return None


def is_security_key(key: str) -> bool:
    """Whether a setting, without a listener's prefix, belongs to TLS or SASL."""
    return key.startswith(("ssl.", "sasl.")) or ".sasl." in key or ".ssl." in key


def is_sasl_key(key: str) -> bool:
    """Whether a setting, without a listener's prefix, says how clients authenticate."""
    return key.startswith("sasl.") or ".sasl." in key or key.endswith(_MAX_REAUTH)


def check_security_value(key: str, definition: Definition, text: str) -> None:
    """Check the value of a setting of TLS or SASL; a secret is not looked at, since the sentence would repeat it.

    Raises:
        InvalidConfig: The text is not of the setting's type, or the value is not allowed.
    """
    if not definition.is_sensitive:
        parse_value(key, definition.type, definition.allowed, text)


def refused_sentence(key: str, text: str) -> str | None:
    """Why a value of a setting that exists is refused; None if it is accepted."""
    if text and key in _REFUSED_UNLESS_EMPTY:
        return f"{key} is '{text}', but {_REFUSED_UNLESS_EMPTY[key]}"
    if key == "security.inter.broker.protocol" and text != "PLAINTEXT":
        return f"{key} is '{text}', but brokers talk to each other without TLS and SASL here: leave it out"
    if key == "remote.log.storage.system.enable" and text.lower() == "true":
        return f"{key} is 'true', but there is no tiered storage here, and what lies in it could not be read"
    return None
