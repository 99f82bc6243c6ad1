"""Settings as DescribeConfigs answers them: each with its value, the value's source, and its synonyms.

The order of Kafka's sources, the strongest first: the topic's own, this broker's dynamic, the cluster's dynamic, the
file and command line (static), the default. A topic setting has the broker settings behind it as its synonyms.
"""

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import cache
from itertools import dropwhile
from typing import Final, NamedTuple

from config.authorizer import SETTINGS_OF_AUTHORIZER
from config.broker_settings import BROKER_SETTINGS
from config.client_metrics import CLIENT_METRICS_SETTINGS
from config.declared import Declaration
from config.definitions import Definition, broker_definition, definitions
from config.dynamic import is_dynamic, without_mechanism
from config.help import help_line
from config.log_config import INTERNAL_SEGMENT_BYTES, INTERNAL_TOPIC_SETTINGS, OUR_TOPIC_SETTINGS, TOPIC_SETTINGS
from config.resources import BrokerTexts, default_text
from config.values import ConfigType, normalised, trimmed

_OURS_PREFIX: Final = "ottla."
_LISTENER_SETTING: Final = r"listener\.name\.[^.]+\.(.+)"
_OTHER_NAMES: Final = {"broker.id": "node.id", "log.dir": "log.dirs"}
_MS_PER_UNIT: Final = {"hours": 60 * 60 * 1000, "minutes": 60 * 1000}


class ConfigSource(IntEnum):
    """Where a value comes from, by the codes of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """One setting in one source that gives a value, or would if the stronger ones were not there."""

    name: str
    value: str | None
    """The value; None if the setting is a secret."""
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting of a topic or a broker, as DescribeConfigs answers it."""

    name: str
    value: str | None
    """The value; None if it is not set or a secret."""
    source: ConfigSource
    type: ConfigType
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    """The synonyms, strongest first; the first one has the value's own source."""
    documentation: str | None
    """The help text of server.yaml, or that of a setting that has none there."""


NO_EFFECT: Final = "It is accepted, and has no effect here."
"""The help text of a setting that only Apache Kafka has a use for."""

_TOPIC_HELP: Final[Mapping[str, str]] = {
    **OUR_TOPIC_SETTINGS,
    "errors.deadletterqueue.group.enable": "Whether share groups may write their dead letters to the topic.",
    "follower.replication.throttled.replicas": "Replicas that fetch no faster than their broker's throttle, as "
    "PARTITION:BROKER,PARTITION:BROKER; * for all.",
    INTERNAL_SEGMENT_BYTES: "Bytes of a segment, instead of segment.bytes and without its least value: for tests.",
    "leader.replication.throttled.replicas": "Replicas whose leader sends no faster than its throttle, likewise.",
}
"""The help texts of topic settings that stand behind no broker setting."""


def describe_topic(overrides: Mapping[str, str], broker: BrokerTexts) -> list[ConfigEntry]:
    """All settings of a topic in alphabetical order; ``overrides`` are the topic's own, as stored.

    They are also what CreateTopics answers about a new topic, but for the topic's own: Kafka has these as they came.
    Internal ones are among them if the topic has a value of its own.
    """
    internal = INTERNAL_TOPIC_SETTINGS.keys() & overrides.keys()
    keys = sorted(TOPIC_SETTINGS.keys() | internal) if internal else TOPIC_SETTINGS
    return [_topic_entry(key, overrides.get(key), broker) for key in keys]


def describe_broker(broker: BrokerTexts) -> list[ConfigEntry]:
    """All settings of the broker in alphabetical order: Kafka's, ours, those given for single listeners, internal ones
    of Kafka's and those of the authorizer that were given, and dynamic values of unknown names."""
    known = {*definitions("broker"), *(key for key in BROKER_SETTINGS if key.startswith(_OURS_PREFIX))}
    for_listeners = {key for key in broker.static if re.fullmatch(_LISTENER_SETTING, key)}
    internal = (definitions("internal").keys() | {*SETTINGS_OF_AUTHORIZER}) & broker.static.keys()
    broker = broker._replace(static=_with_both_names(broker.static))
    keys = known | for_listeners | internal | broker.dynamic_broker.keys() | broker.dynamic_default.keys()
    return [_broker_entry(key, broker) for key in sorted(keys)]


def describe_cluster_default(broker: BrokerTexts) -> list[ConfigEntry]:
    """The cluster's dynamic defaults only, in alphabetical order; values as they came, as in Kafka."""
    only = BrokerTexts(static={}, dynamic_default=broker.dynamic_default)
    return [
        entry._replace(
            value=None if entry.is_sensitive else broker.dynamic_default[entry.name], synonyms=entry.synonyms[:1]
        )
        for entry in (_broker_entry(key, only) for key in sorted(broker.dynamic_default))
    ]


def describe_group(overrides: Mapping[str, str], broker: BrokerTexts) -> list[ConfigEntry]:
    """All settings of a group in alphabetical order; ``overrides`` are the group's own, as stored.

    Internal ones are among them if the group has a value of its own.
    """
    internal = {key: known for key, known in definitions("internal group").items() if key in overrides}
    return [
        _own_entry(
            key,
            known.type,
            overrides.get(key),
            known.default if not known.synonyms else broker.text(known.synonyms[0]),
            _synonyms(known.synonyms[0], broker)
            if known.synonyms
            else (ConfigSynonym(key, known.default, ConfigSource.DEFAULT),),
            ConfigSource.GROUP,
        )
        for key, known in sorted({**definitions("group"), **internal}.items())
    ]


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All settings of a subscription to clients' metrics (KIP-714); ``overrides`` are its own, as stored."""
    return [
        _own_entry(key, setting.type, overrides.get(key), setting.default, (), ConfigSource.CLIENT_METRICS)
        for key, setting in CLIENT_METRICS_SETTINGS.items()
    ]


def _own_entry(
    key: str,
    type_: ConfigType,
    override: str | None,
    otherwise: str | None,
    behind: tuple[ConfigSynonym, ...],
    own_source: ConfigSource,
) -> ConfigEntry:
    """A setting of a group or a subscription: its own value, or else the one behind it."""
    value = otherwise if override is None else normalised(type_, override)
    synonyms = behind if override is None else (ConfigSynonym(key, value, own_source), *behind)
    return ConfigEntry(
        name=key,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        type=type_,
        is_read_only=False,
        is_sensitive=False,
        synonyms=synonyms,
        documentation=None,
    )


def _topic_entry(key: str, override: str | None, broker: BrokerTexts) -> ConfigEntry:
    declaration = TOPIC_SETTINGS.get(key) or INTERNAL_TOPIC_SETTINGS[key]
    behind = _behind_topic_setting(key)
    synonyms = _synonyms(behind[0], broker) if behind else ()
    value = declaration.default if not behind else _inherited(behind, broker)
    if override is not None:
        value = normalised(declaration.type, override, declaration.allowed)
        synonyms = (ConfigSynonym(key, value, ConfigSource.DYNAMIC_TOPIC), *synonyms)
    return ConfigEntry(
        name=key,
        value=None if value is None else normalised(declaration.type, value, declaration.allowed),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        type=declaration.type,
        is_read_only=False,
        is_sensitive=False,
        synonyms=synonyms,
        documentation=_TOPIC_HELP.get(key) or (help_line(behind[0]) if behind else None) or NO_EFFECT,
    )


def _behind_topic_setting(key: str) -> tuple[str, ...]:
    """The broker settings that give a topic setting its value, the strongest first; those of ours have its name."""
    if key in OUR_TOPIC_SETTINGS:
        return (key,) if key in BROKER_SETTINGS else ()
    if key in INTERNAL_TOPIC_SETTINGS:
        return ()
    return definitions("topic")[key].synonyms


def _inherited(behind: Iterable[str], broker: BrokerTexts) -> str | None:
    """The value that a topic setting takes from the broker settings behind it, in the topic setting's unit."""
    for key in behind:
        text = broker.text(key)
        if text is None:
            continue
        unit = key.rpartition(".")[2]
        if unit in _MS_PER_UNIT:
            text = str(int(text) * _MS_PER_UNIT[unit])
        # Whatever is negative there means for ever.
        return "-1" if key.startswith("log.retention.") and int(text) < 0 else text
    return None


def _broker_entry(key: str, broker: BrokerTexts) -> ConfigEntry:
    base = _base_name(key)
    known = _known(base)
    is_sensitive = known is None or known.is_sensitive
    synonyms = _synonyms(key, broker, is_sensitive=is_sensitive)
    text = broker.text(key)
    type_ = known.type if known else ConfigType.UNKNOWN
    return ConfigEntry(
        name=key,
        value=None if is_sensitive or text is None else normalised(type_, text),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        type=type_,
        # Kafka calls a listener's own setting read-only even where it can be changed.
        is_read_only=not (known and known.is_dynamic and key == base),
        is_sensitive=is_sensitive,
        synonyms=synonyms,
        documentation=help_line(base) or NO_EFFECT,
    )


def _synonyms(key: str, broker: BrokerTexts, *, is_sensitive: bool = False) -> tuple[ConfigSynonym, ...]:
    """The sources that give a broker setting or its synonyms a value, beginning with the setting itself.

    What stands before it is left out, as Kafka does: ``log.roll.hours`` does not name ``log.roll.ms``.
    """
    base = _base_name(key)
    definition = broker_definition(base)
    names = (definition.synonyms if definition else ()) or (base,)
    if key != base:
        names = (key, base)
    sources: tuple[tuple[ConfigSource, Mapping[str, str]], ...] = (
        (ConfigSource.DYNAMIC_BROKER, broker.dynamic_broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, broker.dynamic_default),
        (ConfigSource.STATIC_BROKER, {name: trimmed(broker.static[name]) for name in names if name in broker.static}),
        (ConfigSource.DEFAULT, {name: text for name in names if (text := default_text(name)) is not None}),
    )
    found = (
        ConfigSynonym(name, None if is_sensitive else texts[name], source)
        for source, texts in sources
        for name in names
        if name in texts
    )
    return tuple(dropwhile(lambda synonym: synonym.name != key, found))


class _Known(NamedTuple):
    """The definition of a broker setting, whether it is Kafka's or ours."""

    type: ConfigType
    is_dynamic: bool
    is_sensitive: bool


@cache
def _known(key: str) -> _Known | None:
    definition: Definition | None = broker_definition(key)
    if definition is not None:
        return _Known(definition.type, is_dynamic(key), definition.is_sensitive)
    declaration: Declaration | None = BROKER_SETTINGS.get(key)
    return _Known(declaration.type, is_dynamic=False, is_sensitive=False) if declaration else None


def _base_name(key: str) -> str:
    """A setting's name without the prefix of a listener, and without that of a SASL mechanism."""
    prefixed = re.fullmatch(_LISTENER_SETTING, key)
    if prefixed is None:
        return key
    return without_mechanism(prefixed[1])


def _with_both_names(static: Mapping[str, str]) -> Mapping[str, str]:
    """Add the node's id under its old name too, as Kafka answers it wherever it was given."""
    return {"broker.id": static["node.id"], **static} if "node.id" in static else static
