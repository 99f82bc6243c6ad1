"""InitProducerId: an identity for an idempotent or transactional producer (API key 22; KIP-98, KIP-360)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.coordinators.result import FIRST_EPOCH, ProducerIdAndEpoch
from broker.metadata.producer_ids import ProducerIds
from broker.request.code_versions import known_code
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed, InvalidRequest, error_code_of
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from storage.sentinels import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from broker.coordinators.transaction_coordinator import TransactionCoordinator


class InitProducerIdHandler:
    """Hands out producer ids, and asks the coordinator of a transactional id."""

    def __init__(self, producer_ids: ProducerIds, coordinator: Callable[[], TransactionCoordinator]) -> None:
        """``coordinator`` is called with the first transactional id."""
        self._producer_ids = producer_ids
        self._coordinator = coordinator

    def init_producer_id(self, request: InitProducerIdRequest, context: RequestContext) -> None:
        """Answer with a producer id that no producer has had, once its block is durable; for a transactional id with
        the id and the next epoch. Raises Fault."""
        if request.transactional_id == "":
            raise InvalidRequest("a transactional id is not empty")
        has_id = request.producer_id != NO_PRODUCER_ID
        if has_id != (request.producer_epoch != NO_PRODUCER_EPOCH):
            raise InvalidRequest("a producer id and its epoch come together")
        if request.transactional_id is None:
            self._init_idempotent(request, context)
            return
        # Idempotent producers need neither.
        from broker.coordinators.transaction.requests import InitProducer
        from broker.handlers.transactional_ids import check_transactional_id

        check_transactional_id(request.transactional_id, context)
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch) if has_id else None

        def answer(code: ErrorCode, identity: ProducerIdAndEpoch) -> None:
            context.respond(
                InitProducerIdResponse(
                    error_code=known_code(code, ApiKey.INIT_PRODUCER_ID, context.api_version),
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                )
            )

        self._coordinator().init_producer(
            InitProducer(request.transactional_id, request.transaction_timeout_ms, expected), answer
        )

    def _init_idempotent(self, request: InitProducerIdRequest, context: RequestContext) -> None:
        if not (
            context.may_any(Operation.WRITE, ResourceType.TOPIC)
            or context.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
        ):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not produce idempotently")
        self._producer_ids.assign(
            lambda producer_id: context.respond(
                InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_EPOCH)
            ),
            lambda error: context.refuse(request, error_code_of(error), str(error)),
        )
