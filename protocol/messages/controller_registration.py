"""ControllerRegistration: a controller makes its addresses and features known to the one that leads (KIP-919)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Bool, Int16, Int32, String, UInt16, Uuid, api_message, struct


@api_message(ApiKey.CONTROLLER_REGISTRATION)
class ControllerRegistrationRequest:
    controller_id: Int32
    incarnation_id: Uuid
    """Drawn anew at each start of the controller's process."""
    zk_migration_ready: Bool
    listeners: Array[Listener]
    features: Array[Feature]

    @struct
    class Listener:
        name: String
        host: String
        port: UInt16
        security_protocol: Int16

    @struct
    class Feature:
        name: String
        min_supported_version: Int16
        max_supported_version: Int16


@api_message(ApiKey.CONTROLLER_REGISTRATION)
class ControllerRegistrationResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
