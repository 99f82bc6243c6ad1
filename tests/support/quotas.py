"""Quotas of a broker in the test."""

from collections.abc import Mapping

from protocol.errors import ErrorCode
from protocol.messages.client_quotas import AlterClientQuotasRequest
from tests.support.broker import InProcessBroker


def limit(broker: InProcessBroker, entity: Mapping[str, str | None], **values: float | None) -> None:
    """Set quotas of an entity; None removes one."""
    of_entry = AlterClientQuotasRequest.Entry
    entry = of_entry(
        entity=[of_entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[of_entry.Op(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    (result,) = broker.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1, "admin").entries
    assert result.error_code == ErrorCode.NONE, result.error_message
