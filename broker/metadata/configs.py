"""ConfigView: effective settings, from topic configs, dynamic configs in the metadata log, the file, and defaults."""

import logging
import re
from collections.abc import Callable, Mapping

from broker.metadata.cache import ImageSource
from broker.request.faults import InvalidRequest
from config.broker_settings import BrokerSettings
from config.dynamic import DynamicSettings, with_dynamic
from config.errors import InvalidConfig
from config.log_config import LogConfig
from config.resources import BrokerTexts, ConfigResource

log = logging.getLogger(__name__)

EVERY_BROKER = ""
"""The name of the resource that holds the defaults of all brokers."""


class ConfigView:
    """The effective settings according to the current image."""

    __slots__ = ("_in_force", "_log_defaults", "_said", "_source", "check_files", "static_settings")

    def __init__(self, source: ImageSource, settings: BrokerSettings) -> None:
        self._source = source
        self.static_settings = settings
        """The settings that the process was started with."""
        self._said: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
        self._in_force = DynamicSettings(settings, {})
        self._log_defaults = settings.log_defaults()
        self.check_files: Callable[[Mapping[str, str]], None] | None = None
        """Tries the files that dynamic texts of this broker name; raises `SettingsError`. None: none name files."""

    def dynamic_settings(self) -> DynamicSettings:
        """The broker's settings with its dynamic configs, and the dynamic configs that are passed over."""
        texts = self.broker_texts()
        said = (texts.dynamic_default, texts.dynamic_broker)
        if said != self._said:
            self._said = (dict(texts.dynamic_default), dict(texts.dynamic_broker))
            self._in_force = with_dynamic(self.static_settings, *self._said)
            self._log_defaults = self._in_force.settings.log_defaults()
        return self._in_force

    def log_defaults(self) -> LogConfig:
        """The log config of a topic without configs of its own."""
        self.dynamic_settings()
        return self._log_defaults

    def topic_config(self, name: str) -> LogConfig:
        """The log config of topic ``name``.

        A value that is not valid here is passed over with a line in the log: the directory may come from another
        version of Kafka, for which the value was valid.
        """
        return _with_valid_overrides(self.log_defaults(), self._source.image.configs.of_topic(name), f"topic {name}")

    def archive_group(self, name: str) -> str | None:
        """The group that retention of topic ``name`` waits for; None if it waits for no group."""
        return self.topic_config(name).ottla_archive_group or None

    def broker_texts(self) -> BrokerTexts:
        """The texts of this broker's settings in each source."""
        node_id = str(self.static_settings.node_id)
        return BrokerTexts(
            self.static_settings.given,
            self.own(ConfigResource.BROKER, node_id),
            self.own(ConfigResource.BROKER, EVERY_BROKER),
        )

    def check_broker_id(self, name: str, kind: str, *, otherwise: str) -> None:
        """Refuse the name of a broker that is not this one. Kafka has other words for it in each API.

        Args:
            name: The name of the resource.
            kind: What the words for a name that is no number begin with: ``Broker`` or ``Node``.
            otherwise: The words for another broker's id, with ``{expected}`` and ``{name}`` in the places of both.

        Raises:
            InvalidRequest: The name is not this broker's id.
        """
        if not re.fullmatch(r"[+-]?[0-9]+", name):
            raise InvalidRequest(f"{kind} id must be an integer, but it is: {name}")
        expected = str(self.static_settings.node_id)
        if name != expected:
            raise InvalidRequest(otherwise.format(expected=expected, name=name))

    def own(self, resource: ConfigResource, name: str) -> Mapping[str, str]:
        """The configs that are set on a resource itself, whether the resource exists or not."""
        return self._source.image.configs.of(resource, name)


def _with_valid_overrides(config: LogConfig, overrides: Mapping[str, str], whose: str) -> LogConfig:
    try:
        return config.with_overrides(overrides)
    except InvalidConfig:
        pass
    for key, value in overrides.items():
        try:
            config = config.with_overrides({key: value})
        except InvalidConfig as error:
            log.warning("a config of %s is ignored: %s", whose, error)
    return config
