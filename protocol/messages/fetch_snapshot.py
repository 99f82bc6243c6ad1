"""FetchSnapshot: read a snapshot of the metadata log, piece by piece (KIP-630)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import (
    NO_UUID,
    Array,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    UInt16,
    Uuid,
    api_message,
    field,
    frozen_struct,
    struct,
)


@api_message(ApiKey.FETCH_SNAPSHOT)
class FetchSnapshotRequest:
    cluster_id: String | None = field(tag=0, default=None)
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFF_FFFF
    topics: Array[Topic]

    @struct
    class Topic:
        name: String
        partitions: Array[Partition]

        @struct
        class Partition:
            @frozen_struct
            class SnapshotId:
                end_offset: Int64 = 0
                epoch: Int32 = 0

            partition: Int32
            current_leader_epoch: Int32
            snapshot_id: SnapshotId
            position: Int64
            replica_directory_id: Uuid = field(since=1, tag=0, default=NO_UUID)


@api_message(ApiKey.FETCH_SNAPSHOT)
class FetchSnapshotResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: Array[Topic] = field(mirrors="topics")
    node_endpoints: Array[NodeEndpoint] = field(since=1, tag=0, default_factory=list)

    @struct
    class Topic:
        name: String = field(mirrors="name")
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            @frozen_struct
            class SnapshotId:
                end_offset: Int64 = 0
                epoch: Int32 = 0

            @frozen_struct
            class CurrentLeader:
                leader_id: Int32 = 0
                leader_epoch: Int32 = 0

            index: Int32 = field(mirrors="partition")
            error_code: Int16 = 0
            snapshot_id: SnapshotId = SnapshotId()
            current_leader: CurrentLeader = field(tag=0, default=CurrentLeader())
            size: Int64 = 0
            position: Int64 = 0
            unaligned_records: Records = field(refused=b"")

    @struct
    class NodeEndpoint:
        node_id: Int32
        host: String
        port: UInt16
