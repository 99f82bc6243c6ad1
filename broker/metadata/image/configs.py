"""ConfigsImage and ConfigsDelta: dynamic configs of topics, brokers and other resources."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from broker.metadata.image.records import EMPTY, Record
from config.resources import ConfigResource
from protocol.records.cluster_metadata import ConfigRecord

Resource: TypeAlias = tuple[int, str]
"""Type (`config.resources.ConfigResource`, or a type that this broker does not know) and name."""


class ConfigsImage(NamedTuple):
    """Configs by resource. Readers change nothing in its maps."""

    by_resource: Mapping[Resource, Mapping[str, str]] = EMPTY

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The configs that have been set on a resource; empty if there are none, or no such resource."""
        return self.by_resource.get((resource_type, name), EMPTY)

    def of_topic(self, name: str) -> Mapping[str, str]:
        """The configs that have been set on a topic."""
        return self.by_resource.get((ConfigResource.TOPIC, name), EMPTY)

    def records(self) -> Iterator[Record]:
        """The records that add up to this image."""
        for (resource_type, resource_name), configs in self.by_resource.items():
            for name, value in configs.items():
                yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)


class ConfigsDelta:
    """The changes of configs."""

    __slots__ = ("_edits", "_image")

    def __init__(self, image: ConfigsImage) -> None:
        self._image = image
        self._edits: dict[Resource, dict[str, str]] = {}

    @property
    def changed(self) -> frozenset[Resource]:
        """The resources whose configs have changed; deleted topics are among them."""
        return frozenset(self._edits)

    def set(self, record: ConfigRecord) -> None:
        """Set a config; the value None removes it."""
        resource = (record.resource_type, record.resource_name)
        configs = self._edits.get(resource)
        if configs is None:
            configs = self._edits[resource] = dict(self._image.of(*resource))
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value

    def remove_topic(self, name: str) -> None:
        """Remove the configs of a deleted topic."""
        resource = (ConfigResource.TOPIC, name)
        if self._edits.get(resource) or self._image.of_topic(name):
            self._edits[resource] = {}

    def replace(self, image: ConfigsImage) -> None:
        """All configs as ``image`` has them."""
        before, after = self._image.by_resource, image.by_resource
        for resource in before.keys() | after.keys():
            if before.get(resource, EMPTY) != after.get(resource, EMPTY):
                self._edits[resource] = dict(after.get(resource, EMPTY))

    def apply(self) -> ConfigsImage:
        """The next image."""
        if not self._edits:
            return self._image
        return ConfigsImage({name: set_ for name, set_ in {**self._image.by_resource, **self._edits}.items() if set_})
