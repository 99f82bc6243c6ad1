"""OAUTHBEARER (RFC 7628): the client shows a token that somebody else has given to it.

    n,[a=authorization id],^A auth=Bearer <token> ^A [key=value ^A]... ^A             ^A is the byte 1

A token that is refused gets a JSON object as its answer. The client confirms it with the byte 1, and only then the
authentication fails, with the object as its error message.
"""

import json
import re
from typing import Final, NamedTuple, Protocol

from broker.security.sasl.exchange import AuthenticationFailed, InvalidCredentials, Proven

_CONFIRMED: Final = b"\1"
_NAME: Final = r"(?:[^=,\x00\x01]|=2C|=3D)+"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization_id>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]+\x01)+)\x01"
)
_BEARER: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-_.~+/a-zA-Z0-9]+=*)")


class InvalidToken(Exception):
    """A token that is refused. The text says why, for the log only."""

    def __init__(self, why: str, *, status: str = "invalid_token", scope: str | None = None) -> None:
        """``status`` and ``scope`` are for the client, as RFC 7628 has them."""
        super().__init__(why)
        self.status = status
        self.scope = scope


class Bearer(NamedTuple):
    """What a token says."""

    user: str
    expires_at_ms: int


class TokenValidator(Protocol):
    """Checks tokens."""

    def validate(self, token: str) -> Bearer:
        """What ``token`` says. Raises `InvalidToken`."""


class OAuthBearerExchange:
    """One token, or one and the confirmation that it was refused."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refusal: str | None = None
        self.proven: Proven | None = None

    def respond(self, token: bytes) -> bytes:
        """See `Exchange`."""
        if self._refusal is not None:
            if token == _CONFIRMED:
                raise AuthenticationFailed(self._refusal)
            raise InvalidCredentials("a token follows the refusal of another one")
        found = _FIRST.fullmatch(token.decode("utf-8", "replace"))
        if found is None:
            raise InvalidCredentials("the first message is not of OAUTHBEARER's form")
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\1")[:-1])
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise InvalidCredentials("the first message has no bearer token")
        try:
            said = self._validator.validate(bearer["token"])
        except InvalidToken as reason:
            answer = {"status": reason.status} | ({} if reason.scope is None else {"scope": reason.scope})
            self._refusal = json.dumps(answer, separators=(",", ":"))
            return self._refusal.encode()
        authorization_id = (found["authorization_id"] or "").replace("=2C", ",").replace("=3D", "=")
        if authorization_id not in ("", said.user):
            raise AuthenticationFailed(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({said.user})"
            )
        self.proven = Proven(said.user, said.expires_at_ms)
        return b""
