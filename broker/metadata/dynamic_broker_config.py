"""Who hears of settings that change while the broker runs: a subscriber of the published image, with its own."""

import logging
from collections.abc import Callable, Iterator, Mapping

from broker.metadata.configs import ConfigView
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from config.broker_settings import BrokerSettings
from config.errors import SettingsError
from config.resources import ConfigResource

log = logging.getLogger(__name__)

Reconfigure = Callable[[BrokerSettings], None]
"""Told the settings from now on. It acts on its own state and never calls back."""


class DynamicBrokerConfig:
    """The settings of this broker as they are now; each change makes new ones, which are pushed.

    What topics make of the broker's settings is not its matter: `ReplicaAssignment` sees to that.
    """

    def __init__(self, configs: ConfigView) -> None:
        self._configs = configs
        self._subscribers: list[Reconfigure] = []
        self._passed_over: Mapping[str, SettingsError] = {}
        self.settings = configs.static_settings
        self._take()

    def subscribe(self, reconfigure: Reconfigure) -> None:
        """Tell ``reconfigure`` the settings now, and whenever they change."""
        self._subscribers.append(reconfigure)
        reconfigure(self.settings)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over what has changed."""
        if any(resource_type == ConfigResource.BROKER for resource_type, _ in delta.configs.changed) and self._take():
            for reconfigure in self._subscribers:
                reconfigure(self.settings)

    def _take(self) -> bool:
        """Whether the settings are others than before."""
        settings, passed_over = self._configs.dynamic_settings()
        for key, error in passed_over.items():
            if str(error) != str(self._passed_over.get(key)):
                log.warning("a dynamic setting of this broker is passed over: %s", error)
        self._passed_over = passed_over
        changes = list(_changes(self.settings, settings))
        if changes:
            log.info("settings have changed: %s", ", ".join(changes))
        self.settings = settings
        return bool(changes)


def _changes(before: BrokerSettings, after: BrokerSettings) -> Iterator[str]:
    for name, then in before:
        now = getattr(after, name)
        if name == "listeners":
            yield from _listener_changes(before, after)
        elif then != now:
            yield f"{name.replace('_', '.')} from {then} to {now}"


def _listener_changes(before: BrokerSettings, after: BrokerSettings) -> Iterator[str]:
    for then, now in zip(before.listeners, after.listeners, strict=True):
        for name in ("max_connections", "max_connection_creation_rate"):
            if getattr(then, name) != getattr(now, name):
                key = f"listener.name.{now.name.lower()}.{name.replace('_', '.')}"
                yield f"{key} from {getattr(then, name)} to {getattr(now, name)}"
