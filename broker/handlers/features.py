"""UpdateFeatures: finalise other levels of features (API key 57; KIP-584, KIP-778)."""

from typing import Final

from broker.controller.client import ControllerClient
from broker.controller.feature_updates import FeatureUpdate, UpgradeType
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed
from protocol.errors import ErrorCode
from protocol.messages.features import UpdateFeaturesRequest, UpdateFeaturesResponse

UPGRADE_TYPE_SINCE_VERSION: Final = 1

DONE: Final = "NONE"
"""What Kafka says of a feature whose update has succeeded."""


class FeaturesHandler:
    """Asks the controller."""

    def __init__(self, controller: ControllerClient) -> None:
        self._controller = controller

    def update_features(self, request: UpdateFeaturesRequest, context: RequestContext) -> None:
        """Finalise the levels that are wanted, all or none. Raises `InvalidUpdateVersion`, StorageError."""
        if not context.may(Operation.ALTER, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not update features")
        has_type = context.api_version >= UPGRADE_TYPE_SINCE_VERSION
        answer = UpdateFeaturesResponse(
            results=[
                UpdateFeaturesResponse.Result(feature=update.feature, error_code=ErrorCode.NONE, error_message=DONE)
                for update in request.feature_updates
            ]
        )
        self._controller.update_features(
            [
                # Kafka does not honour `allow_downgrade` of the first version for a level that would sink.
                FeatureUpdate(one.feature, one.max_version_level, one.upgrade_type if has_type else UpgradeType.UPGRADE)
                for one in request.feature_updates
            ],
            validate_only=request.validate_only,
            then=lambda: context.respond(answer),
        )
