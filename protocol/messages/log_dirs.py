"""DescribeLogDirs and AlterReplicaLogDirs: which data directories there are, what stands in them, and in which."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Bool, Int16, Int32, Int64, String, api_message, field, struct


@api_message(ApiKey.DESCRIBE_LOG_DIRS)
class DescribeLogDirsRequest:
    topics: Array[Topic] | None

    @struct
    class Topic:
        topic: String
        partitions: Array[Int32]


@api_message(ApiKey.DESCRIBE_LOG_DIRS)
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(since=3, default=0)
    results: Array[Result]

    @struct
    class Result:
        error_code: Int16 = 0
        log_dir: String
        topics: Array[Topic]
        total_bytes: Int64 = field(since=4, default=-1)
        usable_bytes: Int64 = field(since=4, default=-1)
        is_cordoned: Bool = field(since=5, default=False)

        @struct
        class Topic:
            name: String
            partitions: Array[Partition]

            @struct
            class Partition:
                partition_index: Int32
                partition_size: Int64
                offset_lag: Int64
                is_future_key: Bool


@api_message(ApiKey.ALTER_REPLICA_LOG_DIRS)
class AlterReplicaLogDirsRequest:
    dirs: Array[Dir]

    @struct
    class Dir:
        path: String
        topics: Array[Topic]

        @struct
        class Topic:
            name: String
            partitions: Array[Int32]


@api_message(ApiKey.ALTER_REPLICA_LOG_DIRS)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32 = 0
    results: Array[Result] = field(mirrors="dirs.topics")

    @struct
    class Result:
        topic_name: String = field(mirrors="name")
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
