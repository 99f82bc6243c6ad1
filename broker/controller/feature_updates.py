"""Updates of finalised feature levels: every check of UpdateFeatures in Kafka's order, then the records (KIP-584,
KIP-778, KIP-1022)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from broker.metadata.configs import EVERY_BROKER
from broker.metadata.image.features import ELIGIBLE_LEADERS_FEATURE, METADATA_VERSION
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import Record
from broker.metadata.registration import SUPPORTED_FEATURES
from broker.request.faults import InvalidUpdateVersion
from config.release_versions import METADATA_CHANGES_AT
from config.resources import ConfigResource
from protocol.records.cluster_metadata import ConfigRecord, FeatureLevelRecord

KRAFT_VERSION: Final = "kraft.version"

_NEEDS_METADATA_VERSION: Final = {(ELIGIBLE_LEADERS_FEATURE, 1): 23}
"""The metadata.version that a level of another feature needs."""

_ONLY_OFF: Final = (0, 0)
"""The levels of a feature that a node does not support."""

_MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"


class UpgradeType(IntEnum):
    """What an update may do, by the codes of the protocol."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """To a lower level, if nothing is lost."""
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The level that a feature shall have."""

    feature: str
    level: int
    upgrade_type: int
    """An `UpgradeType`, or a number that a client made up."""


def plan_updates(
    image: MetadataImage,
    updates: Sequence[FeatureUpdate],
    *,
    node_id: int,
    kraft_version: int,
    min_insync_replicas: int,
) -> list[Record]:
    """The records that finalise the levels that are wanted, all or none.

    The level of kraft.version is checked and has no record here: control records of the log have it.

    Args:
        image: all that has been appended to the metadata log.
        updates: in the order of the request.
        node_id: the controller of this process.
        kraft_version: the finalised level of kraft.version, which is not among the features of the image.
        min_insync_replicas: the setting of this process, which becomes a config of the cluster with eligible leaders.

    Raises:
        InvalidUpdateVersion: a level is refused.
    """
    levels = {**image.features.levels, KRAFT_VERSION: kraft_version}
    wanted = {**levels, **{update.feature: update.level for update in updates}}
    for update in updates:
        reason = _refusal(update, levels.get(update.feature, 0), wanted, image, node_id)
        if reason is not None:
            raise InvalidUpdateVersion(
                f"The update failed for all features since the following feature had an error: {reason}"
            )
    records: list[Record] = []
    for feature, level in {update.feature: update.level for update in updates}.items():
        if level == levels.get(feature, 0) or feature == KRAFT_VERSION:
            continue
        if feature == ELIGIBLE_LEADERS_FEATURE and level > 0:
            records += _one_min_insync_replicas(image, min_insync_replicas)
        records.append(FeatureLevelRecord(name=feature, feature_level=level))
    return records


def _refusal(
    update: FeatureUpdate, current: int, wanted: Mapping[str, int], image: MetadataImage, node_id: int
) -> str | None:
    """Why a feature does not get the level that is wanted; None if it has that level, or may get it."""
    if update.feature == METADATA_VERSION and _loses_metadata(current, update) and _may_sink(update):
        reason = (
            "Unsafe metadata downgrade is not supported in this version."
            if update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        return f"Unsupported metadata.version downgrade from {current} to {update.level}. {reason}"
    reason_or_none = _invalid_version(update, current, wanted, image, node_id)
    if reason_or_none is None:
        return None
    return f"Invalid update version {update.level} for feature {update.feature}. {reason_or_none}"


def _loses_metadata(current: int, update: FeatureUpdate) -> bool:
    lowest, _ = SUPPORTED_FEATURES[METADATA_VERSION]
    return update.level >= lowest and any(update.level < level <= current for level in METADATA_CHANGES_AT)


def _may_sink(update: FeatureUpdate) -> bool:
    return update.upgrade_type in (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE)


def _invalid_version(
    update: FeatureUpdate, current: int, wanted: Mapping[str, int], image: MetadataImage, node_id: int
) -> str | None:
    feature, level, upgrade_type = update
    if level < 0:
        return "A feature version cannot be less than 0."
    if upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if feature not in SUPPORTED_FEATURES:
        return f"Local controller {node_id} does not support this feature."
    for node, (least, most) in _supported(feature, image, node_id):
        if not least <= level <= most:
            return f"{node} only supports versions {least}-{most}" if most else f"{node} does not support this feature."
    if level < current and feature == KRAFT_VERSION and upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade the version of this feature."
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if level > current and upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    needed = _NEEDS_METADATA_VERSION.get((feature, level))
    if needed is not None and wanted.get(METADATA_VERSION, 0) < needed:
        return f"{feature} could not be set to {level} because it depends on metadata.version level {needed}"
    return None


def _supported(feature: str, image: MetadataImage, node_id: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """The nodes that have to support the feature's level, as sentences name them, with the levels that they support."""
    yield f"Local controller {node_id}", SUPPORTED_FEATURES[feature]
    for broker in image.cluster.brokers.values():
        if broker.broker_id != node_id:
            levels = {one.name: (one.min_supported_version, one.max_supported_version) for one in broker.features}
            yield f"Broker {broker.broker_id}", levels.get(feature, _ONLY_OFF)


def _one_min_insync_replicas(image: MetadataImage, of_this_broker: int) -> Iterator[Record]:
    """Records after which ``min.insync.replicas`` has one value for all brokers, which eligible leaders need."""
    if _MIN_INSYNC_REPLICAS not in image.configs.of(ConfigResource.BROKER, EVERY_BROKER):
        yield _min_insync_replicas(EVERY_BROKER, str(of_this_broker))
    # A broker that has been unregistered keeps its configs.
    for (resource_type, name), configs in image.configs.by_resource.items():
        if resource_type == ConfigResource.BROKER and name != EVERY_BROKER and _MIN_INSYNC_REPLICAS in configs:
            yield _min_insync_replicas(name, None)


def _min_insync_replicas(resource_name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ConfigResource.BROKER, resource_name=resource_name, name=_MIN_INSYNC_REPLICAS, value=value
    )
