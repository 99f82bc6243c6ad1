"""What settings come to: a topic's own, the broker's dynamic ones out of the metadata log, the file's, the defaults."""

import logging
from collections.abc import Mapping

from broker.metadata.image import RESOURCE_BROKER, MetadataImage
from config.broker_settings import BrokerSettings
from config.described import BrokerTexts, ConfigEntry, describe_broker, describe_cluster_default, describe_topic
from config.errors import InvalidConfig
from config.log_config import LogConfig

log = logging.getLogger(__name__)

_EVERY_BROKER = ""
"""The name of the resource that holds the defaults of all brokers."""


class ConfigView:
    """The settings in force according to one image."""

    __slots__ = ("_image", "_settings")

    def __init__(self, image: MetadataImage, settings: BrokerSettings) -> None:
        self._image = image
        self._settings = settings

    def log_defaults(self) -> LogConfig:
        """How a topic's log behaves that says nothing itself."""
        texts = self._broker_texts()
        defaults = self._settings.log_defaults()
        if not texts.dynamic_broker and not texts.dynamic_default:
            return defaults
        # A dynamic value of the broker becomes one of the topic by the same table of synonyms that describes it.
        static = {entry.name: entry.value for entry in describe_topic({}, BrokerTexts(self._settings.given))}
        dynamic = {
            entry.name: entry.value
            for entry in describe_topic({}, texts)
            if entry.value is not None and entry.value != static[entry.name]
        }
        return _with_valid_overrides(defaults, dynamic, "this broker")

    def topic_config(self, name: str) -> LogConfig:
        """How the log of topic ``name`` behaves.

        A value that was valid to whoever wrote it and is not to us is passed over with a line in the log: a directory
        may come from another version of Kafka.
        """
        return _with_valid_overrides(self.log_defaults(), self._image.topic_configs(name), f"topic {name}")

    def describe_topic(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """The 33 entries that DescribeConfigs and CreateTopics give of a topic with these configs of its own."""
        return describe_topic(overrides, self._broker_texts())

    def describe_broker(self) -> list[ConfigEntry]:
        """The entries of this broker."""
        return describe_broker(self._broker_texts())

    def describe_cluster_default(self) -> list[ConfigEntry]:
        """The entries of the broker "": dynamic defaults of all brokers."""
        return describe_cluster_default(self._broker_texts())

    def _broker_texts(self) -> BrokerTexts:
        configs = self._image.configs
        return BrokerTexts(
            self._settings.given,
            configs.get((RESOURCE_BROKER, str(self._settings.node_id)), {}),
            configs.get((RESOURCE_BROKER, _EVERY_BROKER), {}),
        )


def _with_valid_overrides(config: LogConfig, overrides: Mapping[str, str], whose: str) -> LogConfig:
    try:
        return config.with_overrides(overrides)
    except InvalidConfig:
        pass
    for key, value in overrides.items():
        try:
            config = config.with_overrides({key: value})
        except InvalidConfig as error:
            log.warning("a setting of %s is passed over: %s", whose, error)
    return config
