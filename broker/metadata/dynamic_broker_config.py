"""DynamicBrokerConfig: a metadata subscriber that passes changed broker settings on to its own subscribers."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from broker.metadata.configs import ConfigView
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from config.broker_settings import BrokerSettings
from config.errors import SettingsError
from config.resources import ConfigResource

log = logging.getLogger(__name__)

_MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"

Reconfigure = Callable[[BrokerSettings], None]
"""Takes the new settings. It changes its own state only and never calls back."""


class DynamicBrokerConfig:
    """The current settings of this broker. Each change makes a new settings object, which every subscriber gets.

    Log configs, which inherit from the broker's settings, are not its task: `ReplicaAssignment` updates them.
    """

    def __init__(self, configs: ConfigView) -> None:
        self._configs = configs
        self._subscribers: list[Reconfigure] = []
        self._passed_over: Mapping[str, SettingsError] = {}
        self.settings = configs.static_settings
        self.read_files: Callable[[Mapping[str, str]], None] | None = None
        """Called with this broker's dynamic texts whenever they were set, though it be to what they were before: the
        files that they name may have changed."""
        self._take()

    def subscribe(self, reconfigure: Reconfigure) -> None:
        """Call ``reconfigure`` with the settings now, and at each change."""
        self._subscribers.append(reconfigure)
        reconfigure(self.settings)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a metadata change: if broker settings have changed, call the subscribers."""
        if not any(resource_type == ConfigResource.BROKER for resource_type, _ in delta.configs.changed):
            return
        if self.read_files is not None:
            self.read_files(self._configs.broker_texts().dynamic_broker)
        self.read_again()

    def read_again(self) -> None:
        """Compute the settings from the image of now: if they have changed, call the subscribers.

        To be called once before changes are published to `apply`: the image may have changed since this object was
        made."""
        if self._take():
            for reconfigure in self._subscribers:
                reconfigure(self.settings)

    def warn_of_min_insync_replicas(self) -> None:
        """Warn where ``min.insync.replicas`` is given to this process and a dynamic config has another value.

        With eligible leader replicas (KIP-966) the cluster has one from its first start on, without a command of
        anybody. Other settings have a dynamic config where somebody has set it, so that no warning is due; the line
        on settings that have changed names them at each start.
        """
        texts, in_force = self._configs.broker_texts(), self.settings.min_insync_replicas
        if _MIN_INSYNC_REPLICAS in texts.static and self._configs.static_settings.min_insync_replicas != in_force:
            is_own = _MIN_INSYNC_REPLICAS in texts.dynamic_broker
            log.warning(
                "min.insync.replicas=%s, as it is configured here, has no effect: %s has %d in the metadata. This "
                "changes it: kafka-configs --bootstrap-server HOST:PORT --alter --entity-type brokers %s --add-config "
                "min.insync.replicas=%s",
                texts.static[_MIN_INSYNC_REPLICAS],
                "this broker" if is_own else "the cluster",
                in_force,
                f"--entity-name {self.settings.node_id}" if is_own else "--entity-default",
                texts.static[_MIN_INSYNC_REPLICAS],
            )

    def _take(self) -> bool:
        """Compute the settings anew; True if they have changed."""
        settings, passed_over = self._configs.dynamic_settings()
        for key, error in passed_over.items():
            if str(error) != str(self._passed_over.get(key)):
                log.warning("a dynamic config of this broker is ignored: %s", error)
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
