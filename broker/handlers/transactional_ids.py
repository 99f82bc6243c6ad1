"""What the handlers of transactions have in common: the right to a transactional id."""

from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import InvalidRequest, TransactionalIdAuthorizationFailed


def check_not_empty(transactional_id: str) -> None:
    """Raise `InvalidRequest` for an empty id."""
    if not transactional_id:
        raise InvalidRequest("a transactional id is not empty")


def check_transactional_id(transactional_id: str, context: RequestContext) -> None:
    """Raise `InvalidRequest` for an empty id, and `TransactionalIdAuthorizationFailed` unless the principal may write
    with the id."""
    check_not_empty(transactional_id)
    if not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise TransactionalIdAuthorizationFailed(f"{context.session.principal} may not write as {transactional_id!r}")
