"""Fetch: read record batches of partitions, in a session or not."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import (
    NO_UUID,
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    api_message,
    field,
    frozen_struct,
    struct,
)


@api_message(ApiKey.FETCH)
class FetchRequest:
    @frozen_struct
    class ReplicaState:
        replica_id: Int32 = -1
        replica_epoch: Int64 = -1

    cluster_id: String | None = field(since=12, tag=0, default=None)
    replica_id: Int32 = field(until=14, default=-1)
    replica_state: ReplicaState = field(since=15, tag=1, default=ReplicaState())
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFF_FFFF
    isolation_level: Int8 = 0
    session_id: Int32 = field(since=7, default=0)
    session_epoch: Int32 = field(since=7, default=-1)
    topics: Array[Topic]
    forgotten_topics_data: Array[ForgottenTopic] = field(since=7, default_factory=list)
    rack_id: String = field(since=11, default="")

    @struct
    class Topic:
        topic: String = field(until=12, default="")
        topic_id: Uuid = field(since=13, default=NO_UUID)
        partitions: Array[Partition]

        @struct
        class Partition:
            partition: Int32
            current_leader_epoch: Int32 = field(since=9, default=-1)
            fetch_offset: Int64
            last_fetched_epoch: Int32 = field(since=12, default=-1)
            log_start_offset: Int64 = field(since=5, default=-1)
            partition_max_bytes: Int32
            replica_directory_id: Uuid = field(since=17, tag=0, default=NO_UUID)
            high_watermark: Int64 = field(since=18, tag=1, default=0x7FFF_FFFF_FFFF_FFFF)

    @struct
    class ForgottenTopic:
        topic: String = field(until=12, default="")
        topic_id: Uuid = field(since=13, default=NO_UUID)
        partitions: Array[Int32]


@api_message(ApiKey.FETCH)
class FetchResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(since=7, default=0)
    session_id: Int32 = field(since=7, default=0)
    responses: Array[Response] = field(mirrors="topics", mirrored_until=12)
    node_endpoints: Array[NodeEndpoint] = field(since=16, tag=0, default_factory=list)

    @struct
    class Response:
        topic: String = field(until=12, default="", mirrors="topic")
        topic_id: Uuid = field(since=13, default=NO_UUID)
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            @frozen_struct
            class DivergingEpoch:
                epoch: Int32 = -1
                end_offset: Int64 = -1

            @frozen_struct
            class CurrentLeader:
                leader_id: Int32 = -1
                leader_epoch: Int32 = -1

            @frozen_struct
            class SnapshotId:
                end_offset: Int64 = -1
                epoch: Int32 = -1

            partition_index: Int32 = field(mirrors="partition")
            error_code: Int16 = 0
            high_watermark: Int64 = field(refused=-1)
            last_stable_offset: Int64 = -1
            log_start_offset: Int64 = field(since=5, default=-1)
            diverging_epoch: DivergingEpoch = field(since=12, tag=0, default=DivergingEpoch())
            current_leader: CurrentLeader = field(since=12, tag=1, default=CurrentLeader())
            snapshot_id: SnapshotId = field(since=12, tag=2, default=SnapshotId())
            aborted_transactions: Array[AbortedTransaction] | None = field(default=None, refused=[])
            preferred_read_replica: Int32 = field(since=11, default=-1)
            records: Records | None = field(refused=b"")

            @struct
            class AbortedTransaction:
                producer_id: Int64
                first_offset: Int64

    @struct
    class NodeEndpoint:
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None
