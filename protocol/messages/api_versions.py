"""ApiVersions: the first question of every client.

Its answer never has tagged fields in its header. A version that is not known here is answered in version 0. Since
version 5 a client says which node of which cluster it means to ask, if it knows both (KIP-1242).
"""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Bool, Int16, Int32, Int64, String, api_message, field, struct


@api_message(ApiKey.API_VERSIONS)
class ApiVersionsRequest:
    client_software_name: String = field(since=3, default="")
    client_software_version: String = field(since=3, default="")
    cluster_id: String | None = field(since=5, default=None)
    node_id: Int32 = field(since=5, default=-1)


@api_message(ApiKey.API_VERSIONS)
class ApiVersionsResponse:
    error_code: Int16 = 0
    api_keys: Array[ApiVersion]
    throttle_time_ms: Int32 = field(since=1, default=0)
    supported_features: Array[SupportedFeature] = field(since=3, tag=0, default_factory=list)
    finalized_features_epoch: Int64 = field(since=3, tag=1, default=-1)
    finalized_features: Array[FinalizedFeature] = field(since=3, tag=2, default_factory=list)
    zk_migration_ready: Bool = field(since=3, tag=3, default=False)

    @struct
    class ApiVersion:
        api_key: Int16
        min_version: Int16
        max_version: Int16

    @struct
    class SupportedFeature:
        name: String
        min_version: Int16
        max_version: Int16

    @struct
    class FinalizedFeature:
        name: String
        max_version_level: Int16
        min_version_level: Int16
