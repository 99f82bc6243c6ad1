"""AlterPartition: a leader asks the controller for another set of replicas in sync (KIP-497, KIP-903)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import NO_UUID, Array, Int8, Int16, Int32, Int64, Uuid, api_message, field, struct


@api_message(ApiKey.ALTER_PARTITION)
class AlterPartitionRequest:
    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: Array[Topic]

    @struct
    class Topic:
        topic_id: Uuid = NO_UUID
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            leader_epoch: Int32
            new_isr: Array[Int32] = field(until=2, default_factory=list)
            new_isr_with_epochs: Array[BrokerState] = field(since=3, default_factory=list)
            leader_recovery_state: Int8 = 0
            partition_epoch: Int32

            @struct
            class BrokerState:
                broker_id: Int32
                broker_epoch: Int64 = -1


@api_message(ApiKey.ALTER_PARTITION)
class AlterPartitionResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: Array[Topic]

    @struct
    class Topic:
        topic_id: Uuid = NO_UUID
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            leader_id: Int32 = 0
            leader_epoch: Int32 = 0
            isr: Array[Int32] = field(default_factory=list)
            leader_recovery_state: Int8 = 0
            partition_epoch: Int32 = 0
