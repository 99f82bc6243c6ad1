"""A broker's settings with dynamic values over the static ones (KIP-226).

The strongest first: this broker's dynamic value, the dynamic default of all brokers, the file and the command line,
the default. A change makes new settings out of those that the process was started with.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from config.broker_settings import BROKER_SETTINGS, BrokerSettings
from config.consistency import check_together
from config.declared import field_name
from config.definitions import broker_definition
from config.errors import InvalidConfig, SettingsError
from config.listeners import Listener

LISTENER_PREFIX: Final = "listener.name."
_OF_A_MECHANISM: Final = (
    *("connections.max.reauth.ms", "sasl.jaas.config", "sasl.login.callback.handler.class", "sasl.login.class"),
    "sasl.server.callback.handler.class",
)
LISTENER_LIMITS: Final = ("max.connections", "max.connection.creation.rate")
"""The settings of a single listener that have an effect here."""

_FIXED_HERE: Final = ("listeners", "listener.security.protocol.map")
"""Kafka opens such a listener while it runs, but Metadata there names no broker: brokers register at start."""


class DynamicSettings(NamedTuple):
    """The settings in effect, and the dynamic values that are passed over."""

    settings: BrokerSettings
    passed_over: Mapping[str, SettingsError]
    """The invalid dynamic values by name; the value of the next weaker source counts instead."""


@cache
def is_dynamic(key: str) -> bool:
    """Whether a broker setting, named without a listener's prefix, can be changed while the broker runs."""
    definition = broker_definition(key)
    return definition is not None and definition.is_dynamic and key not in _FIXED_HERE


def split_listener_key(key: str) -> tuple[str | None, str]:
    """The listener and the setting in ``listener.name.<name>.<setting>``; None and the name itself for any other."""
    name, separator, setting = key.removeprefix(LISTENER_PREFIX).partition(".")
    return (name, setting) if key.startswith(LISTENER_PREFIX) and separator else (None, key)


def without_mechanism(setting: str) -> str:
    """The setting in ``<mechanism>.<setting>``, a setting of a listener for one of its SASL mechanisms; any other name
    itself."""
    return next((name for name in _OF_A_MECHANISM if setting.endswith(name)), setting)


def with_dynamic(static: BrokerSettings, default: Mapping[str, str], this_broker: Mapping[str, str]) -> DynamicSettings:
    """Compute the settings in effect.

    A data directory may come from another version of Kafka, so what is invalid here is passed over, a class that
    decides who somebody is among it. Names without an effect here are passed over silently.

    Args:
        static: The settings that the process was started with.
        default: The dynamic defaults of all brokers, as texts under Kafka's names.
        this_broker: The dynamic values of this broker.
    """
    try:
        return DynamicSettings(_with_texts(static, {**default, **this_broker}), {})
    except SettingsError:
        pass
    accepted: dict[str, str] = {}
    passed_over: dict[str, SettingsError] = {}
    settings = static
    for texts in (default, this_broker):
        for key, text in texts.items():
            try:
                settings = _with_texts(static, {**accepted, key: text})
            except SettingsError as error:
                passed_over[key] = error
            else:
                accepted[key] = text
    return DynamicSettings(settings, passed_over)


def _with_texts(static: BrokerSettings, texts: Mapping[str, str]) -> BrokerSettings:
    """New settings with ``texts`` over the static ones. Raises `SettingsError`."""
    values: dict[str, Any] = {}
    limits: dict[str, dict[str, Any]] = {}
    for key, text in texts.items():
        listener, setting = split_listener_key(key)
        if setting not in BROKER_SETTINGS:
            _check_class(setting, key, text, static.listeners)
            continue
        if listener is None:
            if not is_dynamic(key):
                raise InvalidConfig(key, text, "a setting that can be changed while the broker runs")
            values[field_name(key)] = BROKER_SETTINGS[key].parse(key, text)
        elif setting in LISTENER_LIMITS:
            limits.setdefault(listener.upper(), {})[field_name(setting)] = BROKER_SETTINGS[setting].parse(key, text)
    if limits:
        values["listeners"] = tuple(_limited(listener, limits) for listener in static.listeners)
    if not values:
        return static
    settings = static.replace(**values)
    check_together(settings)
    return settings


def _check_class(setting: str, key: str, text: str, listeners: Iterable[Listener]) -> None:
    """Refuse a class that decides something on one of the listeners. Raises `SettingsError`."""
    from config.class_settings import Where, check_class  # few directories have such a setting

    places = {Where.EVERY_START}
    places |= {Where.SASL for listener in listeners if listener.has_sasl}
    places |= {Where.TLS for listener in listeners if listener.has_tls}
    check_class(without_mechanism(setting), key, text, *places)


def _limited(listener: Listener, limits: Mapping[str, Mapping[str, Any]]) -> Listener:
    return listener._replace(**limits[listener.name]) if listener.name in limits else listener
