"""A client's side of SCRAM that may say other things than the server has named."""

import base64
import hashlib
import hmac

from broker.security.sasl import scram_client
from broker.security.sasl.scram import Credential, ScramHash


def credential_of(password: str, hash_: ScramHash, salt: bytes = b"salt", iterations: int = 4096) -> Credential:
    """What a broker keeps of a password."""
    salted = hashlib.pbkdf2_hmac(hash_.digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_.digest)
    stored_key = hashlib.new(hash_.digest, client_key).digest()
    return Credential(salt, stored_key, hmac.digest(salted, b"Server Key", hash_.digest), iterations)


class ScramClient(scram_client.ScramClient):
    """One login."""

    def __init__(self, user: str, password: str, hash_: ScramHash, *, nonce: str = "abc", extensions: str = "") -> None:
        super().__init__(user, password, hash_, nonce=nonce, extensions=extensions)

    def final(self, server_first: bytes, *, nonce: str | None = None, iterations: int | None = None) -> bytes:
        """The client's last message; ``nonce`` and ``iterations`` instead of those that the server has named."""
        told = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salt = base64.b64decode(told["s"])
        return self.proof(server_first, nonce or told["r"], salt, iterations or int(told["i"]))
