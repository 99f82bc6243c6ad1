"""Checks of changes to a running broker's settings: Kafka's rules, and the changes that we refuse."""

from collections.abc import Collection, Mapping
from typing import Final

from config.broker_settings import BROKER_SETTINGS, BrokerSettings
from config.definitions import Definition, broker_definition
from config.dynamic import LISTENER_LIMITS, is_dynamic, split_listener_key, with_dynamic, without_mechanism
from config.errors import InvalidConfig, SettingsError
from config.group_settings import check_group_limits
from config.resources import BrokerTexts
from config.values import ConfigType, list_entries, parse_value, read_value

_THREADS: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
_CLEANER_THREADS: Final = "log.cleaner.threads"
_CLEANER_BUFFER: Final = "log.cleaner.dedupe.buffer.size"
OF_A_LISTENER_ONLY: Final = frozenset(
    f"ssl.{name}"
    for name in (
        *("key.password", "keystore.certificate.chain", "keystore.key", "keystore.location", "keystore.password"),
        *("keystore.type", "truststore.certificates", "truststore.location", "truststore.password", "truststore.type"),
    )
)
"""What Kafka reads anew for a listener, and not for the broker as a whole."""
_OF_EVERY_LISTENER: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
"""The settings of a listener that may be set for all brokers at once."""


def check_broker_alteration(settings: BrokerSettings, before: BrokerTexts, after: BrokerTexts) -> None:
    """Check the changes from ``before`` to ``after``. Unchanged and removed settings are not checked.

    Args:
        settings: The settings that the process was started with.
        before: The dynamic texts until now.
        after: The same with one dynamic source, this broker's or the default of all, changed.

    Raises:
        SettingsError: A name can't be changed while the broker runs, or not for all brokers at once; a value is of the
            wrong type, not allowed, contradicts another one, or would change the number of threads too much.
    """
    for_broker = _news(before.dynamic_broker, after.dynamic_broker)
    for_all = _news(before.dynamic_default, after.dynamic_default)
    _check_names({**for_all, **for_broker})
    for key, text in (*for_all.items(), *for_broker.items()):
        _check_value(key, text, settings, after)
    _check_names_for_all_brokers(for_all)
    _check_values_of_mechanisms(for_broker)
    _check_threads(before, after)
    _check_against_others(settings, {**for_all, **for_broker}.keys(), after)
    known_faults = with_dynamic(settings, before.dynamic_default, before.dynamic_broker).passed_over
    faults = with_dynamic(settings, after.dynamic_default, after.dynamic_broker).passed_over
    for key, fault in faults.items():
        if str(fault) != str(known_faults.get(key)):
            raise fault


def _news(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in after.items() if before.get(key) != text}


def _check_names(texts: Mapping[str, str]) -> None:
    fixed = [key for key in texts if (key in BROKER_SETTINGS or broker_definition(key)) and not is_dynamic(key)]
    if fixed:
        raise SettingsError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    of_a_listener = [key for key in texts if key in OF_A_LISTENER_ONLY]
    if of_a_listener:
        raise SettingsError(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(of_a_listener)}]"
        )


def _check_value(key: str, text: str, settings: BrokerSettings, broker: BrokerTexts) -> None:
    listener, setting = split_listener_key(key)
    definition = broker_definition(setting)
    if definition is None:
        return  # Kafka takes unknown names, which may be a plugin's.
    if definition.type == ConfigType.LIST and len(entries := list_entries(text)) > len(set(entries)):
        # What a file says twice counts once, in Kafka as here.
        raise SettingsError(f"Configuration '{key}' values must not be duplicated.")
    value = parse_value(key, definition.type, definition.allowed, text)
    _check_class(setting, definition, value)
    if setting == "metric.reporters" and value not in ((), (definition.default,)):
        raise InvalidConfig(key, text, f"nothing or {definition.default}, since there are no Java classes here")
    if setting in LISTENER_LIMITS and value == 0 and _is_open(listener, settings):
        raise SettingsError(f"Invalid {setting} 0: no client could connect to change it again")
    if setting.startswith("group."):
        check_group_limits(key, value, setting, broker)


def _check_values_of_mechanisms(texts: Mapping[str, str]) -> None:
    for key, text in texts.items():
        listener, setting = split_listener_key(key)
        name = without_mechanism(setting)
        definition = broker_definition(name)
        if listener is not None and name != setting and definition is not None:
            _check_class(name, definition, parse_value(name, definition.type, definition.allowed, text))


def _check_class(setting: str, definition: Definition, value: object) -> None:
    if definition.type != ConfigType.CLASS or value == definition.default:
        return
    from config.class_settings import CLASS_SETTINGS  # nobody changes such a setting in most brokers

    if value not in CLASS_SETTINGS[setting].kafkas:
        raise SettingsError(f"Invalid value {value} for configuration {setting}: Class {value} could not be found.")


def _is_open(listener: str | None, settings: BrokerSettings) -> bool:
    return listener is None or listener.upper() in [one.name for one in settings.listeners]


def _check_names_for_all_brokers(texts: Mapping[str, str]) -> None:
    per_broker = [key for key in texts if _is_per_broker(*split_listener_key(key))]
    if per_broker:
        raise SettingsError(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(per_broker)}]"
        )


def _is_per_broker(listener: str | None, setting: str) -> bool:
    if listener is not None:
        return setting not in _OF_EVERY_LISTENER
    definition = broker_definition(setting)
    return definition is not None and definition.is_per_broker


def _check_against_others(settings: BrokerSettings, news: Collection[str], broker: BrokerTexts) -> None:
    """Settings that have no effect here, with what Kafka demands of them and others together."""
    buffer_bytes, threads = (_number(broker.text(key)) for key in (_CLEANER_BUFFER, _CLEANER_THREADS))
    if {_CLEANER_BUFFER, _CLEANER_THREADS} & set(news) and buffer_bytes <= threads << 20:
        raise SettingsError(f"{_CLEANER_BUFFER} must be at least 1MB per cleaner thread.")
    log = with_dynamic(settings, broker.dynamic_default, broker.dynamic_broker).settings.log_defaults()
    for unit, most in (("ms", log.retention_ms), ("bytes", log.retention_bytes)):
        key = f"log.local.retention.{unit}"
        local = _number(broker.text(key))
        if not {key, f"log.retention.{unit}"} & set(news) or most == -1:
            continue
        if local == -1:
            raise SettingsError(
                f"Invalid value {local} for configuration {key}: Value must not be -1 as log.retention.{unit} value "
                f"is set as {most}."
            )
        if local > most:
            raise SettingsError(
                f"Invalid value {local} for configuration {key}: Value must not be more than log.retention.{unit} "
                f"property value: {most}"
            )


def _check_threads(before: BrokerTexts, after: BrokerTexts) -> None:
    """Refuse to more than double or halve the number of threads in one change, as Kafka does."""
    for key in _THREADS:
        now, then = (_number(broker.text(key)) for broker in (before, after))
        if not now // 2 <= then <= now * 2 or then < 1 <= now:
            expected = f"at least half and at most twice the number of now, {now}: change it in steps"
            raise InvalidConfig(key, str(then), expected, _refused_threads(key, now, then))


def _refused_threads(key: str, now: int, then: int) -> str:
    """Kafka's sentence for a number of threads that is too far from that of now."""
    if key == _CLEANER_THREADS:
        limit = "increased to more than double" if then > now else "reduced to less than half"
        return f"Log cleaner threads cannot be {limit} the current value {now}"
    if then < 1:
        limit = "be at least 1"
    else:
        limit = f"{'not be greater than double' if then > now else 'be at least half'} the current value {now}"
    return f"Dynamic thread count update validation failed for {key}={then}, value should {limit}"


def _number(text: str | None) -> int:
    value = None if text is None else read_value(ConfigType.LONG, text)
    return value if isinstance(value, int) else 0
