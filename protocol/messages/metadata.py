"""Metadata: which brokers there are, and who leads which partition.

In version 0 an empty list of topics asks for all of them; later null does, and an empty list asks for none.
"""

from __future__ import annotations

from typing import Final

from protocol.api_keys import ApiKey
from protocol.schema import NO_UUID, Array, Bool, Int16, Int32, String, Uuid, api_message, field, struct

OPERATIONS_NOT_ASKED_FOR: Final = -0x8000_0000
"""The value of a field of authorized operations that the request did not ask for."""


@api_message(ApiKey.METADATA)
class MetadataRequest:
    topics: Array[Topic] | None = field(nullable_since=1)
    allow_auto_topic_creation: Bool = field(since=4, default=True)
    include_cluster_authorized_operations: Bool = field(since=8, until=10, default=False)
    include_topic_authorized_operations: Bool = field(since=8, default=False)

    @struct
    class Topic:
        topic_id: Uuid = field(since=10, default=NO_UUID)
        name: String | None = field(nullable_since=10)


@api_message(ApiKey.METADATA)
class MetadataResponse:
    throttle_time_ms: Int32 = field(since=3, default=0)
    brokers: Array[Broker]
    cluster_id: String | None = field(since=2, default=None)
    controller_id: Int32 = field(since=1, default=-1)
    topics: Array[Topic] = field(mirrors="topics")
    cluster_authorized_operations: Int32 = field(since=8, until=10, default=OPERATIONS_NOT_ASKED_FOR)
    error_code: Int16 = field(since=13, default=0)

    @struct
    class Broker:
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = field(since=1, default=None)

    @struct
    class Topic:
        error_code: Int16 = 0
        name: String | None = field(nullable_since=12)
        topic_id: Uuid = field(since=10, default=NO_UUID, mirrors="topic_id")
        is_internal: Bool = field(since=1, default=False)
        partitions: Array[Partition]
        topic_authorized_operations: Int32 = field(since=8, default=OPERATIONS_NOT_ASKED_FOR)

        @struct
        class Partition:
            error_code: Int16 = 0
            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32 = field(since=7, default=-1)
            replica_nodes: Array[Int32]
            isr_nodes: Array[Int32]
            offline_replicas: Array[Int32] = field(since=5, default_factory=list)
