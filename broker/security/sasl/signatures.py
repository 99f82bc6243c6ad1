"""JWK sets (RFC 7517), and tokens that a key of such a set has signed. The cryptography is PyJWT's.

Imported where tokens with signatures are checked only: PyJWT and cryptography are an extra of the package.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jwt as pyjwt

from broker.security.sasl.jwt import check_source, check_times, read_jwt, scopes_of, subject_of
from broker.security.sasl.oauthbearer import Bearer, InvalidToken
from config.oauthbearer import SignedTokens

_ALGORITHMS: Final[Mapping[str, Sequence[str]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
    "Ed448": ("EdDSA",),
}
"""The algorithms of a key, by its type or curve. None of them is symmetric: what checks a token could sign it."""

LEAST_RSA_BITS: Final = 2048
MOST_KEYS: Final = 1000
"""Of a set; the others are left out."""
MOST_TRIED: Final = 4
"""Keys that are tried for a token which does not name its key."""
_MS_PER_S: Final = 1000


class SigningKey(NamedTuple):
    """A public key."""

    key_id: str | None
    algorithms: Sequence[str]
    key: Any
    """As PyJWT has it."""


KeySet = Sequence[SigningKey]


class NoKeySet(ValueError):
    """A text that is no JWK set."""


def read_key_set(data: bytes) -> KeySet:
    """The keys that sign tokens. Other keys, and keys that cannot be read, are left out. Raises `NoKeySet`."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise NoKeySet("it is no JSON") from None
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list):
        raise NoKeySet('it has no list of "keys"')
    read = (_signing_key(key) for key in keys[:MOST_KEYS] if isinstance(key, dict))
    return [key for key in read if key is not None]


def _signing_key(jwk: Mapping[str, Any]) -> SigningKey | None:
    if jwk.get("use", "sig") != "sig":
        return None
    kind = "RSA" if jwk.get("kty") == "RSA" else jwk.get("crv")
    algorithms = _ALGORITHMS.get(kind, ()) if isinstance(kind, str) else ()
    if "alg" in jwk:
        algorithms = [algorithm for algorithm in algorithms if algorithm == jwk["alg"]]
    key_id = jwk.get("kid")
    if not algorithms or not (key_id is None or isinstance(key_id, str)):
        return None
    # Nothing of a private key is kept, where somebody has put one there.
    public = {name: jwk[name] for name in ("kty", "crv", "n", "e", "x", "y") if name in jwk}
    try:
        key = pyjwt.PyJWK(public, algorithm=algorithms[0]).key
    except (pyjwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if kind == "RSA" and key.key_size < LEAST_RSA_BITS:
        return None
    return SigningKey(key_id, algorithms, key)


class SignedValidator:
    """Checks tokens with the keys that there are at the moment, as Kafka's `BrokerJwtValidator` does."""

    def __init__(
        self,
        settings: SignedTokens,
        *,
        now_ms: Callable[[], int],
        keys: Callable[[], KeySet],
        look_again: Callable[[], None],
    ) -> None:
        """``look_again`` is called when no key has signed a token: there may be other keys by now."""
        self._settings = settings
        self._now_ms = now_ms
        self._keys = keys
        self._look_again = look_again
        self._signatures = {
            name: algorithm
            for name, algorithm in pyjwt.algorithms.get_default_algorithms().items()
            if any(name in names for names in _ALGORITHMS.values())
        }

    def validate(self, token: str) -> Bearer:
        """See `TokenValidator`."""
        jwt = read_jwt(token)
        algorithm = jwt.header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._signatures:
            raise InvalidToken("the token is not signed by an algorithm of asymmetric keys")
        if "crit" in jwt.header:
            raise InvalidToken("the token has extensions that must be understood")
        signature = self._signatures[algorithm]
        if not any(signature.verify(jwt.signed, key, jwt.signature) for key in self._keys_for(jwt.header, algorithm)):
            self._look_again()
            raise InvalidToken("no key has signed the token")
        settings = self._settings
        expires_ms = check_times(jwt.claims, self._now_ms(), settings.clock_skew_s * _MS_PER_S, needs_issued_at=True)
        check_source(jwt.claims, settings.issuer, settings.audiences)
        scopes_of(jwt.claims, settings.scope_claim)
        return Bearer(subject_of(jwt.claims, settings.subject_claim), expires_ms)

    def _keys_for(self, header: Mapping[str, Any], algorithm: str) -> list[Any]:
        """The keys that may have signed a token: the one that the token names, or else all of its kind."""
        key_id = header.get("kid")
        if key_id is None:
            return [key.key for key in self._keys() if algorithm in key.algorithms][:MOST_TRIED]
        return [key.key for key in self._keys() if key.key_id == key_id and algorithm in key.algorithms][:MOST_TRIED]
