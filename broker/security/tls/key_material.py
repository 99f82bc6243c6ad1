"""A listener's key and certificates, in the one form that OpenSSL is given: PEM."""

import base64
from typing import NamedTuple


class Unusable(Exception):
    """Why a listener cannot have TLS, in one sentence without secrets."""


class KeyMaterial(NamedTuple):
    """A private key and the certificates that show whose it is, the key's own first."""

    setting: str
    """The setting that names it, for sentences."""
    key_pem: bytes
    password: str | None
    chain: tuple[bytes, ...]
    """DER."""

    def __repr__(self) -> str:
        """Without the key."""
        return f"KeyMaterial({self.setting}, {len(self.chain)} certificates)"


def as_pem(certificates: tuple[bytes, ...]) -> bytes:
    """DER certificates as PEM."""
    return b"".join(
        b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"
        for der in certificates
    )
