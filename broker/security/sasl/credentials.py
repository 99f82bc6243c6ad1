"""ImageCredentials: the SCRAM credentials of users, as the metadata image has them."""

import base64
import hmac

from broker.metadata.cache import MetadataCache
from broker.security.sasl.scram import LEAST_ITERATIONS, Credential, ScramHash, TokenCredential
from protocol.records.cluster_metadata import UserScramCredentialRecord

MECHANISM_CODES = {ScramHash.SHA_256: 1, ScramHash.SHA_512: 2}
"""The mechanisms as the metadata log has them."""


class ImageCredentials:
    """The `Credentials` of one hash. A change is seen by the next login."""

    def __init__(self, metadata: MetadataCache, hash_: ScramHash, secret: bytes) -> None:
        """``secret``: of this process; from it come the salts of names that are no user's."""
        self._metadata = metadata
        self._hash = hash_
        self._secret = secret

    def of_user(self, user: str) -> Credential | None:
        """See `Credentials`."""
        record = self._metadata.image.scram_credentials.by_key.get((user, MECHANISM_CODES[self._hash]))
        if record is None:
            return None
        assert isinstance(record, UserScramCredentialRecord)
        return Credential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations)

    def of_token(self, token_id: str) -> TokenCredential | None:
        """See `Credentials`. There are no delegation tokens here."""
        return None

    def of_nobody(self, name: str) -> Credential:
        """See `Credentials`."""
        # As long, and of the same characters, as those that Kafka's tools make.
        salt = base64.b32encode(hmac.digest(self._secret, name.encode(), "sha256")[:16]).rstrip(b"=").lower()
        nobodys = hmac.digest(self._secret, salt, self._hash.digest)
        return Credential(salt, nobodys, nobodys, LEAST_ITERATIONS)
