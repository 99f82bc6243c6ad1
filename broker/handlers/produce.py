"""Produce: append batches to partitions (API key 0; KIP-98, KIP-467, KIP-516 for topic ids)."""

import logging
from collections.abc import Collection, Iterable
from functools import partial

from broker.handlers.partition_lookup import PartitionLookup
from broker.handlers.produce_answer import ALL_ACKS, NO_ACKS, Answer, PendingAnswer, TopicAnswer, code_of
from broker.handlers.produce_repeats import remember
from broker.handlers.produce_verification import PartitionNotVerified, TransactionalBatch, Verification
from broker.metadata.cache import MetadataCache
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    Fault,
    InvalidRequiredAcks,
    InvalidTopic,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from broker.runtime.counted import counted
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest
from storage.batch.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    Codec,
    read_header,
)
from storage.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTransactionState,
    LogDirFailed,
    NotOneBatch,
    OutOfOrderSequence,
    StorageError,
    UndecodableRecords,
    UnsupportedCompression,
)

log = logging.getLogger(__name__)

Topic = ProduceRequest.TopicData
Batch = ProduceRequest.TopicData.PartitionData
ACKS = (ALL_ACKS, 1, NO_ACKS)

ZSTD_SINCE_VERSION = 7
TOPIC_IDS_SINCE_VERSION = 13

ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that may write to internal topics."""

_AFTER_VALIDATION = (
    InvalidRecord,
    InvalidTimestamp,
    OutOfOrderSequence,
    InvalidProducerEpoch,
    InvalidTransactionState,
    UndecodableRecords,
)
"""Faults that Kafka finds once it has the log in hand; their answers carry the log start offset."""

_MISTAKES = (StorageError, InvalidRequiredAcks, InvalidTopic, PartitionNotVerified)
"""What a producer gets wrong by itself and a line in the log helps to find; topics come and go without one."""


class ProduceHandler:
    """Appends what clients send."""

    def __init__(
        self,
        replicas: ReplicaManager,
        partitions: PartitionLookup,
        metadata: MetadataCache,
        verification: Verification,
    ) -> None:
        self._replicas = replicas
        self._partitions = partitions
        self._append = replicas.appender.append
        self._metadata = metadata
        self._verification = verification

    def produce(self, request: ProduceRequest, context: RequestContext) -> None:
        """Stage every partition's batch; the answer follows when all are written and acknowledged as asked."""
        pending = PendingAnswer(request.acks, request.timeout_ms, context, self._replicas, self._partitions)
        producers = _transactional_producers(request)
        request_fault = _fault_of_all(request, producers, context) if producers is not None else None
        partition: Partition | None = None
        refused: list[tuple[Topic, Batch, str]] = []
        in_transaction: list[TransactionalBatch] = []
        for topic in _each_once(request.topic_data):
            answers: list[Answer] = []
            pending.response.responses.append(
                TopicAnswer(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
            for batch in topic.partition_data:
                answer = Answer(index=batch.index, error_code=0, base_offset=-1)
                answers.append(answer)
                partition = None
                if request_fault is not None:
                    # Not raised: its traceback would hold this frame, and this frame the request and it.
                    pending.has_errors = True
                    _refuse(answer, request_fault, None, context.api_version)
                    continue
                try:
                    partition = self._partition(topic, batch.index, context)
                    _check(partition, batch, request, context)
                    if producers and _is_in_transaction(batch):
                        in_transaction.append(self._transactional(partition, topic, batch, answer, request, pending))
                    else:
                        self._append(partition, batch.records, partial(pending.settle, answer))
                    pending.unsettled += 1
                except Exception as error:  # noqa: BLE001 - the faults table logs what it does not know
                    pending.has_errors = True
                    if partition is not None:
                        self._replicas.refused(partition, len(batch.records or b""), error)
                    if isinstance(error, _MISTAKES) and not isinstance(error, LogDirFailed):
                        # Not the error itself: its traceback would keep whatever was opened for it.
                        refused.append((topic, batch, str(error)))
                    _refuse(answer, error, partition, context.api_version)
        if in_transaction:
            assert request.transactional_id is not None
            self._verification.admit(request.transactional_id, context.api_version, in_transaction)
        if partition is not None and not pending.has_errors and _is_single(request.topic_data):
            remember(request, context, partition, self._replicas, self._partitions)
        if refused:
            _log_refusal(refused, context)
        pending.settle_one()

    def _transactional(
        self,
        partition: Partition,
        topic: Topic,
        batch: Batch,
        answer: Answer,
        request: ProduceRequest,
        pending: PendingAnswer,
    ) -> TransactionalBatch:
        """A batch that is appended or refused once it is known whether its partition is in the transaction."""

        def append() -> None:
            try:
                partition.check_append(by_all=request.acks == ALL_ACKS)
                self._append(partition, batch.records, partial(pending.settle, answer))
            except Exception as error:  # noqa: BLE001 - as in `produce`
                refuse(error)
            else:
                self._replicas.appender.write_soon()  # the turn of the request's handler may be over

        def refuse(error: Exception) -> None:
            # Kafka counts a batch only once it may be appended.
            if not isinstance(error, PartitionNotVerified):
                self._replicas.refused(partition, len(batch.records or b""), error)
            if not isinstance(error, LogDirFailed):
                _log_refusal([(topic, batch, str(error))], pending.context)
            _refuse(answer, error, partition, pending.context.api_version)
            pending.has_errors = True
            pending.settle_one()

        assert batch.records is not None
        return TransactionalBatch(partition, read_header(batch.records), append, refuse)

    def _partition(self, topic: Topic, index: int, context: RequestContext) -> Partition:
        """The partition that is meant, if the client may write to it."""
        name = topic.name
        if context.api_version >= TOPIC_IDS_SINCE_VERSION:
            name = self._metadata.image.topics.of_id(topic.topic_id).name
        if not context.may(Operation.WRITE, ResourceType.TOPIC, name):
            raise TopicAuthorizationFailed(f"{context.session.principal} may not write to {name}")
        return self._partitions.partition(name, index)


def _is_single(topics: list[Topic]) -> bool:
    """Whether there is one batch in all."""
    return len(topics) == 1 and len(topics[0].partition_data) == 1


def _each_once(topics: list[Topic]) -> Iterable[Topic]:
    """A topic named twice is one, and of two batches for a partition the later one counts."""
    if _is_single(topics):
        return topics
    merged: dict[tuple[str, bytes], dict[int, Batch]] = {}
    for topic in topics:
        batches = merged.setdefault((topic.name, topic.topic_id), {})
        for batch in topic.partition_data:
            batches[batch.index] = batch
    return [
        Topic(name=name, topic_id=topic_id, partition_data=list(batches.values()))
        for (name, topic_id), batches in merged.items()
        if batches
    ]


def _is_in_transaction(batch: Batch) -> bool:
    """Whether the batch is part of a transaction. A batch without a producer id opens none, whatever its bit says; of
    anything but one whole batch the validation says what is wrong."""
    records = batch.records
    if records is None or len(records) < HEADER_SIZE or not records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT:
        return False
    header = read_header(records)
    return header.has_producer_id and header.size == len(records)


def _transactional_producers(request: ProduceRequest) -> set[tuple[int, int]] | None:
    """The producer ids and epochs of the request's transactional batches; None without such batches."""
    producers: set[tuple[int, int]] | None = None
    for topic in request.topic_data:
        for batch in topic.partition_data:
            records = batch.records
            if (
                records is not None
                and len(records) >= HEADER_SIZE
                and records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT
            ):
                header = read_header(records)
                producers = producers or set()
                if header.has_producer_id:
                    producers.add((header.producer_id, header.producer_epoch))
    return producers


def _fault_of_all(
    request: ProduceRequest, producers: Collection[tuple[int, int]], context: RequestContext
) -> Fault | None:
    """What is wrong with a request that has transactional batches: every partition then answers the same."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        return TransactionalIdAuthorizationFailed("a transactional batch in a request without a transactional id")
    if not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return TransactionalIdAuthorizationFailed(f"{context.session.principal} may not write as {transactional_id}")
    if len(producers) > 1:
        return PartitionNotVerified(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"transactional batches of {len(producers)} producers in one request",
            "Transactional records contained more than one producer ID",
        )
    return None


def _check(partition: Partition, batch: Batch, request: ProduceRequest, context: RequestContext) -> None:
    """Everything that can be said before the records themselves are looked at."""
    records = batch.records
    if records is not None and len(records) >= HEADER_SIZE:  # else validation has the word for it
        attributes = records[ATTRIBUTES_POSITION + 1]
        if attributes & CODEC_BITS == Codec.ZSTD and context.api_version < ZSTD_SINCE_VERSION:
            raise UnsupportedCompression("zstd came with version 7 of Produce")
    acks = request.acks
    if acks not in ACKS:
        raise InvalidRequiredAcks(f"acks={acks}; it is 0, 1 or -1")
    if partition.is_internal and context.client_id != ADMIN_CLIENT_ID:
        raise InvalidTopic(f"{partition.topic_partition.topic} is internal: clients do not write to it")
    partition.check_append(by_all=acks == ALL_ACKS)


def _log_refusal(refused: list[tuple[Topic, Batch, str]], context: RequestContext) -> None:
    """One line for a request, whatever it holds."""
    topic, batch, reason = refused[0]
    log.info(
        "Refused %s from %s (client id %s), the first of %d bytes for %s-%d: %s",
        counted(len(refused), "batch"),
        context.peer,
        context.client_id,
        len(batch.records or b""),
        topic.name or topic.topic_id.hex(),
        batch.index,
        reason,
    )


def _refuse(answer: Answer, error: Exception, partition: Partition | None, version: int) -> None:
    """Put into an answer why its batch was not appended."""
    answer.error_code = code_of(error, version)
    if isinstance(error, StorageError | PartitionNotVerified):
        answer.error_message = error.message_for_client
    if isinstance(error, InvalidRecord | InvalidTimestamp):
        answer.record_errors = [
            Answer.RecordError(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]
    if partition is not None and isinstance(error, _AFTER_VALIDATION) and not isinstance(error, NotOneBatch):
        answer.log_start_offset = partition.log.log_start_offset
