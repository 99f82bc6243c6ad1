"""InitProducerId: an identity for an idempotent producer (API key 22; KIP-98, KIP-360)."""

import logging

from broker.metadata.producer_ids import ProducerIds
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import error_code_of
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from storage.sentinels import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

log = logging.getLogger(__name__)

FIRST_EPOCH = 0


class InitProducerIdHandler:
    """Hands out producer ids."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def init_producer_id(
        self, request: InitProducerIdRequest, context: RequestContext
    ) -> InitProducerIdResponse | None:
        """Answer with a producer id that nobody has had, once its block is durable."""
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            return self.refuse(request, ErrorCode.INVALID_REQUEST, "a producer id and its epoch come together")
        if request.transactional_id == "":
            return self.refuse(request, ErrorCode.INVALID_REQUEST, "an empty transactional id")
        if request.transactional_id is not None:
            # Retriable by no client: a producer that needs transactions must not go on without them.
            log.warning(
                "%s (%s) asks for transactions as %r: there are none on this broker yet",
                context.client_id,
                context.peer,
                request.transactional_id,
            )
            return self.refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None)
        if not context.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER):
            return self.refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        self._producer_ids.assign(
            lambda producer_id: context.respond(
                InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_EPOCH)
            ),
            lambda error: context.respond(self.refuse(request, error_code_of(error), None)),
        )
        return None

    def refuse(self, request: InitProducerIdRequest, code: ErrorCode, message: str | None) -> InitProducerIdResponse:
        """The answer that carries ``code`` and no id."""
        return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
