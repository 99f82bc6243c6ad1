"""DescribeQuorum, AddRaftVoter and RemoveRaftVoter: who votes on the metadata log, and how far each has come."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import (
    NO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    String,
    UInt16,
    Uuid,
    api_message,
    field,
    struct,
)


@struct
class ReplicaState:
    replica_id: Int32
    replica_directory_id: Uuid = field(since=2, default=NO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field(since=1, default=-1)
    last_caught_up_timestamp: Int64 = field(since=1, default=-1)


@api_message(ApiKey.DESCRIBE_QUORUM)
class DescribeQuorumRequest:
    topics: Array[Topic]

    @struct
    class Topic:
        topic_name: String
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32


@api_message(ApiKey.DESCRIBE_QUORUM)
class DescribeQuorumResponse:
    error_code: Int16 = 0
    error_message: String | None = field(since=2, default=None)
    topics: Array[Topic]
    nodes: Array[Node] = field(since=2, default_factory=list)

    @struct
    class Topic:
        topic_name: String
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = field(since=2, default=None)
            leader_id: Int32 = 0
            leader_epoch: Int32 = 0
            high_watermark: Int64 = 0
            current_voters: Array[ReplicaState]
            observers: Array[ReplicaState]

    @struct
    class Node:
        node_id: Int32
        listeners: Array[Listener]

        @struct
        class Listener:
            name: String
            host: String
            port: UInt16


@api_message(ApiKey.ADD_RAFT_VOTER)
class AddRaftVoterRequest:
    cluster_id: String | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: Array[Listener]
    ack_when_committed: Bool = field(since=1, default=True)

    @struct
    class Listener:
        name: String
        host: String
        port: UInt16


@api_message(ApiKey.ADD_RAFT_VOTER)
class AddRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


@api_message(ApiKey.REMOVE_RAFT_VOTER)
class RemoveRaftVoterRequest:
    cluster_id: String | None
    voter_id: Int32
    voter_directory_id: Uuid


@api_message(ApiKey.REMOVE_RAFT_VOTER)
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
