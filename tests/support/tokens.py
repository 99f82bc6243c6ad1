"""Makes JWTs, signed or not, and the JWK set of their keys. Signatures need PyJWT and cryptography."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

NOW_S: Final = 1_700_000_000
"""The time at which a `ManualClock` begins."""
CLAIMS: Final[Mapping[str, Any]] = {
    "sub": "alice",
    "iss": "https://issuer.example",
    "aud": ["kafka", "other"],
    "iat": NOW_S - 10,
    "exp": NOW_S + 600,
    "scope": "read write",
}


def part(value: object) -> str:
    """A part of a token."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(header: object, claims: object, signature: bytes = b"") -> str:
    """A token with whatever stands in its parts."""
    return f"{part(header)}.{part(claims)}.{part(signature)}"


def first_message(token: str, authorization_id: str = "") -> bytes:
    """What a client of OAUTHBEARER sends."""
    named = f"a={authorization_id}" if authorization_id else ""
    return f"n,{named},\1auth=Bearer {token}\1\1".encode()


class Issuer:
    """Has a private key, and signs tokens."""

    def __init__(self, kind: str = "RSA", key_id: str | None = "key-1") -> None:
        """``kind``: RSA, RSA-1024, or a curve: P-256, P-384, P-521, Ed25519, Ed448."""
        from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

        self.key_id = key_id
        self.private: Any
        if kind.startswith("RSA"):
            self.private = rsa.generate_private_key(65537, 1024 if kind == "RSA-1024" else 2048)
        elif kind.startswith("P-"):
            self.private = ec.generate_private_key(
                {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}[kind]
            )
        else:
            self.private = {"Ed25519": ed25519.Ed25519PrivateKey, "Ed448": ed448.Ed448PrivateKey}[kind].generate()

    def sign(self, claims: Mapping[str, Any] = CLAIMS, algorithm: str = "RS256", **header: Any) -> str:
        """A token; ``header`` beside algorithm and key id."""
        import jwt

        named = {} if self.key_id is None else {"kid": self.key_id}
        return jwt.encode(dict(claims), self.private, algorithm=algorithm, headers={**named, **header})

    def jwk(self, **members: Any) -> dict[str, Any]:
        """The public key as a set has it."""
        import jwt

        for algorithm in ("RS256", "ES256", "EdDSA"):
            try:
                found = jwt.get_algorithm_by_name(algorithm).to_jwk(self.private.public_key(), as_dict=True)
            except (jwt.InvalidKeyError, TypeError, AttributeError):
                continue
            named = {} if self.key_id is None else {"kid": self.key_id}
            return {name: value for name, value in found.items() if name != "key_ops"} | named | members
        raise AssertionError("no algorithm has such keys")


def key_set(*keys: object) -> bytes:
    """A JWK set."""
    return json.dumps({"keys": list(keys)}).encode()
