"""UpdateFeatures: finalise other levels of features (API key 57; KIP-584, KIP-778)."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from broker.controller.client import ControllerClient
from broker.handlers.api_versions import SUPPORTED_FEATURES, finalized_features
from broker.metadata.cache import MetadataCache
from broker.metadata.image.features import TRANSACTION_VERSION
from broker.raft.quorum import Quorum
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed, InvalidUpdateVersion
from protocol.errors import ErrorCode
from protocol.messages.features import UpdateFeaturesRequest, UpdateFeaturesResponse

UPGRADE_TYPE_SINCE_VERSION: Final = 1

CHANGEABLE: Final = frozenset({TRANSACTION_VERSION})
"""The features whose level can be changed while the broker runs."""

DONE: Final = "NONE"
"""What Kafka says of a feature whose update has succeeded."""


class UpgradeType(IntEnum):
    """What an update may do, by the codes of the protocol."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """To a lower level, if nothing is lost."""
    UNSAFE_DOWNGRADE = 3


class FeaturesHandler:
    """Changes the level of transaction.version. Of any other feature it says why the level stays as it is: this broker
    works at the levels that its directory was formatted with."""

    def __init__(self, controller: ControllerClient, metadata: MetadataCache, quorum: Quorum) -> None:
        self._controller = controller
        self._metadata = metadata
        self._quorum = quorum

    def update_features(self, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse | None:
        """Finalise the levels that are wanted, all or none. Raises `InvalidUpdateVersion`, StorageError."""
        if not context.may(Operation.ALTER, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not update features")
        levels = finalized_features(self._metadata.image, self._quorum)
        for update in request.feature_updates:
            fault = _fault_of(update, levels, context.api_version)
            if fault is not None:
                raise InvalidUpdateVersion(
                    "The update failed for all features since the following feature had an error: "
                    f"Invalid update version {update.max_version_level} for feature {update.feature}. {fault}"
                )
        answer = UpdateFeaturesResponse(
            results=[
                UpdateFeaturesResponse.Result(feature=update.feature, error_code=ErrorCode.NONE, error_message=DONE)
                for update in request.feature_updates
            ]
        )
        changed = {
            update.feature: update.max_version_level
            for update in request.feature_updates
            if update.max_version_level != levels.get(update.feature, 0)
        }
        if not changed or request.validate_only:
            return answer
        self._controller.update_features(changed, lambda: context.respond(answer))
        return None


def _fault_of(update: UpdateFeaturesRequest.FeatureUpdate, levels: Mapping[str, int], version: int) -> str | None:
    """Why a feature does not get the level that is wanted; None if it has that level, or may get it."""
    level, upgrade_type = update.max_version_level, update.upgrade_type
    if version < UPGRADE_TYPE_SINCE_VERSION:
        # Kafka does not honour `allow_downgrade` for a level that would sink.
        upgrade_type = UpgradeType.UPGRADE
    if level < 0:
        return "A feature version cannot be less than 0."
    if upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if update.feature not in SUPPORTED_FEATURES:
        return "This broker does not support this feature."
    current = levels.get(update.feature, 0)
    if level == current:
        return None
    first, last = SUPPORTED_FEATURES[update.feature]
    if not first <= level <= last:
        return f"This broker only supports versions {first}-{last}"
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if update.feature in CHANGEABLE:
        return None
    return f"This broker works at level {current}, as the directory was formatted, and does not change it."
