"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the client proves that it knows a password which the broker
does not have.

    client first    n,[a=authorization id],[m=…,]n=name,r=nonce[,extension=value]...
    server first    r=nonce + our nonce,s=salt,i=iterations
    client final    c=base64 of what is before n=name in the client's first message,r=both nonces[,…],p=proof
    server final    v=signature

    The broker keeps the stored key H(client key) and the server key. It derives nothing from a password at a login.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, Protocol

from broker.security.sasl.exchange import InvalidCredentials, Proven
from broker.security.sasl.plain import check_authorization_id

LEAST_ITERATIONS: Final = 4096
"""A stored credential with fewer is not used, as in Kafka."""

MOST_ITERATIONS: Final = 16_384
"""A new credential with more is refused, as in Kafka."""

MOST_CHARACTERS: Final = 4096
"""Of a message of the client: what is longer has no name and no nonce that a client would have."""

_NAME: Final = r"(?:[^=,\x00]|=2C|=3D)+"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>(?:m=[^,\x00]+,)?n=(?P<name>{_NAME}),r=(?P<nonce>[!-+\--~]+)(?P<extensions>(?:,[A-Za-z]+=[^,\x00]+)*))"
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<unproved>c=(?P<binding>[A-Za-z0-9/+=]+),r=(?P<nonce>[!-+\--~]+)(?:,[A-Za-z]+=[^,\x00]+)*?),"
    r"p=(?P<proof>[A-Za-z0-9/+=]+)"
)


class Credential(NamedTuple):
    """What the broker knows of a user's password, or of a delegation token."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class TokenCredential(NamedTuple):
    """A delegation token as the broker checks it."""

    credential: Credential
    owner: str
    expires_at_ms: int


class Credentials(Protocol):
    """Where the credentials of one hash are found."""

    def of_user(self, user: str) -> Credential | None:
        """The credential of a user; None if there is none."""

    def of_token(self, token_id: str) -> TokenCredential | None:
        """The credential of a delegation token; None if there is no such token, or no longer."""

    def of_nobody(self, name: str) -> Credential:
        """What is asked of a name without a credential, always the same of one name: no proof is right."""


class ScramHash(Enum):
    """The hash of a mechanism, by the mechanism's name."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def digest(self) -> str:
        """The name that hashlib has for it."""
        return "sha256" if self is ScramHash.SHA_256 else "sha512"


class _First(NamedTuple):
    """The client's first message, as far as it is needed for the second one."""

    header: str
    bare: str
    user: str
    server_first: str
    nonce: str
    credential: Credential
    proven: Proven | None
    """None: there is no such user."""


class ScramExchange:
    """Two messages each way. A name that is no user's is found out behind the second, as a wrong password is."""

    def __init__(self, hash_: ScramHash, credentials: Credentials, make_nonce: Callable[[], str]) -> None:
        """``make_nonce`` gives text that nobody can foresee: printable ASCII without a comma."""
        self._hash = hash_
        self._credentials = credentials
        self._make_nonce = make_nonce
        self._first: _First | None = None
        self.proven: Proven | None = None

    def respond(self, token: bytes) -> bytes:
        """See `Exchange`."""
        try:
            message = token.decode()
        except UnicodeDecodeError:
            raise InvalidCredentials("a message is no UTF-8") from None
        if self._first is None:
            self._first = first = self._begin(message)
            return first.server_first.encode()
        signature = self._check(self._first, message)
        self.proven = self._first.proven
        return b"v=" + base64.b64encode(signature)

    def _begin(self, message: str) -> _First:
        found = _CLIENT_FIRST.fullmatch(message) if len(message) <= MOST_CHARACTERS else None
        if found is None:
            raise InvalidCredentials("the first message is not of SCRAM's form")
        name = found["name"].replace("=2C", ",").replace("=3D", "=")
        authorization_id = (found["authorization_id"] or "").replace("=2C", ",").replace("=3D", "=")
        proven: Proven | None = None
        credential: Credential | None
        if "tokenauth=true" in found["extensions"].split(","):
            token = self._credentials.of_token(name)
            credential = None if token is None else token.credential
            if token is not None:
                proven = Proven(token.owner, token.expires_at_ms, is_by_token=True)
        else:
            credential = self._credentials.of_user(name)
            proven = Proven(name)
        if credential is None:
            credential, proven = self._credentials.of_nobody(name), None
        check_authorization_id(authorization_id, name)
        if credential.iterations < LEAST_ITERATIONS:
            raise InvalidCredentials(f"the credential has {credential.iterations} iterations of {LEAST_ITERATIONS}")
        nonce = found["nonce"] + self._make_nonce()
        salt = base64.b64encode(credential.salt).decode()
        server_first = f"r={nonce},s={salt},i={credential.iterations}"
        return _First(found["header"], found["bare"], name, server_first, nonce, credential, proven)

    def _check(self, first: _First, message: str) -> bytes:
        """Check the client's last message; return our signature."""
        found = _CLIENT_FINAL.fullmatch(message) if len(message) <= MOST_CHARACTERS else None
        if found is None:
            raise InvalidCredentials("the last message is not of SCRAM's form")
        # librdkafka before 2.6.1 puts its own nonce before the whole nonce once more, for which Kafka 4.4 refuses it.
        # What ends in our nonce is as fresh, and the proof covers what stands before.
        if not found["nonce"].endswith(first.nonce):
            raise InvalidCredentials("the last message has another nonce than the first two")
        if _from_base64(found["binding"]) != first.header.encode():
            raise InvalidCredentials("the last message repeats the head of the first with a change")
        digest = self._hash.digest
        proof = _from_base64(found["proof"])
        signed = f"{first.bare},{first.server_first},{found['unproved']}".encode()
        signature = hmac.digest(first.credential.stored_key, signed, digest)
        if len(proof) != len(signature):
            raise InvalidCredentials(f"the proof has {len(proof)} bytes, expected {len(signature)}")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(digest, client_key).digest(), first.credential.stored_key)
        if not is_right or first.proven is None:
            raise InvalidCredentials("the proof is wrong")
        return hmac.digest(first.credential.server_key, signed, digest)


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidCredentials("the last message is no Base64") from None
