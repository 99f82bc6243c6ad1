"""Changes of configs: the checks of AlterConfigs and IncrementalAlterConfigs, then the records.

IncrementalAlterConfigs (KIP-339) names changes; AlterConfigs names all configs that the resource shall have. Both give
the configs that a resource has afterwards. These are checked as a whole: all changes of a resource are made, or none.
"""

import re
from collections.abc import Collection, Mapping, Sequence, Set
from enum import IntEnum
from typing import Final, NamedTuple

from broker.metadata.configs import EVERY_BROKER, ConfigView
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import Record
from broker.metadata.record_versions import CORDONED_SINCE
from broker.metadata.topic_rules import fault_of_name
from broker.request.faults import (
    BrokerIdNotRegistered,
    Fault,
    InvalidConfiguration,
    InvalidRequest,
    InvalidTopic,
    UnknownTopicOrPartition,
)
from config.alteration import check_broker_alteration
from config.client_metrics import InvalidSubscription, validate_client_metrics
from config.definitions import broker_definition
from config.errors import InvalidConfig, SettingsError
from config.group_settings import validate_group_overrides
from config.log_config import topic_setting, validate_topic_overrides
from config.resources import ConfigResource
from config.values import ConfigType
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import ClearElrRecord, ConfigRecord

_CORDONED: Final = "cordoned.log.dirs"
_MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
_LONGEST_VALUE_BYTES: Final = 32_767
_BROKER_ID: Final = re.compile(r"[+-]?[0-9]{1,10}")
_RESOURCE_TYPES: Final = frozenset(ConfigResource)


class ConfigOperation(IntEnum):
    """What is done to one config, by the codes of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    """Add to a list the values that it does not have."""
    SUBTRACT = 3
    """Remove values from a list."""


_OPERATIONS: Final = frozenset(ConfigOperation)


class ConfigChange(NamedTuple):
    """A change of one config of a resource."""

    name: str
    operation: int
    """A `ConfigOperation`, or an unknown number of a client."""
    value: str | None


class Resource(NamedTuple):
    """A topic, broker, group or other resource that has configs."""

    type: int
    """A `ConfigResource`, or an unknown number of a client."""
    name: str

    def __str__(self) -> str:
        kind = ConfigResource(self.type).name.lower() if self.type in _RESOURCE_TYPES else f"type {self.type}"
        return f"{kind} '{self.name}'"


class Alteration(NamedTuple):
    """The changes that a client requests of one resource (IncrementalAlterConfigs)."""

    resource: Resource
    changes: Sequence[ConfigChange]

    def applied_to(self, configs: Mapping[str, str]) -> dict[str, str]:
        """The configs of the resource afterwards. Raises `InvalidRequest` and `InvalidConfig`."""
        check_changes(self.changes)
        after = dict(configs)
        for change in self.changes:
            if change.operation == ConfigOperation.DELETE:
                after.pop(change.name, None)
            elif change.operation == ConfigOperation.SET:
                after[change.name] = change.value or ""
            else:
                after[change.name] = _changed_list(self.resource, change, configs.get(change.name))
        return after

    def named(self, configs: Mapping[str, str]) -> Set[str]:
        """The names of the configs that are set or removed, of a resource that has ``configs``."""
        return {change.name for change in self.changes}


class Replacement(NamedTuple):
    """All configs that shall be set on one resource (AlterConfigs)."""

    resource: Resource
    configs: Sequence[tuple[str, str | None]]

    def applied_to(self, configs: Mapping[str, str]) -> dict[str, str]:
        """The configs of the resource afterwards. Raises `InvalidRequest`."""
        check_changes([ConfigChange(name, ConfigOperation.SET, value) for name, value in self.configs])
        return {name: value for name, value in self.configs if value is not None}

    def named(self, configs: Mapping[str, str]) -> Set[str]:
        """The names of the configs that are set or removed, of a resource that has ``configs``."""
        return {name for name, _ in self.configs} | configs.keys()


class AlterationResult(NamedTuple):
    """The result for one resource."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    changed: Sequence[str] = ()
    """The names of the configs whose values have changed."""


class ConfigPlanner:
    """Plans changes against one image: the records to append, and what to answer once they are durable."""

    def __init__(self, image: MetadataImage, configs: ConfigView) -> None:
        """``configs`` is a view of ``image``."""
        self._image = image
        self._configs = configs
        self.records: list[Record] = []

    def plan(self, wanted: Alteration | Replacement) -> AlterationResult:
        """Check the changes of one resource, and collect the records that make them."""
        before = self._image.configs.of(*wanted.resource)
        try:
            self._check_name(wanted.resource)
            after = wanted.applied_to(before)
            _check_lengths(after)
            self._check(wanted.resource, after)
            if wanted.resource.type == ConfigResource.BROKER:
                self._check_cordoned(wanted.named(before))
        except Fault as fault:
            return AlterationResult(fault.code, str(fault))
        except InvalidConfig as error:
            return AlterationResult(ErrorCode.INVALID_CONFIG, error.answer)
        changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        again: list[str] = []
        if wanted.resource.type == ConfigResource.BROKER:
            # A value that stays has the broker read the file again that it names, as in Kafka (KAFKA-14136).
            again = [key for key in after if key in wanted.named(before) and key not in changed]
        self._add_records(wanted.resource, [*changed, *again], after)
        return AlterationResult(changed=changed)

    def _check_name(self, resource: Resource) -> None:
        """Refuse resources that cannot have configs. Whether the resource exists is checked last, as in Kafka."""
        type_, name = resource
        match type_:
            case ConfigResource.TOPIC:
                if not name:
                    raise InvalidRequest("Default topic resources are not allowed.")
                if fault := fault_of_name(name):
                    raise InvalidTopic(fault)
            case ConfigResource.BROKER:
                if name != EVERY_BROKER and not _BROKER_ID.fullmatch(name):
                    raise InvalidRequest("Unable to parse broker name as a base 10 number.")
            case ConfigResource.GROUP:
                if not name:
                    raise InvalidRequest("Default group resources are not allowed.")
            case ConfigResource.CLIENT_METRICS:
                if not name:
                    raise InvalidRequest("Subscription name can't be empty")
            case _:
                raise InvalidRequest(f"Unknown resource type {type_}")

    def _check(self, resource: Resource, after: Mapping[str, str]) -> None:
        """Refuse configs that the resource may not have. Raises a `Fault` or `InvalidConfig`."""
        type_, name = resource
        match type_:
            case ConfigResource.TOPIC:
                validate_topic_overrides(after, self._configs.log_defaults())
                if name not in self._image.topics.by_name:
                    raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
            case ConfigResource.BROKER:
                if name in (EVERY_BROKER, str(self._configs.static_settings.node_id)):
                    self._check_broker(name, after)
                else:
                    self._check_other_broker(name, after)
            case ConfigResource.GROUP:
                validate_group_overrides(after, self._configs.broker_texts())
            case ConfigResource.CLIENT_METRICS:
                try:
                    validate_client_metrics(after)
                except InvalidSubscription as error:
                    raise InvalidRequest(error.answer) from None

    def _check_broker(self, name: str, after: Mapping[str, str]) -> None:
        texts = self._configs.broker_texts()
        try:
            if name == EVERY_BROKER:
                changed = texts._replace(dynamic_default=after)
            else:
                changed = texts._replace(dynamic_broker=after)
            check_broker_alteration(self._configs.static_settings, texts, changed)
        except SettingsError as error:
            # Kafka has INVALID_CONFIG for topics and groups, but not for brokers.
            raise InvalidRequest(error.answer) from None
        if self._image.features.has_eligible_leader_replicas:
            self._check_min_insync_replicas(name, after)

    def _check_other_broker(self, name: str, after: Mapping[str, str]) -> None:
        """Refuse configs of a broker that is not registered. Whether a broker can have its configs depends on its own
        settings: it has checked them before it has handed the change on."""
        if int(name) not in self._image.cluster.brokers:
            raise BrokerIdNotRegistered(f"No node with id {int(name)} found.")
        if self._image.features.has_eligible_leader_replicas:
            self._check_min_insync_replicas(name, after)

    def _check_cordoned(self, named: Collection[str]) -> None:
        """Refuse even to remove the setting where the level of the cluster does not have it, as Kafka does."""
        if _CORDONED in named and self._image.features.metadata_version < CORDONED_SINCE:
            raise InvalidConfiguration(
                f"The {_CORDONED} configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
            )

    def _check_min_insync_replicas(self, name: str, after: Mapping[str, str]) -> None:
        """Refuse a ``min.insync.replicas`` of one broker: eligible leaders (KIP-966) need one value for all brokers."""
        key = _MIN_INSYNC_REPLICAS
        before = self._image.configs.of(ConfigResource.BROKER, name)
        if name != EVERY_BROKER and key in after and before.get(key) != after[key]:
            raise InvalidConfiguration(f"Broker-level {key} cannot be altered while ELR is enabled.")
        if name == EVERY_BROKER and key in before and key not in after:
            raise InvalidConfiguration(f"Cluster-level {key} cannot be removed while ELR is enabled.")

    def _add_records(self, resource: Resource, changed: Sequence[str], after: Mapping[str, str]) -> None:
        for key in changed:
            self.records.append(
                ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=key, value=after.get(key))
            )
        if _MIN_INSYNC_REPLICAS in changed and self._image.features.has_eligible_leader_replicas:
            # The empty name means all topics. As in Kafka, a broker's config clears the eligible leaders of all topics.
            is_topic = resource.type == ConfigResource.TOPIC
            self.records.append(ClearElrRecord(topic_name=resource.name if is_topic else ""))


def _check_lengths(configs: Mapping[str, str]) -> None:
    """Refuse a list that has grown longer than the text of a record or a response may be."""
    if any(len(value.encode()) > _LONGEST_VALUE_BYTES for value in configs.values()):
        raise InvalidConfiguration(
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{_LONGEST_VALUE_BYTES} bytes."
        )


def check_changes(changes: Sequence[ConfigChange]) -> None:
    """Refuse changes that contradict each other or have no value, whatever the resource is.

    Raises:
        InvalidRequest: A name comes twice, a value is missing, or there is no such operation.
    """
    if len({change.name for change in changes}) < len(changes):
        raise InvalidRequest("Error due to duplicate config keys")
    nulls = [change.name for change in changes if change.operation != ConfigOperation.DELETE and change.value is None]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")
    for change in changes:
        if change.operation not in _OPERATIONS:
            raise InvalidRequest(f"There is no operation {change.operation}, which is asked for {change.name}")


def _changed_list(resource: Resource, change: ConfigChange, current: str | None) -> str:
    """A list after APPEND or SUBTRACT. Where no list is set, Kafka's default is taken, not the broker's setting."""
    type_, default = _type_and_default(resource, change.name)
    if type_ != ConfigType.LIST:
        operation = ConfigOperation(change.operation).name
        raise InvalidConfiguration(f"Can't {operation} to key {change.name} because its type is not LIST.")
    parts = [part for part in (default if current is None else current).split(",") if part]
    for part in _split(change.value or ""):
        if change.operation == ConfigOperation.APPEND and part not in parts:
            parts.append(part)
        elif change.operation == ConfigOperation.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def _split(text: str) -> list[str]:
    """The parts of a list as Java's ``String.split`` gives them: without empty ones at the end."""
    return text.rstrip(",").split(",") if text.strip(",") or not text else []


def _type_and_default(resource: Resource, name: str) -> tuple[ConfigType, str]:
    if resource.type == ConfigResource.TOPIC and (declaration := topic_setting(name)):
        return declaration.type, declaration.default or ""
    definition = broker_definition(name) if resource.type == ConfigResource.BROKER else None
    # The lists of groups and client metrics can't be appended to in Kafka either.
    return (ConfigType.UNKNOWN, "") if definition is None else (definition.type, definition.default or "")
