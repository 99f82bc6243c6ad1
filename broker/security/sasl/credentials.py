"""ImageCredentials: the SCRAM credentials of users and of delegation tokens, as the metadata image has them."""

import base64
import hashlib
import hmac

from broker.metadata.cache import MetadataCache
from broker.runtime.clock import Clock
from broker.security.delegation_tokens import TokenSecrets, is_expired, token_of
from broker.security.sasl.scram import LEAST_ITERATIONS, Credential, ScramHash, TokenCredential
from protocol.records.cluster_metadata import UserScramCredentialRecord

MECHANISM_CODES = {ScramHash.SHA_256: 1, ScramHash.SHA_512: 2}
"""The mechanisms as the metadata log has them."""


class ImageCredentials:
    """The `Credentials` of one hash. A change is seen by the next login."""

    def __init__(
        self,
        metadata: MetadataCache,
        hash_: ScramHash,
        secret: bytes,
        *,
        clock: Clock,
        token_secrets: TokenSecrets | None = None,
    ) -> None:
        """``secret``: of this process; from it come the salts of names that are no user's. ``token_secrets``: None
        where there are no delegation tokens."""
        self._metadata = metadata
        self._hash = hash_
        self._secret = secret
        self._clock = clock
        self._token_secrets = token_secrets
        self._of_tokens: dict[str, Credential] = {}
        """What a login by each token is checked with. To make one takes a thousand times as long as a login: it is made
        with the token's first login, and a name that is no token's has none made."""

    def of_user(self, user: str) -> Credential | None:
        """See `Credentials`."""
        record = self._metadata.image.scram_credentials.by_key.get((user, MECHANISM_CODES[self._hash]))
        if record is None:
            return None
        assert isinstance(record, UserScramCredentialRecord)
        return Credential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations)

    def of_token(self, token_id: str) -> TokenCredential | None:
        """See `Credentials`. Kafka lets a token in that has expired until it is removed; here it is refused."""
        token = token_of(self._metadata.image, token_id)
        if token is None or self._token_secrets is None or is_expired(token, self._clock.now_ms()):
            return None
        known = self._of_tokens.get(token_id)
        if known is None:
            self._forget_tokens()
            known = self._of_tokens[token_id] = self._make(token_id, self._token_secrets)
        ends_ms = min(token.expiration_timestamp, token.max_timestamp)
        return TokenCredential(known, token.owner.partition(":")[2], ends_ms)

    def _make(self, token_id: str, secrets: TokenSecrets) -> Credential:
        salt, digest = self._salt_of(token_id), self._hash.digest
        salted = hashlib.pbkdf2_hmac(digest, secrets.password_of(token_id), salt, LEAST_ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", digest)
        server_key = hmac.digest(salted, b"Server Key", digest)
        return Credential(salt, hashlib.new(digest, client_key).digest(), server_key, LEAST_ITERATIONS)

    def _forget_tokens(self) -> None:
        """Tokens that were removed need no credential."""
        kept = self._metadata.image.delegation_tokens.by_key
        if len(self._of_tokens) > len(kept):
            self._of_tokens = {token_id: known for token_id, known in self._of_tokens.items() if token_id in kept}

    def _salt_of(self, name: str) -> bytes:
        """As long, and of the same characters, as the salts that Kafka's tools make."""
        return base64.b32encode(hmac.digest(self._secret, name.encode(), "sha256")[:16]).rstrip(b"=").lower()

    def of_nobody(self, name: str) -> Credential:
        """See `Credentials`."""
        salt = self._salt_of(name)
        nobodys = hmac.digest(self._secret, salt, self._hash.digest)
        return Credential(salt, nobodys, nobodys, LEAST_ITERATIONS)
