"""UnregisterBroker and UnregisterController: forget a node that is gone."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Int16, Int32, String, api_message


@api_message(ApiKey.UNREGISTER_BROKER)
class UnregisterBrokerRequest:
    broker_id: Int32


@api_message(ApiKey.UNREGISTER_BROKER)
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


@api_message(ApiKey.UNREGISTER_CONTROLLER)
class UnregisterControllerRequest:
    controller_id: Int32


@api_message(ApiKey.UNREGISTER_CONTROLLER)
class UnregisterControllerResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
