"""Checks across settings: values that contradict each other, or that Kafka's types alone do not rule out."""

import os
from typing import Final

from config.broker_settings import EVERY_LOG_DIR, LEADER_SELECTOR, RACK_AWARE_SELECTOR, BrokerSettings
from config.declared import field_name
from config.errors import InvalidConfig, SettingsError
from config.listen_address import METRICS_LISTENER
from config.log_config import validate_topic_overrides
from config.quorum import controller_addresses
from config.release_versions import KEY as RELEASE_VERSION
from config.topics_at_start import KEY as TOPICS_AT_START
from config.values import ConfigType, read_value

_AUTHENTICATION_DELAY: Final = "connection.failed.authentication.delay.ms"
_LEAST_SEGMENT_BYTES: Final = 1 << 20
_LAST_CODEC: Final = 4
"""The greatest codec id of a record batch: zstd's."""


def check_together(settings: BrokerSettings) -> None:
    """Refuse values that are right alone but not together, or that Kafka's types alone do not rule out.

    Raises:
        InvalidConfig: The first such value.
    """
    _check_log_directories(settings)
    _check_cordoned(settings)
    log = settings.log_defaults()
    if log.retention_ms == 0:
        key = next(
            key
            for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
            if getattr(settings, field_name(key)) is not None
        )
        answer = f"{key} must be unlimited (-1) or, greater than or equal to 1"
        raise InvalidConfig(key, "0", "a whole number of at least 1, or -1 for no limit", answer)
    if log.segment_ms < 1:
        key = "log.roll.ms"
        answer = f"{key} must be greater than or equal to 1"
        raise InvalidConfig(key, str(log.segment_ms), "a whole number of at least 1", answer)
    if log.segment_jitter_ms < 0:
        key = "log.roll.jitter.ms"
        answer = f"{key} must be greater than or equal to 0"
        raise InvalidConfig(key, str(log.segment_jitter_ms), "a whole number of at least 0", answer)
    if log.min_compaction_lag_ms > log.max_compaction_lag_ms:
        raise InvalidConfig(
            "log.cleaner.min.compaction.lag.ms",
            str(log.min_compaction_lag_ms),
            f"at most log.cleaner.max.compaction.lag.ms, which is {log.max_compaction_lag_ms}",
        )
    if 0 < settings.queued_max_request_bytes < settings.socket_request_max_bytes:
        raise InvalidConfig(
            "queued.max.request.bytes",
            str(settings.queued_max_request_bytes),
            f"at least socket.request.max.bytes, which is {settings.socket_request_max_bytes}, or -1 for no limit",
        )
    if settings.default_replication_factor < 1:
        raise InvalidConfig("default.replication.factor", str(settings.default_replication_factor), "1")
    for key in ("socket.send.buffer.bytes", "socket.receive.buffer.bytes"):
        size = getattr(settings, field_name(key))
        if size < 1 and size != -1:
            raise InvalidConfig(key, str(size), "a whole number of at least 1, or -1 for the system's own tuning")
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        raise InvalidConfig(
            "group.min.session.timeout.ms",
            str(settings.group_min_session_timeout_ms),
            f"at most group.max.session.timeout.ms, which is {settings.group_max_session_timeout_ms}",
        )
    for name in ("session.timeout", "heartbeat.interval", "assignment.interval"):
        _check_between(settings, f"group.consumer.{name}.ms")
        _check_between(settings, f"group.share.{name}.ms")
    for name in ("delivery.count.limit", "record.lock.duration.ms", "partition.max.record.locks"):
        _check_between(settings, f"group.share.{name}")
    for name in settings.group_consumer_assignors or ("",):
        if name not in ("uniform", "range"):
            raise InvalidConfig("group.consumer.assignors", name, "uniform, range, or both")
    for name in ("session.timeout", "heartbeat.interval", "assignment.interval"):
        _check_between(settings, f"group.streams.{name}.ms")
    if settings.group_streams_num_standby_replicas > settings.group_streams_max_standby_replicas:
        raise InvalidConfig(
            "group.streams.num.standby.replicas",
            str(settings.group_streams_num_standby_replicas),
            f"at most group.streams.max.standby.replicas, which is {settings.group_streams_max_standby_replicas}",
        )
    if settings.group_streams_assignors != ("sticky",):
        raise InvalidConfig("group.streams.assignors", ",".join(settings.group_streams_assignors), "sticky")
    if not 0 <= settings.offsets_topic_compression_codec <= _LAST_CODEC:
        raise InvalidConfig(
            "offsets.topic.compression.codec",
            str(settings.offsets_topic_compression_codec),
            "0 for none, 1 for gzip, 2 for snappy, 3 for lz4 or 4 for zstd",
        )
    if settings.is_member:
        controller_addresses(settings)  # which raises
        if settings.ottla_topics_at_start:
            text = ", ".join(topic.name for topic in settings.ottla_topics_at_start)
            raise InvalidConfig(
                TOPICS_AT_START, text, "nothing where process.roles is broker: the controllers create topics"
            )
        if settings.ottla_release_version is not None:
            raise InvalidConfig(
                RELEASE_VERSION,
                settings.ottla_release_version.name,
                "nothing where process.roles is broker: the controllers have the feature levels",
            )
    if settings.replica_selector_class not in (None, LEADER_SELECTOR, RACK_AWARE_SELECTOR):
        expected = f"{RACK_AWARE_SELECTOR} or {LEADER_SELECTOR}: this broker cannot load classes of Java"
        raise InvalidConfig("replica.selector.class", settings.replica_selector_class, expected)
    names = [listener.name for listener in settings.listeners]
    if settings.inter_broker_listener_name is not None and settings.inter_broker_listener not in names:
        raise InvalidConfig(
            "inter.broker.listener.name",
            settings.inter_broker_listener_name,
            f"one of the names that listeners has: {', '.join(names)}",
        )
    if settings.is_member or settings.opened_controller_listeners:
        for listener in settings.listeners:
            if listener.name == settings.inter_broker_listener and listener.security_protocol != "PLAINTEXT":
                raise InvalidConfig(
                    "inter.broker.listener.name",
                    settings.inter_broker_listener,
                    f"a listener that speaks PLAINTEXT, not {listener.security_protocol}: "
                    "brokers talk to each other without TLS and SASL here",
                )
    for key in ("offsets.topic.segment.bytes", "transaction.state.log.segment.bytes"):
        size = getattr(settings, field_name(key))
        if size < _LEAST_SEGMENT_BYTES:
            # Kafka starts, and can never create the topic.
            raise InvalidConfig(key, str(size), f"a whole number of at least {_LEAST_SEGMENT_BYTES}, as for any topic")
    _check_connection_limits(settings)
    _check_idle_time(settings)
    _check_metrics_port(settings)
    for topic in settings.ottla_topics_at_start:
        try:
            validate_topic_overrides(topic.configs, log)
        except InvalidConfig as error:
            raise SettingsError(f"{TOPICS_AT_START} has topic {topic.name}, whose {error}") from None


def _check_metrics_port(settings: BrokerSettings) -> None:
    """Both sockets would be bound, and the second one fail when it begins to listen."""
    metrics = settings.ottla_prometheus_listener
    if metrics is None or metrics.port == 0 or METRICS_LISTENER not in settings.given:
        return
    for listener in settings.listeners:
        if listener.port == metrics.port:
            raise InvalidConfig(METRICS_LISTENER, str(metrics), f"another port than that of {listener}")


def _check_log_directories(settings: BrokerSettings) -> None:
    directories = settings.log_dirs
    if not directories:
        raise InvalidConfig(
            "log.dirs", ",".join(directories), "a comma-separated list of directories without empty entries"
        )
    if len(set(map(os.path.normpath, directories))) < len(directories):
        raise InvalidConfig("log.dirs", ",".join(directories), "each directory once")
    for path in (*directories, settings.metadata_directory):
        for other in directories:
            inside = os.path.join(os.path.normpath(other), "")
            if os.path.normpath(path).startswith(inside):
                # What lies in a data directory is taken for a partition.
                key = "log.dirs" if path in directories else "metadata.log.dir"
                text = ",".join(directories) if path in directories else path
                raise InvalidConfig(key, text, f"no directory inside another: {path} is inside {other}")


def _check_cordoned(settings: BrokerSettings) -> None:
    key, cordoned = "cordoned.log.dirs", settings.cordoned_log_dirs
    text = ",".join(cordoned)
    if EVERY_LOG_DIR in cordoned and len(cordoned) > 1:
        answer = f"When {key} is set to {EVERY_LOG_DIR}, it must not contain other values"
        raise InvalidConfig(key, text, f"{EVERY_LOG_DIR} alone, or directories", answer)
    missing = [path for path in settings.cordoned_directories if path not in settings.log_dirs]
    if missing:
        raise InvalidConfig(
            key,
            text,
            f"entries of log.dirs, which has {', '.join(settings.log_dirs)}",
            f"All entries in {key} must be present in log.dirs or log.dir. Missing entries : {', '.join(missing)}",
        )


def _check_connection_limits(settings: BrokerSettings) -> None:
    key, text = "max.connections.per.ip.overrides", settings.max_connections_per_ip_overrides
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        host, _, limit = (part.strip() for part in entry.rpartition(":"))
        if not host or not isinstance(most := read_value(ConfigType.INT, limit), int) or most < 0:
            expected = "host:limit entries with whole numbers, such as 10.0.0.7:100,localhost:200"
            raise InvalidConfig(
                key, text, expected, f"Error parsing configuration property '{key}': '{text}', expected {expected}"
            )
    if settings.max_connections_per_ip == 0 and not settings.max_connections_by_ip:
        raise InvalidConfig(
            "max.connections.per.ip",
            "0",
            f"at least 1, unless {key} names who may connect",
            f"max.connections.per.ip can be set to zero only if {key} property is set.",
        )
    protected = settings.inter_broker_listener if len(settings.listeners) > 1 else None
    open_to_some = [one for one in settings.listeners if one.max_connections != 0]
    if not open_to_some:
        key = f"listener.name.{settings.listeners[0].name.lower()}.max.connections"
        raise InvalidConfig(key, "0", "at least 1: no client could connect to any listener")
    if settings.max_connections == 0 and protected not in [one.name for one in open_to_some]:
        raise InvalidConfig("max.connections", "0", "at least 1: no client could connect")


def _check_idle_time(settings: BrokerSettings) -> None:
    """Kafka's rule, which keeps a connection open long enough for its first request."""
    idle_ms = settings.connections_max_idle_ms
    delay_ms = settings.connection_failed_authentication_delay_ms
    if 0 <= idle_ms <= delay_ms:
        expected = f"more than {_AUTHENTICATION_DELAY}, which is {delay_ms}, or -1 for no limit"
        raise InvalidConfig("connections.max.idle.ms", str(idle_ms), expected)


def _check_between(settings: BrokerSettings, key: str) -> None:
    """Check that a setting of groups is between the settings that limit what a group's own config may say.

    Raises:
        InvalidConfig: It is not, or the limits are the wrong way round.
    """
    kind, _, name = key.removeprefix("group.").partition(".")
    least_key, most_key = f"group.{kind}.min.{name}", f"group.{kind}.max.{name}"
    value, least, most = (getattr(settings, field_name(one)) for one in (key, least_key, most_key))
    if least > most:
        raise InvalidConfig(most_key, str(most), f"at least {least_key}, which is {least}")
    if not least <= value <= most:
        raise InvalidConfig(key, str(value), f"between {least_key}, which is {least}, and {most_key}, which is {most}")
