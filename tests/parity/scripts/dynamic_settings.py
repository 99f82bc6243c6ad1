"""Every broker setting that can be changed while the broker runs, whether it has an effect here or not."""

from config.definitions import Definition, definitions
from config.values import ConfigType
from protocol.messages.configs import DescribeConfigsRequest
from tests.parity.exchange import Exchange
from tests.parity.scripts.alter_configs import BROKER, DELETE, SET, change

FIXED_HERE = ("listeners", "listener.security.protocol.map")
CLOSES_CONNECTIONS = ("num.network.threads",)
OF_A_METADATA_VERSION = ("min.insync.replicas",)
"""Kafka keeps it for all brokers where it has eligible leader replicas, as in the newest metadata version."""
OF_A_LISTENER = (
    ("listener.name.plaintext.max.connections", "0"),
    ("listener.name.plaintext.max.connection.creation.rate", "0"),
    ("listener.name.nope.max.connections", "0"),
    ("listener.name.plaintext.max.connections", "5"),
    ("listener.name.plaintext.ssl.keystore.location", "/x"),
    ("listener.name.plaintext.ssl.keystore.password", "secret"),
    ("listener.name.plaintext.ssl.client.auth", "required"),
    ("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
    ("listener.name.plaintext.plain.sasl.jaas.config", "secret"),
    ("listener.name.nope.ssl.keystore.location", "/x"),
    ("listener.name.plaintext.principal.builder.class", "x"),
    ("listener.name.plaintext.log.retention.ms", "2"),
)
OF_REPLICATION = (
    ("leader.replication.throttled.rate", "1000"),
    ("follower.replication.throttled.rate", "1000"),
    ("replica.alter.log.dirs.io.max.bytes.per.second", "1000"),
    ("leader.replication.throttled.rate", "x"),
    ("leader.replication.throttled.rate", "-1"),
)
"""Settings that Kafka's own list of settings does not have."""
OTHER_VALUES = (
    ("log.cleaner.dedupe.buffer.size", "1048576"),
    ("log.local.retention.ms", "-1"),
    ("log.local.retention.ms", "604800001"),
    ("max.connection.creation.rate", "0"),
    ("max.connections", "0"),
    ("metric.reporters", ""),
    ("sasl.kerberos.min.time.before.relogin", "x"),
    ("ssl.client.auth", "nope"),
    ("compression.type", "nope"),
    ("log.cleaner.backoff.ms", "-1"),
    ("log.cleaner.io.buffer.load.factor", "x"),
    ("log.cleaner.min.cleanable.ratio", "1.5"),
    ("log.cleaner.min.cleanable.ratio", "x"),
    ("log.cleaner.threads", "-1"),
    ("log.cleaner.threads", "100"),
    ("log.cleanup.policy", "nope"),
    ("log.message.timestamp.type", "nope"),
    ("log.preallocate", "yes"),
    ("log.retention.ms", "0"),
    ("log.retention.ms", "x"),
    ("log.roll.jitter.ms", "-1"),
    ("log.roll.ms", "0"),
    ("log.segment.bytes", "1"),
    ("log.segment.bytes", "2147483648"),
    ("max.connections.per.ip", "0"),
    ("message.max.bytes", "-1"),
    ("num.io.threads", "0"),
    ("num.io.threads", "1"),
    ("num.io.threads", "100"),
    ("num.replica.fetchers", "x"),
    ("unclean.leader.election.enable", "maybe"),
    ("group.consumer.assignment.interval.ms", "15001"),
    ("group.consumer.session.timeout.ms", "1"),
    ("group.share.max.size", "0"),
)


def run(exchange: Exchange) -> None:
    changeable = {name: known for name, known in definitions("broker").items() if known.is_dynamic}
    for name, known in changeable.items():
        if name not in (*FIXED_HERE, *CLOSES_CONNECTIONS, *OF_A_METADATA_VERSION):
            changed(exchange, name, other_value(known))
    for name, value in (*OF_A_LISTENER, *OF_REPLICATION, *OTHER_VALUES):
        changed(exchange, name, value)


def other_value(known: Definition) -> str:
    """A value that the setting may have; the default where others might not be allowed."""
    if known.type == ConfigType.BOOLEAN:
        return "false" if known.default == "true" else "true"
    if known.type == ConfigType.DOUBLE:
        return "0.7"
    if known.type in (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT):
        return known.default or "5"
    return known.default if known.default and known.allowed else "x"


def changed(exchange: Exchange, name: str, value: str) -> None:
    exchange.ask(f"{name}={value!r} of all brokers", change((BROKER, "", [(name, SET, value)]), validate_only=True), 1)
    answer = exchange.ask(f"{name}={value!r} of a broker", change((BROKER, "1", [(name, SET, value)])), 1)
    if answer.responses[0].error_code:
        return
    asked = DescribeConfigsRequest.Resource(resource_type=BROKER, resource_name="1", configuration_keys=[name])
    exchange.ask_until(
        f"{name}={value!r} of a broker is told",
        DescribeConfigsRequest(resources=[asked], include_synonyms=True),
        4,
        lambda answer: any(config.config_source == 2 for config in answer.results[0].configs),
    )
    exchange.ask(None, change((BROKER, "1", [(name, DELETE, None)])), 1)
