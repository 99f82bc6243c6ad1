"""Envelope: a broker hands a client's request to the controller, with the client's principal and address (KIP-590)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Bytes, Int16, api_message


@api_message(ApiKey.ENVELOPE)
class EnvelopeRequest:
    request_data: Bytes
    """The request with its header, without its size."""
    request_principal: Bytes | None
    """An int16, 0, and a `DefaultPrincipalData` of that version."""
    client_host_address: Bytes
    """The client's address: 4 bytes, or 16."""


@api_message(ApiKey.ENVELOPE)
class EnvelopeResponse:
    response_data: Bytes | None = None
    """The response with its header, without its size."""
    error_code: Int16 = 0
