"""ListConfigResources: what has configs, by name."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Int8, Int16, Int32, String, api_message, field, struct


@api_message(ApiKey.LIST_CONFIG_RESOURCES)
class ListConfigResourcesRequest:
    resource_types: Array[Int8] = field(since=1, default_factory=list)


@api_message(ApiKey.LIST_CONFIG_RESOURCES)
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: Array[Resource]

    @struct
    class Resource:
        resource_name: String
        resource_type: Int8 = field(since=1, default=16)
