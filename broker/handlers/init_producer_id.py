"""InitProducerId: an identity for an idempotent producer (API key 22; KIP-98, KIP-360)."""

from broker.metadata.producer_ids import ProducerIds
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    ClusterAuthorizationFailed,
    InvalidRequest,
    TransactionalIdAuthorizationFailed,
    error_code_of,
)
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from storage.sentinels import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

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
            raise InvalidRequest("a producer id and its epoch come together")
        if request.transactional_id == "":
            raise InvalidRequest("an empty transactional id")
        if request.transactional_id is not None:
            # Retriable by no client: a producer that needs transactions must not go on without them.
            raise TransactionalIdAuthorizationFailed(
                f"{context.client_id} asks for transactions as {request.transactional_id!r}: "
                "there are none on this broker yet"
            )
        if not context.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not produce idempotently")
        self._producer_ids.assign(
            lambda producer_id: context.respond(
                InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_EPOCH)
            ),
            lambda error: context.refuse(request, error_code_of(error), str(error)),
        )
        return None
