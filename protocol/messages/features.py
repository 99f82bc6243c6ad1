"""UpdateFeatures: finalise other levels of features."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Bool, Int8, Int16, Int32, String, api_message, field, struct


@api_message(ApiKey.UPDATE_FEATURES)
class UpdateFeaturesRequest:
    timeout_ms: Int32 = 60000
    feature_updates: Array[FeatureUpdate]
    validate_only: Bool = field(since=1, default=False)

    @struct
    class FeatureUpdate:
        feature: String
        max_version_level: Int16
        allow_downgrade: Bool = field(until=0, default=False)
        upgrade_type: Int8 = field(since=1, default=1)


@api_message(ApiKey.UPDATE_FEATURES)
class UpdateFeaturesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    results: Array[Result] = field(until=1, default_factory=list)

    @struct
    class Result:
        feature: String
        error_code: Int16 = 0
        error_message: String | None = None
