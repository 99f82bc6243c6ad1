"""The client's side of SCRAM (RFC 5802, RFC 7677)."""

import base64
import hashlib
import hmac

from broker.security.sasl.scram import ScramHash


class ScramClient:
    """One login: two messages each way."""

    def __init__(self, user: str, password: str, hash_: ScramHash, *, nonce: str, extensions: str = "") -> None:
        """``extensions`` are the attributes behind the nonce: ``,tokenauth=true`` for a delegation token."""
        self.first_bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}{extensions}"
        self.nonce = nonce
        self._password = password.encode()
        self._digest = hash_.digest
        self._server_signature = b""

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self.first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The last message. Raises ValueError where the server's first message has not what it must have."""
        told = dict(part.split("=", 1) for part in server_first.decode().split(","))
        if not {"r", "s", "i"} <= told.keys() or not told["r"].startswith(self.nonce):
            raise ValueError("its first message has no salt, no iterations, or another nonce")
        return self.proof(server_first, told["r"], base64.b64decode(told["s"]), int(told["i"]))

    def proof(self, server_first: bytes, nonce: str, salt: bytes, iterations: int) -> bytes:
        """The last message for what the server has named."""
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        unproved = f"c=biws,r={nonce}"
        signed = f"{self.first_bare},{server_first.decode()},{unproved}".encode()
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), signed, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._digest)
        self._server_signature = hmac.digest(server_key, signed, self._digest)
        return f"{unproved},p={base64.b64encode(proof).decode()}".encode()

    def believes(self, server_final: bytes) -> bool:
        """Whether the server has proved that it knows the credential."""
        return server_final == b"v=" + base64.b64encode(self._server_signature)
