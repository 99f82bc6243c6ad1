"""AssignReplicasToDirs: a broker says in which of its log directories replicas stand (KIP-858)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Int16, Int32, Int64, Uuid, api_message, struct


@api_message(ApiKey.ASSIGN_REPLICAS_TO_DIRS)
class AssignReplicasToDirsRequest:
    broker_id: Int32
    broker_epoch: Int64 = -1
    directories: Array[Directory]

    @struct
    class Directory:
        id: Uuid
        topics: Array[Topic]

        @struct
        class Topic:
            topic_id: Uuid
            partitions: Array[Partition]

            @struct
            class Partition:
                partition_index: Int32


@api_message(ApiKey.ASSIGN_REPLICAS_TO_DIRS)
class AssignReplicasToDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: Array[Directory]

    @struct
    class Directory:
        id: Uuid
        topics: Array[Topic]

        @struct
        class Topic:
            topic_id: Uuid
            partitions: Array[Partition]

            @struct
            class Partition:
                partition_index: Int32
                error_code: Int16 = 0
