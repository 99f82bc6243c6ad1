"""BrokerRegistration and BrokerHeartbeat: a broker makes itself known to the controller, and stays so (KIP-631)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Bool, Int16, Int32, Int64, String, UInt16, Uuid, api_message, field, struct


@api_message(ApiKey.BROKER_REGISTRATION)
class BrokerRegistrationRequest:
    broker_id: Int32
    cluster_id: String
    incarnation_id: Uuid
    """Drawn anew at each start of the broker's process."""
    listeners: Array[Listener]
    features: Array[Feature]
    rack: String | None
    is_migrating_zk_broker: Bool = field(since=1, default=False)
    log_dirs: Array[Uuid] = field(since=2, default_factory=list)
    previous_broker_epoch: Int64 = field(since=3, default=-1)
    """The epoch of the last registration if the broker had stopped cleanly, else -1 (KIP-966)."""

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


@api_message(ApiKey.BROKER_REGISTRATION)
class BrokerRegistrationResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1


@api_message(ApiKey.BROKER_HEARTBEAT)
class BrokerHeartbeatRequest:
    broker_id: Int32
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64
    """The offset of the last record of the metadata log that the broker has applied."""
    want_fence: Bool
    want_shut_down: Bool
    offline_log_dirs: Array[Uuid] = field(since=1, tag=0, default_factory=list)
    cordoned_log_dirs: Array[Uuid] | None = field(since=2, tag=1, default=None)


@api_message(ApiKey.BROKER_HEARTBEAT)
class BrokerHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
