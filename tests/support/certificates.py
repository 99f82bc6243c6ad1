"""A private authority for tests, and the certificates that it signs."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

YEAR = timedelta(days=365)
CLOCK_BEGINS = datetime(2023, 11, 14, tzinfo=UTC)
"""The day on which `broker.runtime.manual_clock.ManualClock` begins."""


def name(common_name: str) -> x509.Name:
    """O=Acme, Inc. and a common name."""
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme"), x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    )


class Issued(NamedTuple):
    """A key, its certificate, and the authority's."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    def key_pem(self, password: str | None = None) -> str:
        encryption: KeySerializationEncryption = NoEncryption()
        if password is not None:
            encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def authority_pem(self) -> str:
        return self.authority.public_bytes(Encoding.PEM).decode()

    def pem(self, password: str | None = None) -> str:
        """Key and certificates in one, as `ssl.keystore.location` takes them."""
        return self.key_pem(password) + self.certificate_pem + self.authority_pem

    def pkcs12(self, password: str) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"server", self.key, self.certificate, [self.authority], BestAvailableEncryption(password.encode())
        )


class Authority:
    """Signs certificates."""

    def __init__(self, common_name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._signed(name(common_name), self._key, datetime.now(UTC), YEAR, (), is_authority=True)

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self,
        common_name: str = "broker",
        *,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        since: datetime | None = None,
        lasts: timedelta = YEAR,
    ) -> Issued:
        """A new key with a certificate that is valid from a day before ``since`` (now) on."""
        key = ec.generate_private_key(ec.SECP256R1())
        since = since or datetime.now(UTC)
        return Issued(key, self._signed(name(common_name), key, since, lasts, hosts), self.certificate)

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        since: datetime,
        lasts: timedelta,
        hosts: tuple[str, ...],
        *,
        is_authority: bool = False,
    ) -> x509.Certificate:
        issuer = subject if is_authority else self.certificate.subject
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(since - timedelta(days=1))
            .not_valid_after(since + lasts)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return builder.sign(self._key, SHA256())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def written(path: Path, text: str) -> str:
    """The path of a new file with this text."""
    path.write_text(text)
    return str(path)


def tls_of_listeners(directory: Path, issued: Issued) -> dict[str, str]:
    """The settings of a broker whose listeners with TLS have this key."""
    location = written(directory / "broker.pem", issued.pem())
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": location}
