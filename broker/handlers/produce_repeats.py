"""The fast path of Produce: a producer's next request most often differs from an earlier one in nothing but its batch.

To read such a request and to write its answer field by field costs twice what the append itself does. So a connection
remembers the requests for a single partition that it has sent: their bytes from the client id up to the records.

    api key, version | correlation id | client id, transactional id, acks, timeout, topic, partition | records | tags
    the same         |                | the same: what a request is recognised by                    | length, batch

A request with the same bytes is appended at once, and answered with a copy of the same answer that has other numbers in
it. A request that differs in any way, or would be refused, takes the slow path (`broker.handlers.produce`) as if
nothing had been tried: only the slow path decides (docs/decisions/repeated-produce.md) (bench: produce-one-record).
"""

import struct
from collections.abc import Collection
from functools import partial
from typing import Final

from broker.handlers.partition_lookup import PartitionLookup
from broker.handlers.produce_answer import ALL_ACKS, NO_ACKS, Answer, PendingAnswer, TopicAnswer
from broker.replication.append import Publication
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.request.context import RequestContext, ServedApis
from broker.request.faults import Fault
from broker.request.permissions import Operation, Permissions, ResourceType
from broker.request.response import ResponseSlot
from protocol.api_keys import ApiKey
from protocol.headers import frame_response
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.primitives import Malformed, encode_uvarint, read_uvarint
from storage.appending import StagedAppend
from storage.batch.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    HEADER_SIZE,
    PRODUCER_ID_POSITION,
    TRANSACTIONAL_BIT,
)
from storage.errors import StorageError

MOST_REMEMBERED: Final = 256
"""Partitions of which one connection remembers a request."""

FIRST_COMPARED: Final = 8
"""Where the client id begins, behind API key, version and correlation id."""

ALL_CODECS_SINCE: Final = 7
"""Compressed batches of an earlier version, which does not know every codec, take the slow path."""

NO_TAGS: Final = b"\0\0\0"
"""What follows the records in a flexible version: the tagged fields of partition, topic and request."""

_PLACEHOLDER: Final = 0x5EED_0FF5_E700_0001
"""A base offset that occurs only once in an answer: its position is found by it."""
_THROTTLE_PLACEHOLDER: Final = 0x5EED_0007
"""The same for the throttle time."""

FLEXIBLE_SINCE: Final = 9
LOG_START_SINCE: Final = 5

# Looking up an attribute of an enumeration takes 50 ns in Python 3.11 (bench: acls).
_WRITE: Final = Operation.WRITE
_TOPIC: Final = ResourceType.TOPIC

_read_length = struct.Struct(">i").unpack_from
_read_producer = struct.Struct(">qh").unpack_from
_write_correlation_id = struct.Struct(">i").pack_into
_write_throttle_time = struct.Struct(">i").pack_into
_pack_placeholder = struct.Struct(">q").pack
_pack_throttle_placeholder = struct.Struct(">i").pack
_write_offsets = struct.Struct(">qqq").pack_into
_write_offsets_without_start = struct.Struct(">qq").pack_into


class Repeats:
    """What one connection has sent before; a `broker.request.response.Repeats`."""

    __slots__ = ("_api", "_end", "_is_flexible", "_known", "_read", "_version")

    def __init__(self, version: int, end: int) -> None:
        self._api = ApiKey.PRODUCE << 16 | version
        self._version = version
        self._is_flexible = version >= FLEXIBLE_SINCE
        self._end = end
        # API and version, correlation id, what it is recognised by, and two bytes: most often the records' length.
        self._read = struct.Struct(f">ii{end - FIRST_COMPARED}sBB").unpack_from
        self._known: dict[bytes, RepeatedProduce] = {}

    def fits(self, version: int, end: int) -> bool:
        """Whether requests of this version, with their records' length at ``end``, can be remembered here."""
        return version == self._version and end == self._end

    def add(self, prefix: bytes, repeated: "RepeatedProduce") -> None:
        """Recognise requests that begin like this."""
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[prefix] = repeated

    def close(self) -> None:
        """The connection is closed. Nothing has to be done: only the connection refers to this object."""

    def take(self, slot: ResponseSlot) -> bool:
        """Append what a request brings that is like an earlier one. False: it is not, and nothing has been done."""
        frame = slot.frame
        position = self._end
        size = len(frame)
        if size < position + HEADER_SIZE:
            return False
        api, correlation_id, prefix, first, second = self._read(frame)
        if api != self._api or (repeated := self._known.get(prefix)) is None:
            return False
        if self._is_flexible:
            if first < 0x80:
                length = first
                position += 1
            elif second < 0x80:
                # Every batch of some 120 bytes to 16 KB.
                length = first + (second - 1 << 7)
                position += 2
            else:
                try:
                    length, position = read_uvarint(frame, position)
                except Malformed:
                    return False
            end = position + length - 1
            if end + len(NO_TAGS) != size or frame[end] or frame[end + 1] or frame[end + 2]:
                return False
        else:
            (length,) = _read_length(frame, position)
            position += 4
            end = position + length
            if end != size:
                return False
        return end - position >= HEADER_SIZE and repeated.append(slot, correlation_id, frame[position:end])


class RepeatedProduce:
    """Requests of one connection for one partition: all that is the same in each of them."""

    __slots__ = (
        "_acks",
        "_apis",
        "_append",
        "_client_id",
        "_index",
        "_kind",
        "_offsets_at",
        "_partition",
        "_partitions",
        "_replicas",
        "_slow_path_kind",
        "_template",
        "_throttle_time_at",
        "_timeout_ms",
        "_topic",
        "_topic_name",
        "_transactional_id",
        "_version",
    )

    def __init__(
        self,
        request: ProduceRequest,
        context: RequestContext,
        partition: Partition,
        replicas: ReplicaManager,
        partitions: PartitionLookup,
    ) -> None:
        topic = request.topic_data[0]
        self._acks = request.acks
        self._transactional_id = request.transactional_id
        self._timeout_ms = request.timeout_ms
        self._topic = (topic.name, topic.topic_id)
        self._topic_name = partition.topic_partition.topic
        self._index = topic.partition_data[0].index
        self._version = context.api_version
        self._client_id = context.client_id
        self._apis: ServedApis = context.apis
        self._partition = partition
        self._replicas = replicas
        self._partitions = partitions
        self._append = replicas.appender.append
        self._slow_path_kind = context.slot.kind
        self._kind = None if self._slow_path_kind is None else self._slow_path_kind.without_errors()
        response, answer = self._answer()
        answer.base_offset = _PLACEHOLDER
        response.throttle_time_ms = _THROTTLE_PLACEHOLDER
        (template,) = frame_response(0, response, self._version)
        assert isinstance(template, bytearray), "an answer without records is one piece"
        self._offsets_at = template.index(_pack_placeholder(_PLACEHOLDER))
        self._throttle_time_at = template.rindex(_pack_throttle_placeholder(_THROTTLE_PLACEHOLDER))
        _write_throttle_time(template, self._throttle_time_at, 0)
        self._template = bytes(template)

    def append(self, slot: ResponseSlot, correlation_id: int, records: memoryview) -> bool:
        """Append a batch. False: the slow path must, and nothing has been done."""
        attributes = records[ATTRIBUTES_POSITION + 1]
        permissions = slot.stream.session.permissions
        if permissions is not None and not permissions.may(_WRITE, _TOPIC, self._topic_name):
            return False
        if attributes & TRANSACTIONAL_BIT and not self._continues_transaction(records, permissions):
            return False
        if attributes & CODEC_BITS and self._version < ALL_CODECS_SINCE:
            return False
        try:
            self._partition.check_append(by_all=self._acks == ALL_ACKS)
            self._append(self._partition, records, partial(self._settle, slot, correlation_id))
        except (Fault, StorageError):
            # The slow path finds the same fault, and answers it.
            return False
        slot.kind = self._kind
        return True

    def _continues_transaction(self, records: memoryview, permissions: Permissions | None) -> bool:
        """Whether the producer has a transaction open in the partition, so that nothing is to be verified, and may
        write in it."""
        transactional_id = self._transactional_id
        if transactional_id is None:
            return False
        if permissions is not None and not permissions.may(_WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return False
        producer_id, producer_epoch = _read_producer(records, PRODUCER_ID_POSITION)
        return self._partition.log.producers.has_open_transaction(producer_id, producer_epoch)

    def _settle(
        self, slot: ResponseSlot, correlation_id: int, staged: StagedAppend, outcome: Publication | StorageError | Fault
    ) -> None:
        if not isinstance(outcome, Publication):
            self._settle_on_slow_path(slot, correlation_id, staged, outcome)
        elif outcome.is_complete:
            self._respond(slot, correlation_id, staged.first_offset, staged.log_append_time_ms)
        else:
            # What waits holds no batch.
            offset, time_ms = staged.first_offset, staged.log_append_time_ms
            self._replicas.acknowledge(
                (outcome,),
                by_all=self._acks == ALL_ACKS,
                timeout_ms=self._timeout_ms,
                then=partial(self._acknowledged, slot, correlation_id, offset, time_ms, outcome),
            )

    def _acknowledged(
        self,
        slot: ResponseSlot,
        correlation_id: int,
        first_offset: int,
        log_append_time_ms: int,
        publication: Publication,
        late: Collection[Publication],
    ) -> None:
        """The batch is on all replicas and flushed as far as asked for; or it is in ``late``."""
        if not late and (self._acks != ALL_ACKS or not publication.has_too_few_replicas):
            self._respond(slot, correlation_id, first_offset, log_append_time_ms)
            return
        pending, answer = self._pending(slot, correlation_id)
        pending.settle_late(answer, publication, late, first_offset=first_offset, log_append_time_ms=log_append_time_ms)

    def _respond(self, slot: ResponseSlot, correlation_id: int, first_offset: int, log_append_time_ms: int) -> None:
        frame = bytearray(self._template)
        _write_correlation_id(frame, 4, correlation_id)
        if self._version >= LOG_START_SINCE:
            start = self._partition.log.log_start_offset
            _write_offsets(frame, self._offsets_at, first_offset, log_append_time_ms, start)
        else:
            _write_offsets_without_start(frame, self._offsets_at, first_offset, log_append_time_ms)
        throttle_time_ms = slot.stream.session.throttle_time_ms
        if throttle_time_ms:
            _write_throttle_time(frame, self._throttle_time_at, throttle_time_ms)
        slot.fill((frame,))

    def _settle_on_slow_path(
        self, slot: ResponseSlot, correlation_id: int, staged: StagedAppend, outcome: StorageError | Fault
    ) -> None:
        """The write failed."""
        pending, answer = self._pending(slot, correlation_id)
        pending.settle(answer, staged, outcome)

    def _pending(self, slot: ResponseSlot, correlation_id: int) -> tuple[PendingAnswer, Answer]:
        """The answer as the slow path writes it, and its part for the partition."""
        slot.kind = self._slow_path_kind
        context = RequestContext(self._version, correlation_id, self._client_id, slot, self._apis)
        pending = PendingAnswer(self._acks, self._timeout_ms, context, self._replicas, self._partitions)
        response, answer = self._answer()
        pending.response = response
        return pending, answer

    def _answer(self) -> tuple[ProduceResponse, Answer]:
        name, topic_id = self._topic
        answer = Answer(index=self._index, error_code=0, base_offset=-1)
        return ProduceResponse(
            responses=[TopicAnswer(name=name, topic_id=topic_id, partition_responses=[answer])]
        ), answer


def remember(
    request: ProduceRequest,
    context: RequestContext,
    partition: Partition,
    replicas: ReplicaManager,
    partitions: PartitionLookup,
) -> None:
    """Recognise the next request like this one, which has just been staged: one batch, for ``partition``."""
    records = request.topic_data[0].partition_data[0].records
    if request.acks == NO_ACKS or records is None or partition.is_internal:
        return
    frame = context.slot.frame
    version = context.api_version
    if version >= FLEXIBLE_SINCE:
        if bytes(frame[len(frame) - len(NO_TAGS) :]) != NO_TAGS:
            return
        end = len(frame) - len(NO_TAGS) - len(records) - len(encode_uvarint(len(records) + 1))
    else:
        end = len(frame) - len(records) - 4
    stream = context.slot.stream
    repeats = stream.repeats
    if repeats is None or (isinstance(repeats, Repeats) and not repeats.fits(version, end)):
        repeats = stream.repeats = Repeats(version, end)
    if isinstance(repeats, Repeats):  # a connection that has fetched first is remembered for that
        repeats.add(
            bytes(frame[FIRST_COMPARED:end]), RepeatedProduce(request, context, partition, replicas, partitions)
        )
