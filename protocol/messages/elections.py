"""ElectLeaders: let partitions be led by another of their replicas."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Int8, Int16, Int32, String, api_message, field, struct


@api_message(ApiKey.ELECT_LEADERS)
class ElectLeadersRequest:
    election_type: Int8 = field(since=1, default=0)
    topic_partitions: Array[TopicPartitions] | None
    timeout_ms: Int32 = 60_000

    @struct
    class TopicPartitions:
        topic: String
        partitions: Array[Int32]


@api_message(ApiKey.ELECT_LEADERS)
class ElectLeadersResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(since=1, default=0)
    replica_election_results: Array[ReplicaElectionResult] = field(mirrors="topic_partitions")

    @struct
    class ReplicaElectionResult:
        topic: String
        partition_result: Array[PartitionResult] = field(mirrors="partitions")

        @struct
        class PartitionResult:
            partition_id: Int32
            error_code: Int16 = 0
            error_message: String | None
