"""JSON web tokens (RFC 7519): their three parts, and the claims that a broker checks.

base64url(header) . base64url(claims) . base64url(signature)
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.security.sasl.oauthbearer import Bearer, InvalidToken

_PARTS: Final = 3
_MS_PER_S: Final = 1000
_LATEST_S: Final = 1 << 50
"""Times behind this are no times: a session could not last so long."""


class Jwt(NamedTuple):
    """A token in compact form, taken apart and not checked."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signed: bytes
    """The bytes that the signature is of."""
    signature: bytes


def read_jwt(token: str) -> Jwt:
    """Take a token apart. Raises `InvalidToken`."""
    parts = token.split(".")
    if len(parts) != _PARTS:
        raise InvalidToken(f"a token of {len(parts)} parts, expected {_PARTS}")
    header, claims, signature = map(_decoded, parts)
    signed = f"{parts[0]}.{parts[1]}".encode()
    return Jwt(_json_object(header, "header"), _json_object(claims, "claims"), signed, signature)


def check_times(claims: Mapping[str, Any], now_ms: int, skew_ms: int, *, needs_issued_at: bool) -> int:
    """Check exp, nbf and iat; return when the token expires, in milliseconds. Raises `InvalidToken`."""
    expires_ms = _time(claims, "exp")
    if expires_ms is None:
        raise InvalidToken("the token does not say when it expires (exp)")
    if now_ms - skew_ms >= expires_ms:
        raise InvalidToken(f"the token expired {now_ms - expires_ms} ms ago")
    not_before_ms, issued_ms = _time(claims, "nbf"), _time(claims, "iat")
    if issued_ms is None and needs_issued_at:
        raise InvalidToken("the token does not say when it was issued (iat)")
    for name, begins_ms in (("nbf", not_before_ms), ("iat", issued_ms)):
        if begins_ms is not None and begins_ms > now_ms + skew_ms:
            raise InvalidToken(f"the token is valid in {begins_ms - now_ms} ms ({name})")
        if begins_ms is not None and begins_ms >= expires_ms:
            raise InvalidToken(f"the token expires before it is valid ({name})")
    return expires_ms


def check_source(claims: Mapping[str, Any], issuer: str | None, audiences: Sequence[str]) -> None:
    """Check who has issued a token, and for whom. Raises `InvalidToken`."""
    if issuer is not None and claims.get("iss") != issuer:
        raise InvalidToken("the token has another issuer (iss)")
    if audiences:
        found = claims.get("aud")
        named = found if isinstance(found, list) else [found]
        if not any(audience in audiences for audience in named if isinstance(audience, str)):
            raise InvalidToken("the token is for another audience (aud)")


def subject_of(claims: Mapping[str, Any], subject_claim: str) -> str:
    """The user that a token is about. Raises `InvalidToken`."""
    subject = claims.get(subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken(f"the token does not say about whom it is ({subject_claim})")
    return subject.strip()


def scopes_of(claims: Mapping[str, Any], scope_claim: str) -> Sequence[str]:
    """The scopes of a token: words, or a list of words. Raises `InvalidToken`."""
    scopes = claims.get(scope_claim, [])
    if isinstance(scopes, str):
        return scopes.split()
    if not isinstance(scopes, list) or not all(isinstance(scope, str) and scope.strip() for scope in scopes):
        raise InvalidToken(f"the token's scopes are no words ({scope_claim})")
    return [scope.strip() for scope in scopes]


class UnsecuredValidator:
    """Takes tokens without a signature, as Kafka's `OAuthBearerUnsecuredValidatorCallbackHandler` does."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        subject_claim: str,
        scope_claim: str,
        required_scopes: Sequence[str],
        skew_ms: int,
    ) -> None:
        self._now_ms = now_ms
        self._subject_claim = subject_claim
        self._scope_claim = scope_claim
        self._required_scopes = required_scopes
        self._skew_ms = skew_ms

    def validate(self, token: str) -> Bearer:
        """See `TokenValidator`."""
        jwt = read_jwt(token)
        if jwt.header.get("alg") != "none" or jwt.signature:
            raise InvalidToken("the token is signed, and no key is known here")
        expires_ms = check_times(jwt.claims, self._now_ms(), self._skew_ms, needs_issued_at=False)
        user = subject_of(jwt.claims, self._subject_claim)
        scopes = scopes_of(jwt.claims, self._scope_claim)
        if missing := [scope for scope in self._required_scopes if scope not in scopes]:
            scope = " ".join(self._required_scopes)
            raise InvalidToken(f"the token lacks {missing}", status="insufficient_scope", scope=scope)
        return Bearer(user, expires_ms)


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part.rstrip("=") + "=" * (-len(part.rstrip("=")) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidToken("a part of the token is no Base64") from None


def _json_object(data: bytes, what: str) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidToken(f"the token's {what} are no JSON object")
    return found


def _time(claims: Mapping[str, Any], name: str) -> int | None:
    """A time of the token, in milliseconds. Raises `InvalidToken`."""
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _LATEST_S:
        raise InvalidToken(f"the token's {name} is no time")
    return int(seconds * _MS_PER_S)
