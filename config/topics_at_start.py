"""`ottla.topics.at.start`: topics that the broker creates, if missing, before it accepts requests.

orders:6:retention.ms=3600000:cleanup.policy=[compact,delete],payments:3,audit
└name  └partitions   └configs            └ a value with a comma or a colon stands in brackets, as in kafka-configs

Topics are separated by commas; only the name is required, and the broker's defaults replace omitted parts.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from config.errors import InvalidConfig
from config.values import ConfigType, read_value

KEY: Final = "ottla.topics.at.start"

_FORM: Final = "name, name:partitions or name:partitions:config=value, such as orders:6:retention.ms=3600000"
_POLICIES: Final = ("compact", "delete")
_NOT_IN_BRACKETS: Final = r"(?![^\[]*\])"


class TopicAtStart(NamedTuple):
    """A topic that must exist before the first request is accepted."""

    name: str
    partitions: int | None = None
    """Number of partitions; None for the broker's default, ``num.partitions``."""
    configs: Mapping[str, str] = {}
    """The topic's configs, as texts under Kafka's names."""


def read_topics_at_start(text: str) -> tuple[TopicAtStart, ...]:
    """The topics of a list in the form above; the names and values of their configs are not checked.

    Raises:
        InvalidConfig: An entry has another form, or a topic appears twice.
    """
    if not text:
        return ()
    topics = tuple(_topic(entry.strip()) for entry in re.split(f",{_NOT_IN_BRACKETS}", text))
    names = [topic.name for topic in topics]
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfig(KEY, text, f"each topic once, but {name} stands there {names.count(name)} times")
    return topics


def _topic(entry: str) -> TopicAtStart:
    name, *rest = (part.strip() for part in re.split(f":{_NOT_IN_BRACKETS}", entry))
    if not name:
        raise InvalidConfig(KEY, entry, _FORM)
    if name in _POLICIES and not rest:
        raise InvalidConfig(KEY, entry, "brackets around a value with a comma: cleanup.policy=[compact,delete]")
    partitions = None
    if rest and "=" not in rest[0]:
        number = read_value(ConfigType.INT, rest.pop(0))
        if not isinstance(number, int) or number < 1:
            raise InvalidConfig(KEY, entry, f"a whole number of at least 1 behind the topic's name: {_FORM}")
        partitions = number
    configs: dict[str, str] = {}
    for part in rest:
        key, is_config, value = (word.strip() for word in part.partition("="))
        if not is_config:
            raise InvalidConfig(KEY, entry, _FORM)
        if key in configs:
            raise InvalidConfig(KEY, entry, f"each config once, but {key} stands there twice")
        configs[key] = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    return TopicAtStart(name=name, partitions=partitions, configs=configs)
