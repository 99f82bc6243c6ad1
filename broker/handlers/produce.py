"""Produce: append batches to partitions (API key 0; KIP-98, KIP-467, KIP-516 for topic ids)."""

from collections.abc import Collection
from functools import partial

from broker.metadata.image import MetadataImage
from broker.replication.append import Appended
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.request.context import Operation, RequestContext, Resource, ResourceType
from broker.request.faults import (
    Fault,
    InvalidProducerIdMapping,
    InvalidRequiredAcks,
    InvalidTopic,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    error_code_of,
)
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest, ProduceResponse
from storage.batch.record_batch import HEADER_SIZE, Codec, read_header
from storage.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTransactionState,
    OutOfOrderSequence,
    StorageError,
    UndecodableRecords,
    UnsupportedCompression,
)

Batch = ProduceRequest.TopicData.PartitionData
TopicAnswer = ProduceResponse.Response
Answer = ProduceResponse.Response.PartitionResponse

NO_ACKS = 0
LEADER_ACKS = 1
ALL_ACKS = -1

STORAGE_ERROR_SINCE_VERSION = 4
ZSTD_SINCE_VERSION = 7
TOPIC_IDS_SINCE_VERSION = 13

# Where a batch tells its codec and whether it belongs to a transaction; looked at before anything is validated.
ATTRIBUTES_LOW_BYTE = 22
CODEC_BITS = 0x07
TRANSACTIONAL_BIT = 0x10

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


class ProduceHandler:
    """Appends what clients send."""

    def __init__(self, replicas: ReplicaManager, image: MetadataImage) -> None:
        self._replicas = replicas
        self._image = image

    def produce(self, request: ProduceRequest, context: RequestContext) -> None:
        """Stage every partition's batch; the answer follows when all are written and acknowledged as asked."""
        under_way = _UnderWay(request, context, self._replicas)
        request_fault = _fault_of_all(request, context)
        for (name, topic_id), batches in _batches_by_topic(request).items():
            of_topic = TopicAnswer(name=name, topic_id=topic_id, partition_responses=[])
            under_way.answer.responses.append(of_topic)
            for batch in batches.values():
                of_partition = Answer(index=batch.index, error_code=0, base_offset=-1)
                of_topic.partition_responses.append(of_partition)
                partition: Partition | None = None
                try:
                    if request_fault is not None:
                        raise request_fault
                    partition = self._partition(name, topic_id, batch.index, context)
                    _check_append(partition, batch, request, context)
                    self._replicas.append(partition, batch.records, partial(under_way.settle, of_partition))
                    under_way.unsettled += 1
                except (Fault, StorageError) as error:
                    under_way.has_errors = True
                    self._refuse(of_partition, error, partition, under_way.answer, context)
        under_way.all_staged()

    def refuse(self, request: ProduceRequest, code: ErrorCode, message: str | None) -> ProduceResponse | None:
        """The answer in which every partition carries ``code``; none for acks=0."""
        if request.acks == NO_ACKS:
            return None
        return ProduceResponse(
            responses=[
                TopicAnswer(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        Answer(index=batch.index, error_code=code, base_offset=-1, error_message=message)
                        for batch in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def _partition(self, name: str, topic_id: bytes, index: int, context: RequestContext) -> Partition:
        """The partition that is meant, if the client may write to it."""
        if context.api_version >= TOPIC_IDS_SINCE_VERSION:
            topic = self._image.topics_by_id.get(topic_id)
            if topic is None:
                raise UnknownTopicId(f"no topic has the id {topic_id.hex()}")
            name = topic.name
        if not context.may(Operation.WRITE, Resource(ResourceType.TOPIC, name)):
            raise TopicAuthorizationFailed(f"{context.peer.principal} may not write to {name}")
        return self._replicas.partition(name, index)

    def _refuse(
        self,
        of_partition: Answer,
        error: Fault | StorageError,
        partition: Partition | None,
        answer: ProduceResponse,
        context: RequestContext,
    ) -> None:
        code = _code_of(error, context.api_version)
        of_partition.error_code = code
        if isinstance(error, StorageError):
            of_partition.error_message = error.message_for_client
        if isinstance(error, InvalidRecord | InvalidTimestamp):
            of_partition.record_errors = [
                Answer.RecordError(batch_index=index, batch_index_error_message=message)
                for index, message in error.record_errors
            ]
        if partition is not None and isinstance(error, _AFTER_VALIDATION):
            of_partition.log_start_offset = partition.log.log_start_offset
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition is not None:
            of_partition.current_leader = Answer.CurrentLeader(
                leader_id=partition.leader, leader_epoch=partition.leader_epoch
            )


class _UnderWay:
    """A produce request until its answer is due."""

    __slots__ = ("_appended", "_context", "_replicas", "_request", "answer", "has_errors", "unsettled")

    def __init__(self, request: ProduceRequest, context: RequestContext, replicas: ReplicaManager) -> None:
        self._request = request
        self._context = context
        self._replicas = replicas
        self._appended: list[tuple[Answer, Appended]] = []
        self.answer = ProduceResponse(responses=[])
        self.has_errors = False
        self.unsettled = 1
        """Batches staged and not yet written; and one for the staging itself."""

    def settle(self, of_partition: Answer, outcome: Appended | StorageError) -> None:
        """A staged batch is written, or could not be."""
        if isinstance(outcome, Appended):
            of_partition.base_offset = outcome.base_offset
            of_partition.log_append_time_ms = outcome.log_append_time_ms
            of_partition.log_start_offset = outcome.log_start_offset
            self._appended.append((of_partition, outcome))
        else:
            self.has_errors = True
            of_partition.error_code = _code_of(outcome, self._context.api_version)
            of_partition.error_message = outcome.message_for_client
        self.all_staged()

    def all_staged(self) -> None:
        """One thing less to wait for; after the last one comes the acknowledgement."""
        self.unsettled -= 1
        if self.unsettled:
            return
        if self._request.acks == NO_ACKS:
            if self.has_errors:
                # The producer expects no answer: a closed connection is the only sign that it gets.
                self._context.close_connection("a batch sent with acks=0 was refused")
            else:
                self._context.respond_nothing()
            return
        self._replicas.acknowledge(
            [appended for _, appended in self._appended],
            by_all=self._request.acks == ALL_ACKS,
            timeout_ms=self._request.timeout_ms,
            then=self._acknowledged,
        )

    def _acknowledged(self, late: Collection[Appended]) -> None:
        for of_partition, appended in self._appended:
            if appended in late:
                of_partition.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._context.respond(self.answer)


def _batches_by_topic(request: ProduceRequest) -> dict[tuple[str, bytes], dict[int, Batch]]:
    """What to append where. A topic named twice is one, and of two batches for a partition the later one counts."""
    merged: dict[tuple[str, bytes], dict[int, Batch]] = {}
    for topic in request.topic_data:
        batches = merged.setdefault((topic.name, topic.topic_id), {})
        for batch in topic.partition_data:
            batches[batch.index] = batch
    return merged


def _fault_of_all(request: ProduceRequest, context: RequestContext) -> Fault | None:
    """What is wrong with the request as a whole: every partition then answers the same."""
    producer_ids: set[int] | None = None
    for topic in request.topic_data:
        for batch in topic.partition_data:
            records = batch.records
            if records is not None and len(records) >= HEADER_SIZE and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
                producer_ids = producer_ids or set()
                producer_ids.add(read_header(records).producer_id)
    if producer_ids is None:
        return None
    transactional_id = request.transactional_id
    if transactional_id is None:
        return TransactionalIdAuthorizationFailed("a transactional batch in a request without a transactional id")
    if not context.may(Operation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)):
        return TransactionalIdAuthorizationFailed(f"{context.peer.principal} may not write as {transactional_id}")
    if len(producer_ids) > 1:
        return InvalidProducerIdMapping(f"transactional batches of {len(producer_ids)} producers in one request")
    return None


def _check_append(partition: Partition, batch: Batch, request: ProduceRequest, context: RequestContext) -> None:
    """Everything that can be said before the records themselves are looked at."""
    _check_batch(batch, context.api_version)
    if request.acks not in (NO_ACKS, LEADER_ACKS, ALL_ACKS):
        raise InvalidRequiredAcks(f"acks={request.acks}; it is 0, 1 or -1")
    if partition.is_internal and context.client_id != ADMIN_CLIENT_ID:
        raise InvalidTopic(f"{partition.topic_partition.topic} is internal: clients do not write to it")
    partition.check_leadership()
    if request.acks == ALL_ACKS:
        partition.check_in_sync()


def _code_of(error: Fault | StorageError, version: int) -> ErrorCode:
    """The code of an error as this version of the API knows it."""
    code = error_code_of(error)
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE_VERSION:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code


def _check_batch(batch: Batch, version: int) -> None:
    """What the version of the request says about the batch, before its contents are looked at."""
    records = batch.records
    if records is None or len(records) < HEADER_SIZE:
        return  # validation has the word for it
    attributes = records[ATTRIBUTES_LOW_BYTE]
    if attributes & CODEC_BITS == Codec.ZSTD and version < ZSTD_SINCE_VERSION:
        raise UnsupportedCompression(f"zstd in a produce request of version {version}; it came with version 7")
    if attributes & TRANSACTIONAL_BIT:
        raise InvalidTransactionState("there are no transactions on this broker yet")
