"""Checks of changes to a running broker's settings: Kafka's rules, and the changes that we refuse."""

from collections.abc import Mapping
from typing import Final

from config.broker_settings import BROKER_SETTINGS, BrokerSettings
from config.definitions import broker_definition
from config.dynamic import is_dynamic, split_listener_key, with_dynamic
from config.errors import InvalidConfig, SettingsError
from config.group_settings import check_group_limits
from config.refusals import is_security_key, refused_sentence, security_sentence
from config.resources import BrokerTexts
from config.values import ConfigType, list_entries, parse_value, read_value, trimmed

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
_JAVA_CLASSES: Final = ("metric.reporters", "principal.builder.class")
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
        _check_value(key, text, after)
    _check_not_only_for_one_broker(for_all)
    _check_threads(before, after)
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
    for key, text in texts.items():
        setting = split_listener_key(key)[1]
        definition = broker_definition(setting)
        default = definition.default if definition else None
        if is_security_key(setting) and trimmed(text) not in ("", default):
            raise SettingsError(security_sentence(key))
        if setting in _JAVA_CLASSES and trimmed(text) != default:
            raise InvalidConfig(key, text, f"{default}, since there are no Java classes here")
        if refused := refused_sentence(key, trimmed(text)):
            raise SettingsError(refused)


def _check_value(key: str, text: str, broker: BrokerTexts) -> None:
    setting = split_listener_key(key)[1]
    definition = broker_definition(setting)
    if definition is None:
        return  # Kafka takes unknown names, which may be a plugin's.
    value = parse_value(key, definition.type, definition.allowed, text)
    if definition.type == ConfigType.LIST and len(list_entries(text)) > len(value):
        # What a file says twice counts once, in Kafka as here.
        raise SettingsError(f"Configuration '{key}' values must not be duplicated.")
    if key == "max.connections" and value == 0:
        raise InvalidConfig(key, text, "at least 1: nobody could connect to change it again")
    if setting.startswith("group."):
        check_group_limits(key, value, setting, broker)


def _check_not_only_for_one_broker(texts: Mapping[str, str]) -> None:
    for key in texts:
        listener, setting = split_listener_key(key)
        if is_security_key(setting) or (listener is not None and setting not in _OF_EVERY_LISTENER):
            raise SettingsError(f"{key} can be changed for one broker only, expected its id instead of no name")


def _check_threads(before: BrokerTexts, after: BrokerTexts) -> None:
    """Refuse to more than double or halve the number of threads in one change, as Kafka does."""
    for key in _THREADS:
        now, then = (_count(broker.text(key)) for broker in (before, after))
        if not now // 2 <= then <= now * 2 or then < 1 <= now:
            raise InvalidConfig(
                key, str(then), f"at least half and at most twice the number of now, {now}: change it in steps"
            )


def _count(text: str | None) -> int:
    value = None if text is None else read_value(ConfigType.INT, text)
    return value if isinstance(value, int) else 0
