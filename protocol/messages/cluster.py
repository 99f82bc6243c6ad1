"""DescribeCluster: the cluster's id and its brokers."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.messages.metadata import OPERATIONS_NOT_ASKED_FOR
from protocol.schema import Array, Bool, Int8, Int16, Int32, String, api_message, field, struct


@api_message(ApiKey.DESCRIBE_CLUSTER)
class DescribeClusterRequest:
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Int8 = field(since=1, default=1)
    include_fenced_brokers: Bool = field(since=2, default=False)


@api_message(ApiKey.DESCRIBE_CLUSTER)
class DescribeClusterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Int8 = field(since=1, default=1)
    cluster_id: String = field(refused="")
    controller_id: Int32 = -1
    brokers: Array[Broker]
    cluster_authorized_operations: Int32 = OPERATIONS_NOT_ASKED_FOR

    @struct
    class Broker:
        broker_id: Int32
        host: String
        port: Int32
        rack: String | None = None
        is_fenced: Bool = field(since=2, default=False)
