"""OffsetCommit, OffsetFetch and OffsetDelete: how far a group has read.

A topic goes by its name, and from version 10 by its id. Until version 7 OffsetFetch asks for one group, later for any
number of them; where null is allowed for the topics it asks for all that the group has.
"""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import NO_UUID, Array, Bool, Int16, Int32, Int64, String, Uuid, api_message, field, struct


@api_message(ApiKey.OFFSET_COMMIT)
class OffsetCommitRequest:
    group_id: String
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: String | None = field(since=7, default=None)
    retention_time_ms: Int64 = field(until=4, default=-1)
    topics: Array[Topic]

    @struct
    class Topic:
        name: String = field(until=9, default="")
        topic_id: Uuid = field(since=10, default=NO_UUID)
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Int32 = field(since=6, default=-1)
            committed_metadata: String | None = ""


@api_message(ApiKey.OFFSET_COMMIT)
class OffsetCommitResponse:
    throttle_time_ms: Int32 = field(since=3, default=0)
    topics: Array[Topic] = field(mirrors="topics")

    @struct
    class Topic:
        name: String = field(until=9, default="", mirrors="name")
        topic_id: Uuid = field(since=10, default=NO_UUID, mirrors="topic_id")
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0


@api_message(ApiKey.OFFSET_FETCH)
class OffsetFetchRequest:
    group_id: String = field(until=7, default="")
    topics: Array[Topic] | None = field(until=7, nullable_since=2, default_factory=list)
    groups: Array[Group] = field(since=8, default_factory=list)
    require_stable: Bool = field(since=7, default=False)

    @struct
    class Topic:
        name: String
        partition_indexes: Array[Int32]

    @struct
    class Group:
        group_id: String
        member_id: String | None = field(since=9, default=None)
        member_epoch: Int32 = field(since=9, default=-1)
        topics: Array[Topic] | None

        @struct
        class Topic:
            name: String = field(until=9, default="")
            topic_id: Uuid = field(since=10, default=NO_UUID)
            partition_indexes: Array[Int32]


@api_message(ApiKey.OFFSET_FETCH)
class OffsetFetchResponse:
    throttle_time_ms: Int32 = field(since=3, default=0)
    topics: Array[Topic] = field(until=7, default_factory=list, mirrors="topics")
    error_code: Int16 = field(since=2, until=7, default=0)
    groups: Array[Group] = field(since=8, default_factory=list, mirrors="groups")

    @struct
    class Topic:
        name: String
        partitions: Array[Partition] = field(mirrors="partition_indexes")

        @struct
        class Partition:
            partition_index: Int32
            committed_offset: Int64 = field(refused=-1)
            committed_leader_epoch: Int32 = field(since=5, default=-1)
            metadata: String | None = ""
            error_code: Int16 = 0

    @struct
    class Group:
        group_id: String
        topics: Array[Topic]
        error_code: Int16 = 0

        @struct
        class Topic:
            name: String = field(until=9, default="")
            topic_id: Uuid = field(since=10, default=NO_UUID)
            partitions: Array[Partition]

            @struct
            class Partition:
                partition_index: Int32
                committed_offset: Int64
                committed_leader_epoch: Int32 = -1
                metadata: String | None = ""
                error_code: Int16 = 0


@api_message(ApiKey.OFFSET_DELETE)
class OffsetDeleteRequest:
    group_id: String
    topics: Array[Topic]

    @struct
    class Topic:
        name: String
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32


@api_message(ApiKey.OFFSET_DELETE)
class OffsetDeleteResponse:
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: Array[Topic] = field(default_factory=list)

    @struct
    class Topic:
        name: String
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
