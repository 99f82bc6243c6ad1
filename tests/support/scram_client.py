"""The client's side of SCRAM, as RFC 5802 has it."""

import base64
import hashlib
import hmac

from broker.security.sasl.scram import Credential, ScramHash


def credential_of(password: str, hash_: ScramHash, salt: bytes = b"salt", iterations: int = 4096) -> Credential:
    """What a broker keeps of a password."""
    salted = hashlib.pbkdf2_hmac(hash_.digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_.digest)
    stored_key = hashlib.new(hash_.digest, client_key).digest()
    return Credential(salt, stored_key, hmac.digest(salted, b"Server Key", hash_.digest), iterations)


class ScramClient:
    """One login."""

    def __init__(self, user: str, password: str, hash_: ScramHash, *, nonce: str = "abc", extensions: str = "") -> None:
        self.first_bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}{extensions}"
        self._password = password.encode()
        self._digest = hash_.digest
        self.nonce = nonce
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self.first_bare}".encode()

    def final(self, server_first: bytes, *, nonce: str | None = None, iterations: int | None = None) -> bytes:
        """The client's last message; ``nonce`` and ``iterations`` instead of those that the server has named."""
        told = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salted = hashlib.pbkdf2_hmac(
            self._digest, self._password, base64.b64decode(told["s"]), iterations or int(told["i"])
        )
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        unproved = f"c=biws,r={nonce or told['r']}"
        signed = f"{self.first_bare},{server_first.decode()},{unproved}".encode()
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), signed, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._digest)
        self._server_signature = hmac.digest(server_key, signed, self._digest)
        return f"{unproved},p={base64.b64encode(proof).decode()}".encode()

    def believes(self, server_final: bytes) -> bool:
        """Whether the server has proved that it knows the credential."""
        return server_final == b"v=" + base64.b64encode(self._server_signature)
