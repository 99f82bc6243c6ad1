"""SaslHandshake and SaslAuthenticate: how a client says who it is."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Bytes, Int16, Int64, String, api_message, field


@api_message(ApiKey.SASL_HANDSHAKE)
class SaslHandshakeRequest:
    mechanism: String


@api_message(ApiKey.SASL_HANDSHAKE)
class SaslHandshakeResponse:
    error_code: Int16 = 0
    mechanisms: Array[String]


@api_message(ApiKey.SASL_AUTHENTICATE)
class SaslAuthenticateRequest:
    auth_bytes: Bytes


@api_message(ApiKey.SASL_AUTHENTICATE)
class SaslAuthenticateResponse:
    error_code: Int16 = 0
    error_message: String | None = None
    auth_bytes: Bytes = field(refused=b"")
    session_lifetime_ms: Int64 = field(since=1, default=0)
