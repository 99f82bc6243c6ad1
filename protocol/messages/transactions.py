"""Transactions: what producers, coordinators and administrators ask about them (KIP-98, KIP-664)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import NO_UUID, Array, Bool, Int8, Int16, Int32, Int64, String, Uuid, api_message, field, struct


@struct
class AddPartitionsToTxnTopic:
    name: String
    partitions: Array[Int32]


@struct
class AddPartitionsToTxnTopicResult:
    name: String
    results_by_partition: Array[AddPartitionsToTxnPartitionResult] = field(mirrors="partitions")


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16 = 0


@api_message(ApiKey.ADD_PARTITIONS_TO_TXN)
class AddPartitionsToTxnRequest:
    transactions: Array[Transaction] = field(since=4, default_factory=list)
    v3_and_below_transactional_id: String = field(until=3, default="")
    v3_and_below_producer_id: Int64 = field(until=3, default=0)
    v3_and_below_producer_epoch: Int16 = field(until=3, default=0)
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = field(until=3, default_factory=list)

    @struct
    class Transaction:
        transactional_id: String
        producer_id: Int64
        producer_epoch: Int16
        verify_only: Bool = False
        topics: Array[AddPartitionsToTxnTopic]


@api_message(ApiKey.ADD_PARTITIONS_TO_TXN)
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(since=4, default=0)
    results_by_transaction: Array[ResultsByTransaction] = field(since=4, default_factory=list, mirrors="transactions")
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = field(
        until=3, default_factory=list, mirrors="v3_and_below_topics"
    )

    @struct
    class ResultsByTransaction:
        transactional_id: String
        topic_results: Array[AddPartitionsToTxnTopicResult] = field(mirrors="topics")


@api_message(ApiKey.ADD_OFFSETS_TO_TXN)
class AddOffsetsToTxnRequest:
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@api_message(ApiKey.ADD_OFFSETS_TO_TXN)
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


@api_message(ApiKey.END_TXN)
class EndTxnRequest:
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@api_message(ApiKey.END_TXN)
class EndTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = field(since=5, default=-1)
    producer_epoch: Int16 = field(since=5, default=-1)


@api_message(ApiKey.WRITE_TXN_MARKERS)
class WriteTxnMarkersRequest:
    markers: Array[Marker]

    @struct
    class Marker:
        producer_id: Int64
        producer_epoch: Int16
        transaction_result: Bool
        topics: Array[Topic]
        coordinator_epoch: Int32
        transaction_version: Int8 = field(since=2, default=0)

        @struct
        class Topic:
            name: String
            partition_indexes: Array[Int32]


@api_message(ApiKey.WRITE_TXN_MARKERS)
class WriteTxnMarkersResponse:
    markers: Array[Marker] = field(mirrors="markers")

    @struct
    class Marker:
        producer_id: Int64
        topics: Array[Topic] = field(mirrors="topics")

        @struct
        class Topic:
            name: String
            partitions: Array[Partition] = field(mirrors="partition_indexes")

            @struct
            class Partition:
                partition_index: Int32
                error_code: Int16 = 0


@api_message(ApiKey.TXN_OFFSET_COMMIT)
class TxnOffsetCommitRequest:
    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id_or_member_epoch: Int32 = field(since=3, default=-1)
    member_id: String = field(since=3, default="")
    group_instance_id: String | None = field(since=3, default=None)
    topics: Array[Topic]

    @struct
    class Topic:
        name: String = field(until=5, default="")
        topic_id: Uuid = field(since=6, default=NO_UUID)
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Int32 = field(since=2, default=-1)
            committed_metadata: String | None


@api_message(ApiKey.TXN_OFFSET_COMMIT)
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32 = 0
    topics: Array[Topic] = field(mirrors="topics")

    @struct
    class Topic:
        name: String = field(until=5, default="", mirrors="name")
        topic_id: Uuid = field(since=6, default=NO_UUID, mirrors="topic_id")
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0


@api_message(ApiKey.DESCRIBE_TRANSACTIONS)
class DescribeTransactionsRequest:
    transactional_ids: Array[String]


@api_message(ApiKey.DESCRIBE_TRANSACTIONS)
class DescribeTransactionsResponse:
    throttle_time_ms: Int32 = 0
    transaction_states: Array[TransactionState] = field(mirrors="transactional_ids")

    @struct
    class TransactionState:
        error_code: Int16 = 0
        transactional_id: String
        transaction_state: String = field(refused="")
        transaction_timeout_ms: Int32 = field(refused=0)
        transaction_start_time_ms: Int64 = field(refused=0)
        producer_id: Int64 = field(refused=0)
        producer_epoch: Int16 = field(refused=0)
        topics: Array[Topic]

        @struct
        class Topic:
            topic: String
            partitions: Array[Int32]


@api_message(ApiKey.LIST_TRANSACTIONS)
class ListTransactionsRequest:
    state_filters: Array[String]
    producer_id_filters: Array[Int64]
    duration_filter: Int64 = field(since=1, default=-1)
    transactional_id_pattern: String | None = field(since=2, default=None)


@api_message(ApiKey.LIST_TRANSACTIONS)
class ListTransactionsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: Array[String]
    transaction_states: Array[TransactionState]

    @struct
    class TransactionState:
        transactional_id: String
        producer_id: Int64
        transaction_state: String
