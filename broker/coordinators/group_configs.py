"""GroupConfigValues: configs of groups, with the broker's settings behind them and the broker's limits around them."""

from __future__ import annotations

from typing import Any

from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from config.group_settings import group_value
from config.resources import ConfigResource


class GroupConfigValues:
    """The values in force of configs of groups, each read once as long as no config changes. Implements
    `broker.coordinators.group.modern.kinds.GroupConfigs`."""

    def __init__(self, metadata: MetadataCache, configs: ConfigView) -> None:
        self._metadata = metadata
        self._configs = configs
        self._read_from: object = None
        self._values: dict[tuple[str, str], Any] = {}

    def __call__(self, group_id: str, key: str) -> Any:
        """The value of config ``key`` of the group."""
        image = self._metadata.image.configs
        if image is not self._read_from:
            self._read_from, self._values = image, {}
        # Most groups have no configs of their own.
        named = group_id if self._configs.own(ConfigResource.GROUP, group_id) else ""
        value = self._values.get((named, key))
        if value is None:
            own = self._configs.own(ConfigResource.GROUP, named) if named else {}
            value = self._values[named, key] = group_value(key, own, self._configs.broker_texts())
        return value
