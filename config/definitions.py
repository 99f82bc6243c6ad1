"""Kafka's definitions of all its settings, read from kafka_settings.tsv at the first use.

The table is printed by Kafka's own classes (KafkaSettings.java beside it says how): one line a setting, columns
separated by tabs, lines that start with # are comments. A start reads it only for settings without an effect here.
"""

import os
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from config.similar import most_similar
from config.values import ConfigType

_TABLE: Final = os.path.join(os.path.dirname(__file__), "kafka_settings.tsv")


class Definition(NamedTuple):
    """One setting of Kafka 4.4.0."""

    scope: str
    """``broker``, ``topic``, ``group``; ``internal`` and ``internal group``: those that Kafka does not document;
    ``quota``: those of a broker that are no settings of its file."""
    name: str
    type: ConfigType
    default: str | None
    """The default as DescribeConfigs shows it; None if it is null or the setting must be given."""
    allowed: str
    is_dynamic: bool
    """Whether the setting can be changed while a broker runs."""
    is_per_broker: bool
    """Whether it is changed for one broker only, not for all brokers at once."""
    is_sensitive: bool
    synonyms: tuple[str, ...]
    """Broker settings that give this one its value, the strongest first; the setting itself may be among them."""


@cache
def definitions(scope: str) -> Mapping[str, Definition]:
    """Every setting of a scope by name, in alphabetical order."""
    with open(_TABLE, encoding="utf-8") as table:
        rows = [line.rstrip("\n").split("\t") for line in table if line.startswith(scope + "\t")]
    return {row[1]: _definition(*row) for row in rows}


def broker_definition(name: str) -> Definition | None:
    """The broker setting of this name, documented or not; None if Kafka has none."""
    return definitions("broker").get(name) or definitions("internal").get(name) or definitions("quota").get(name)


def group_definition(name: str) -> Definition | None:
    """The group setting of this name, documented or not; None if Kafka has none."""
    return definitions("group").get(name) or definitions("internal group").get(name)


def nearest_name(name: str, ours: Mapping[str, object]) -> str | None:
    """The name that was probably meant: the most similar one of ``ours`` and Kafka's broker settings."""
    names = [*ours, *definitions("broker"), *definitions("internal")]
    return most_similar(name, names, least=0.75)


def _definition(
    scope: str, name: str, type_: str, default: str, allowed: str, changeable: str, sensitive: str, synonyms: str
) -> Definition:
    return Definition(
        scope=scope,
        name=name,
        type=ConfigType[type_],
        default=_default_text(ConfigType[type_], default),
        allowed=allowed,
        is_dynamic=changeable != "read-only",
        is_per_broker=changeable == "per-broker",
        is_sensitive=sensitive == "sensitive",
        synonyms=tuple(synonyms.split(", ")) if synonyms else (),
    )


def _default_text(type_: ConfigType, printed: str) -> str | None:
    """Java's print of a default as the text that a file would have: ``[a, b]`` is ``a,b``."""
    if printed in ("null", "(required)"):
        return None
    if type_ == ConfigType.LIST:
        return printed.removeprefix("[").removesuffix("]").replace(", ", ",")
    if type_ == ConfigType.CLASS:
        return printed.removeprefix("class ")
    return printed
