"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit, DescribeTransactions and
ListTransactions (API keys 24 to 28, 65 and 66; KIP-98, KIP-664), as a Kafka answers them for transactional ids that no
producer has: there are no transactions on this broker yet."""

import re
from collections.abc import Sequence
from typing import Final

from broker.coordinators.group_coordinator import Groups
from broker.coordinators.partitioning import partition_of
from broker.metadata.cache import MetadataCache
from broker.metadata.topic_rules import TRANSACTION_STATE
from broker.replication.replica_manager import ReplicaManager
from broker.request.context import RequestContext
from broker.request.faults import (
    CoordinatorNotAvailable,
    Fault,
    InvalidGroupId,
    InvalidProducerIdMapping,
    InvalidRegularExpression,
    InvalidRequest,
    NotCoordinator,
)
from protocol.errors import ErrorCode
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.refusals import refusal

MANY_TRANSACTIONS_SINCE_VERSION: Final = 4
"""Of AddPartitionsToTxn."""

TOPIC_IDS_SINCE_VERSION: Final = 6
"""Of TxnOffsetCommit."""

MOST_PATTERN_CHARACTERS: Final = 1_000

STATES: Final = frozenset(
    {
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Empty",
        "PrepareEpochFence",
        "Dead",
    }
)
"""Of transactions, as Kafka calls them."""


class TransactionsHandler:
    """Knows where the transactions of an id would be kept, and that there are none."""

    def __init__(self, groups: Groups, replicas: ReplicaManager, metadata: MetadataCache) -> None:
        self._groups = groups
        self._replicas = replicas
        self._metadata = metadata

    # Of producers

    def add_partitions_to_txn(
        self, request: AddPartitionsToTxnRequest, context: RequestContext
    ) -> AddPartitionsToTxnResponse:
        """Say of every partition why it is in no transaction."""
        if context.api_version < MANY_TRANSACTIONS_SINCE_VERSION:
            transactional_id = request.v3_and_below_transactional_id
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=self._not_added(transactional_id, request.v3_and_below_topics)
            )
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResponse.ResultsByTransaction(
                    transactional_id=transaction.transactional_id,
                    topic_results=self._not_added(transaction.transactional_id, transaction.topics),
                )
                for transaction in request.transactions
            ]
        )

    def add_offsets_to_txn(self, request: AddOffsetsToTxnRequest, context: RequestContext) -> None:
        """Raises `InvalidRequest`, `NotCoordinator`, `InvalidProducerIdMapping`."""
        raise self._no_producer(request.transactional_id)

    def end_txn(self, request: EndTxnRequest, context: RequestContext) -> None:
        """Raises `InvalidRequest`, `NotCoordinator`, `InvalidProducerIdMapping`."""
        raise self._no_producer(request.transactional_id)

    def txn_offset_commit(self, request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
        """Say of every partition why its offset is not committed."""
        refused: TxnOffsetCommitResponse = refusal(TxnOffsetCommitRequest)(
            request, context.api_version, self._why_not_committed(request).code, None
        )
        topics = self._metadata.image.topics
        for topic in refused.topics:
            by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
            known = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name)
            for partition in topic.partitions:
                if known is None and by_id:
                    partition.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                elif known is None or known.partition(partition.partition_index) is None:
                    partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused

    # Of coordinators, and of administrators who end what hangs

    def write_txn_markers(self, request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
        """Say of every partition that no transaction is ended in it."""
        refused: WriteTxnMarkersResponse = refusal(WriteTxnMarkersRequest)(
            request, context.api_version, ErrorCode.INVALID_TXN_STATE, None
        )
        refused.markers = [marker for marker in refused.markers if marker.topics]
        for marker in refused.markers:
            for topic in marker.topics:
                for partition in topic.partitions:
                    if not self._is_there(topic.name, partition.partition_index):
                        partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused

    # Of administrators

    def describe_transactions(
        self, request: DescribeTransactionsRequest, context: RequestContext
    ) -> DescribeTransactionsResponse:
        """Say of every id that it has no transaction."""
        answer: DescribeTransactionsResponse = refusal(DescribeTransactionsRequest)(
            request, context.api_version, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        )
        for state in answer.transaction_states:
            try:
                self._check_coordinator(state.transactional_id)
            except Fault as fault:
                state.error_code = fault.code
        return answer

    def list_transactions(self, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
        """List none, and the names of states that are none. Raises `InvalidRegularExpression`,
        `CoordinatorNotAvailable`."""
        _check_pattern(request.transactional_id_pattern or "")
        topic = self._metadata.image.topics.by_name.get(TRANSACTION_STATE)
        for partition in topic.partitions if topic is not None else ():
            if self._keeps_anything(partition.index):
                raise CoordinatorNotAvailable(
                    f"what partition {partition.index} of {TRANSACTION_STATE} has is not read"
                )
        unknown = dict.fromkeys(state for state in request.state_filters if state not in STATES)
        return ListTransactionsResponse(unknown_state_filters=list(unknown), transaction_states=[])

    # Parts

    def _not_added(
        self, transactional_id: str, topics: Sequence[AddPartitionsToTxnTopic]
    ) -> list[AddPartitionsToTxnTopicResult]:
        code = self._no_producer(transactional_id).code
        if not all(self._is_there(topic.name, index) for topic in topics for index in topic.partitions):
            code = ErrorCode.OPERATION_NOT_ATTEMPTED
        return [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=(
                            code if self._is_there(topic.name, index) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]

    def _no_producer(self, transactional_id: str) -> Fault:
        """Why nothing can be done for a producer of this transactional id."""
        try:
            self._check_coordinator(transactional_id)
        except Fault as fault:
            return fault
        return InvalidProducerIdMapping(f"no producer has the transactional id {transactional_id!r}")

    def _why_not_committed(self, request: TxnOffsetCommitRequest) -> Fault:
        """Why no offset of the request is committed; the group's coordinator has the first word, as in Kafka."""
        if not request.group_id:
            return InvalidGroupId("a group has a name")
        try:
            self._groups.of(request.group_id)
        except Fault as fault:
            return CoordinatorNotAvailable(str(fault))
        why = self._no_producer(request.transactional_id)
        return CoordinatorNotAvailable(str(why)) if isinstance(why, NotCoordinator) else why

    def _check_coordinator(self, transactional_id: str) -> None:
        """Raises `InvalidRequest` for an empty id, and `NotCoordinator` unless it is certain that the id has no
        transaction: the partition that would know of it is here, and nothing was ever written into it."""
        if not transactional_id:
            raise InvalidRequest("a transactional id is not empty")
        topic = self._metadata.image.topics.by_name.get(TRANSACTION_STATE)
        if topic is None:
            raise NotCoordinator(f"there is no {TRANSACTION_STATE}")
        index = partition_of(transactional_id, len(topic.partitions))
        partition = self._replicas.find(TRANSACTION_STATE, index)
        if partition is None or not partition.is_leader:
            raise NotCoordinator(f"partition {index} of {TRANSACTION_STATE} is not led here")
        if self._keeps_anything(index):
            raise NotCoordinator(f"partition {index} of {TRANSACTION_STATE} is not read here")

    def _keeps_anything(self, index: int) -> bool:
        """Whether a Kafka has written into this partition of ``__transaction_state`` before."""
        partition = self._replicas.find(TRANSACTION_STATE, index)
        return partition is not None and partition.log.log_end_offset > 0

    def _is_there(self, topic: str, index: int) -> bool:
        known = self._metadata.image.topics.by_name.get(topic)
        return known is not None and known.partition(index) is not None


def _check_pattern(pattern: str) -> None:
    """Raises `InvalidRegularExpression`. One that is very long is not looked at: nothing is searched for it."""
    if len(pattern) <= MOST_PATTERN_CHARACTERS:
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidRegularExpression(f"{pattern!r}: {error}") from None
