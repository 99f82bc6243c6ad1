"""PLAIN (RFC 4616): one token with name and password.

[authorization id] NUL name NUL password                UTF-8
"""

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from broker.security.sasl.exchange import AuthenticationFailed, Proven

_PARTS: Final = 3
_NOBODYS: Final = b"the password of users who do not exist: compared with, and never right"


class PlainExchange:
    """Compares a password with that of the user."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        """``passwords`` by user."""
        self._passwords = passwords
        self.proven: Proven | None = None

    def respond(self, token: bytes) -> bytes:
        """See `Exchange`. Not UTF-8 is no password of a user."""
        parts = token.decode("utf-8", "replace").split("\0", _PARTS)
        if len(parts) != _PARTS:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        known = self._passwords.get(user)
        expected = _NOBODYS if known is None else known.encode()
        # Digests are of one length: a comparison of the passwords would tell by its time how long the user's is.
        is_right = hmac.compare_digest(sha256(password.encode()).digest(), sha256(expected).digest())
        if not is_right or known is None:
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        check_authorization_id(authorization_id, user)
        self.proven = Proven(user)
        return b""


def check_authorization_id(authorization_id: str, user: str) -> None:
    """Refuse a client that wants to be another user than the one that it has proved to be, as Kafka does.

    Raises:
        AuthenticationFailed: It does.
    """
    if authorization_id not in ("", user):
        raise AuthenticationFailed(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
