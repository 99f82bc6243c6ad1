"""FindCoordinator: which broker keeps a group, or the transactions of an id.

Until version 3 a request names one key, and its answer is the response itself; later it names any number of them.
"""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Int8, Int16, Int32, String, api_message, field, struct


@api_message(ApiKey.FIND_COORDINATOR)
class FindCoordinatorRequest:
    key: String = field(until=3, default="")
    key_type: Int8 = field(since=1, default=0)
    coordinator_keys: Array[String] = field(since=4, default_factory=list)


@api_message(ApiKey.FIND_COORDINATOR)
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = field(since=1, default=0)
    error_code: Int16 = field(until=3, default=0)
    error_message: String | None = field(since=1, until=3, default="")
    node_id: Int32 = field(until=3, default=0, refused=-1)
    host: String = field(until=3, default="")
    port: Int32 = field(until=3, default=0, refused=-1)
    coordinators: Array[Coordinator] = field(since=4, default_factory=list, mirrors="coordinator_keys")

    @struct
    class Coordinator:
        key: String
        node_id: Int32 = field(refused=-1)
        host: String = field(refused="")
        port: Int32 = field(refused=-1)
        error_code: Int16 = 0
        error_message: String | None = ""
