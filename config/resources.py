"""The resources that have configs, and the sources of the broker's configs."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from config.broker_settings import BROKER_SETTINGS
from config.definitions import broker_definition
from config.our_defaults import OUR_DEFAULTS

_OTHER_NAMES: Final = {"broker.id": "node.id", "log.dir": "log.dirs"}


class ConfigResource(IntEnum):
    """The types of resources with configs, by the codes of the protocol and of the metadata log."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class BrokerTexts(NamedTuple):
    """The broker's configs as text by name, for each source."""

    static: Mapping[str, str]
    """``BrokerSettings.given``."""
    dynamic_broker: Mapping[str, str] = {}
    dynamic_default: Mapping[str, str] = {}

    def text(self, key: str) -> str | None:
        """The text in effect for a broker setting: its strongest source's, else the default."""
        for texts in (self.dynamic_broker, self.dynamic_default, self.static):
            if key in texts:
                return texts[key]
        return default_text(key)


def default_text(key: str) -> str | None:
    """The default of a broker setting as text, ours where it differs from Kafka's; None if it is null."""
    key = _OTHER_NAMES.get(key, key)
    if key in OUR_DEFAULTS:
        return OUR_DEFAULTS[key].value
    definition = broker_definition(key)
    if definition is not None:
        return definition.default
    return BROKER_SETTINGS[key].default if key in BROKER_SETTINGS else None
