"""TxnOffsetCommit: a producer commits how far a group has read, in its transaction (API key 28; KIP-98, KIP-890)."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from broker.coordinators.group.requests import Commit, OffsetToCommit
from broker.coordinators.group_coordinator import Groups
from broker.coordinators.result import ProducerIdAndEpoch
from broker.coordinators.transaction.verification import PartitionVerifier, Verified
from broker.handlers.offset_topics import OffsetTopics, PartitionErrors, TopicKey
from broker.handlers.verification_guard import VerificationGuard
from broker.metadata.cache import MetadataCache
from broker.metadata.topic_rules import CONSUMER_OFFSETS
from broker.replication.partition import Partition
from broker.request.code_versions import known_code
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    CoordinatorNotAvailable,
    Fault,
    GroupAuthorizationFailed,
    InvalidGroupId,
    TransactionalIdAuthorizationFailed,
    error_code_of,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.coordinators.group.shard import GroupShard
    from broker.coordinators.runtime import Coordinator

ADDS_SINCE_VERSION: Final = 5
"""The group's partition is added to the transaction, and the client sends no AddOffsetsToTxn before."""

TOPIC_IDS_SINCE_VERSION: Final = 6

GROUP_ID_NOT_FOUND_SINCE_VERSION: Final = 6
"""Before, a generation of no group is an illegal one."""


_TOLD: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    # This broker has not led the group's partition without a break: the client looks for the group's coordinator.
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
}


class TxnOffsetCommitHandler:
    """Asks the transaction's coordinator whether the group's partition is in the transaction, and then the group's."""

    def __init__(
        self,
        groups: Groups,
        verifier: PartitionVerifier,
        metadata: MetadataCache,
        *,
        is_verification_enabled: Callable[[], bool],
    ) -> None:
        """``is_verification_enabled``: `transaction.partition.verification.enable`, for requests of older clients."""
        self._groups = groups
        self._verifier = verifier
        self._metadata = metadata
        self._topics = OffsetTopics(metadata)
        self._is_verification_enabled = is_verification_enabled

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> TxnOffsetCommitResponse | None:
        """Commit the offsets of partitions that exist; the others have their errors beside them. Raises
        `TransactionalIdAuthorizationFailed`, `GroupAuthorizationFailed`."""
        principal = context.session.principal
        if not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            raise TransactionalIdAuthorizationFailed(f"{principal} may not write as {request.transactional_id!r}")
        if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
            raise GroupAuthorizationFailed(f"{principal} may not read as group {request.group_id!r}")
        version = context.api_version
        by_topic = self._topics.split(request.topics, context, by_id=version >= TOPIC_IDS_SINCE_VERSION)
        offsets = by_topic.offsets
        if not offsets:
            return _answer(by_topic.refused.items())

        def committed(codes: Sequence[ErrorCode]) -> None:
            context.respond(
                _answer(by_topic.merge(known_code(code, ApiKey.TXN_OFFSET_COMMIT, version) for code in codes))
            )

        def verified(codes: Sequence[ErrorCode]) -> None:
            code = _code_of_verification(codes[0])
            if code is ErrorCode.NONE:
                self._commit(request, offsets, version, committed)
            else:
                committed([code] * len(offsets))

        try:
            if not request.group_id:
                raise InvalidGroupId("a group has a name")
            partition = self._coordinator(request.group_id).partition
        except Fault as fault:
            committed([fault.code] * len(offsets))
        else:
            self._verify(request, partition, version, verified)
        return None

    def _verify(self, request: TxnOffsetCommitRequest, partition: Partition, version: int, then: Verified) -> None:
        """Ask whether the group's partition is in the producer's transaction, or have it added. An open transaction of
        the producer in the partition was verified when it began."""
        producer = request.producer_id, request.producer_epoch
        if partition.log.producers.has_open_transaction(*producer):
            then([ErrorCode.NONE])
        elif version >= ADDS_SINCE_VERSION:
            self._verifier.add(request.transactional_id, *producer, [partition.topic_partition], then)
        elif self._is_verification_enabled():
            then = _guarded(VerificationGuard(partition, *producer), then)
            self._verifier.verify(request.transactional_id, *producer, [partition.topic_partition], then)
        else:
            then([_code_of_unverified(*producer)])

    def _commit(
        self,
        request: TxnOffsetCommitRequest,
        offsets: Sequence[OffsetToCommit],
        version: int,
        reply: Callable[[Sequence[ErrorCode]], None],
    ) -> None:
        """Commit the offsets, in the turn in which the partition was verified: no marker can come in between."""
        try:
            # Found anew: this node may have stopped coordinating the group while the partition was being added.
            coordinator = self._coordinator(request.group_id)
        except Fault as fault:
            reply([fault.code] * len(offsets))
            return
        commit = Commit(
            group_id=request.group_id,
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            offsets=offsets,
            unknown_group_error=(
                ErrorCode.GROUP_ID_NOT_FOUND
                if version >= GROUP_ID_NOT_FOUND_SINCE_VERSION
                else ErrorCode.ILLEGAL_GENERATION
            ),
            transaction=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        )
        coordinator.write(coordinator.shard.commit(commit, reply))

    def _coordinator(self, group_id: str) -> "Coordinator[GroupShard]":
        if CONSUMER_OFFSETS not in self._metadata.image.topics.by_name:
            # As Kafka answers it; with the topic it is the runtime that knows.
            raise CoordinatorNotAvailable(f"there is no {CONSUMER_OFFSETS}")
        return self._groups.of(group_id)


def _guarded(guard: VerificationGuard, then: Verified) -> Verified:
    """``then``, called with an error if the coordinator's consent does not hold any more."""

    def answered(codes: Sequence[ErrorCode]) -> None:
        if codes[0] is ErrorCode.NONE:
            try:
                guard.check()
            except (Fault, StorageError) as error:
                codes = [error_code_of(error)]
        then(codes)

    return answered


def _code_of_verification(code: ErrorCode) -> ErrorCode:
    """The code for the client, which knows the group's coordinator only. NOT_COORDINATOR would make it look for that:
    the coordinator of the transaction has moved. NETWORK_EXCEPTION, which older clients do not retry, is told as a
    coordinator that loads, as in Kafka."""
    return _TOLD.get(code, code)


def _code_of_unverified(producer_id: int, producer_epoch: int) -> ErrorCode:
    """Without verification only what is no producer at all is refused."""
    if producer_id < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if producer_epoch >= 0 else ErrorCode.INVALID_PRODUCER_EPOCH


def _answer(topics: Iterable[tuple[TopicKey, PartitionErrors]]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.Topic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    TxnOffsetCommitResponse.Topic.Partition(partition_index=index, error_code=code)
                    for index, code in errors
                ],
            )
            for (name, topic_id), errors in topics
        ]
    )
