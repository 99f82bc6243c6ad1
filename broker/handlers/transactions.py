"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and WriteTxnMarkers (API keys 24 to 27; KIP-98, KIP-890)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from broker.coordinators.group_coordinator import Groups
from broker.coordinators.marker_appender import MarkerAppender
from broker.coordinators.partitioning import partition_of
from broker.coordinators.result import ProducerIdAndEpoch
from broker.coordinators.transaction.requests import BUMPS_EPOCH_SINCE, AddPartitions, EndTransaction
from broker.coordinators.transaction_coordinator import TransactionCoordinator
from broker.handlers.transactional_ids import check_not_empty, check_transactional_id
from broker.metadata.cache import MetadataCache
from broker.metadata.topic_rules import CONSUMER_OFFSETS, INTERNAL_TOPICS
from broker.replication.transaction_marker import TransactionMarker
from broker.request.code_versions import known_code
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    ClusterAuthorizationFailed,
    Fault,
    GroupAuthorizationFailed,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from storage.topic_partition import TopicPartition

MANY_TRANSACTIONS_SINCE_VERSION: Final = 4
"""Of AddPartitionsToTxn; such requests come from brokers, and from clients of transaction version 2 never."""

BUMPS_EPOCH_SINCE_VERSION: Final = 5
"""Of EndTxn: the answer has the identity that the producer goes on with."""

_NOT_LED_HERE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
"""What the coordinator of a group's partition says to a marker. Other coordinators of transactions know no such answer
to WriteTxnMarkers (Kafka's would end its process); they look for the partition's leader anew."""

PartitionCodes = Callable[[Sequence[ErrorCode]], None]


class TransactionsHandler:
    """Asks the coordinator of the transactional id."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        groups: Groups,
        markers: MarkerAppender,
        metadata: MetadataCache,
    ) -> None:
        self._coordinator = coordinator
        self._groups = groups
        self._markers = markers
        self._metadata = metadata

    # Of producers

    def add_partitions_to_txn(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> None:
        """Add partitions to a transaction, or say whether they are in it; to several transactions since version 4."""
        if context.api_version < MANY_TRANSACTIONS_SINCE_VERSION:
            transactional_id = request.v3_and_below_transactional_id
            producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
            topics = request.v3_and_below_topics

            def answer(codes: Sequence[ErrorCode]) -> None:
                told = (known_code(code, ApiKey.ADD_PARTITIONS_TO_TXN, context.api_version) for code in codes)
                context.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topic_results(topics, told)))

            if context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
                self._add_checked(transactional_id, producer, topics, context, self._add, answer)
            else:
                answer([ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * sum(len(one.partitions) for one in topics))
            return
        if not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            context.respond(AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            return
        results: dict[int, AddPartitionsToTxnResponse.ResultsByTransaction] = {}
        unsupported: list[str] = []

        def answered(
            number: int, transaction: AddPartitionsToTxnRequest.Transaction, codes: Sequence[ErrorCode]
        ) -> None:
            if ErrorCode.UNSUPPORTED_VERSION in codes:
                # Records of transaction.version 0 have no place for it; Kafka says it of the request as a whole.
                unsupported.append(transaction.transactional_id)
            results[number] = AddPartitionsToTxnResponse.ResultsByTransaction(
                transactional_id=transaction.transactional_id,
                topic_results=_topic_results(transaction.topics, codes),
            )
            if len(results) == len(request.transactions):
                in_order = [results[number] for number in range(len(results))]
                context.respond(
                    AddPartitionsToTxnResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
                    if unsupported
                    else AddPartitionsToTxnResponse(results_by_transaction=in_order)
                )

        if not request.transactions:
            context.respond(AddPartitionsToTxnResponse())
        for number, transaction in enumerate(request.transactions):
            if transaction.verify_only:
                transaction.topics = _each_once(transaction.topics)
            self._add_checked(
                transaction.transactional_id,
                ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch),
                transaction.topics,
                context,
                self._verify if transaction.verify_only else partial(self._add, client_version=BUMPS_EPOCH_SINCE),
                partial(answered, number, transaction),
            )

    def _add_checked(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topics: Sequence[AddPartitionsToTxnTopic],
        context: RequestContext,
        add: Callable[[AddPartitions, PartitionCodes], None],
        answer: PartitionCodes,
    ) -> None:
        """Answer with a code for each partition; where one of them does not exist, nothing is attempted."""
        partitions = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
        refused = {one: code for one in partitions if (code := self._why_not(one, context)) is not ErrorCode.NONE}
        if refused:
            answer([refused.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED) for one in partitions])
            return
        try:
            check_not_empty(transactional_id)
            add(AddPartitions(transactional_id, producer, partitions), answer)
        except Fault as fault:
            answer([fault.code] * len(partitions))

    def _why_not(self, partition: TopicPartition, context: RequestContext) -> ErrorCode:
        """Why a partition can be in no transaction of this client; NONE if it can. Brokers name internal topics too."""
        if context.api_version < MANY_TRANSACTIONS_SINCE_VERSION and (
            partition.topic in INTERNAL_TOPICS or not context.may(Operation.WRITE, ResourceType.TOPIC, partition.topic)
        ):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if self._metadata.image.topics.partition(*partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _add(self, request: AddPartitions, answer: PartitionCodes, client_version: int = 0) -> None:
        self._coordinator.add_partitions(request._replace(client_version=client_version), answer)

    def _verify(self, request: AddPartitions, answer: PartitionCodes) -> None:
        shard = self._coordinator.transactions.of(request.transactional_id).shard
        answer(shard.verify_partitions(request))

    def add_offsets_to_txn(self, request: AddOffsetsToTxnRequest, context: RequestContext) -> None:
        """Add the partition of a group's offsets to a transaction. Raises Fault."""
        check_transactional_id(request.transactional_id, context)
        if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
            raise GroupAuthorizationFailed(f"{context.session.principal} may not read as group {request.group_id!r}")
        partition = TopicPartition(CONSUMER_OFFSETS, partition_of(request.group_id, self._groups.partitions))

        def answer(codes: Sequence[ErrorCode]) -> None:
            context.respond(
                AddOffsetsToTxnResponse(error_code=known_code(codes[0], ApiKey.ADD_OFFSETS_TO_TXN, context.api_version))
            )

        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        self._coordinator.add_partitions(AddPartitions(request.transactional_id, producer, [partition]), answer)

    def end_txn(self, request: EndTxnRequest, context: RequestContext) -> None:
        """Commit or abort a transaction: the answer comes when the end is decided, before the markers. Raises Fault."""
        check_transactional_id(request.transactional_id, context)

        def answer(code: ErrorCode, identity: ProducerIdAndEpoch) -> None:
            context.respond(
                EndTxnResponse(
                    error_code=known_code(code, ApiKey.END_TXN, context.api_version),
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                )
            )

        self._coordinator.end(
            EndTransaction(
                request.transactional_id,
                ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
                request.committed,
                BUMPS_EPOCH_SINCE if context.api_version >= BUMPS_EPOCH_SINCE_VERSION else 0,
            ),
            answer,
        )

    # Of coordinators, and of administrators who end what hangs

    def write_txn_markers(
        self, request: WriteTxnMarkersRequest, context: RequestContext
    ) -> WriteTxnMarkersResponse | None:
        """Write markers into partitions of this node. The answer has a code for each partition, and markers of the same
        producer together; if one marker makes no sense, none is written."""
        if not (
            context.sees(Operation.ALTER, ResourceType.CLUSTER)
            or context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        ):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not act for the cluster")
        wanted = [
            (marker, TopicPartition(topic.name, index))
            for marker in request.markers
            for topic in marker.topics
            for index in dict.fromkeys(topic.partition_indexes)
        ]
        codes: dict[int, dict[TopicPartition, ErrorCode]] = {marker.producer_id: {} for marker, _ in wanted}
        if not all(_is_possible(marker) for marker in request.markers):
            for marker, partition in wanted:
                codes[marker.producer_id][partition] = ErrorCode.UNKNOWN_SERVER_ERROR
            return _marker_results(codes)
        if not wanted:
            return _marker_results(codes)
        left = len(wanted)

        def written(of_producer: dict[TopicPartition, ErrorCode], partition: TopicPartition, code: ErrorCode) -> None:
            nonlocal left
            if code in _NOT_LED_HERE:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if of_producer.get(partition, ErrorCode.NONE) is ErrorCode.NONE:
                of_producer[partition] = code
            left -= 1
            if not left:
                context.respond(_marker_results(codes))

        for marker, partition in wanted:
            self._markers.append(
                partition.topic,
                partition.partition,
                TransactionMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    is_commit=marker.transaction_result,
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                ),
                partial(written, codes[marker.producer_id], partition),
            )
        return None


def _each_once(topics: Sequence[AddPartitionsToTxnTopic]) -> list[AddPartitionsToTxnTopic]:
    """The same topics and partitions, each once."""
    partitions: dict[str, dict[int, None]] = {}
    for topic in topics:
        partitions.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    return [AddPartitionsToTxnTopic(name=name, partitions=list(indexes)) for name, indexes in partitions.items()]


def _topic_results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: Iterable[ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    in_order = iter(codes)
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=next(in_order))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _is_possible(marker: WriteTxnMarkersRequest.Marker) -> bool:
    """Whether there can be such a producer and such a version."""
    return marker.producer_id >= 0 and marker.producer_epoch >= 0 and marker.transaction_version >= 0


def _marker_results(codes: Mapping[int, Mapping[TopicPartition, ErrorCode]]) -> WriteTxnMarkersResponse:
    result = WriteTxnMarkersResponse.Marker
    markers = []
    for producer_id, of_producer in codes.items():
        topics: dict[str, list[WriteTxnMarkersResponse.Marker.Topic.Partition]] = {}
        for (topic, index), code in of_producer.items():
            topics.setdefault(topic, []).append(result.Topic.Partition(partition_index=index, error_code=code))
        markers.append(
            result(
                producer_id=producer_id,
                topics=[result.Topic(name=name, partitions=partitions) for name, partitions in topics.items()],
            )
        )
    return WriteTxnMarkersResponse(markers=markers)
