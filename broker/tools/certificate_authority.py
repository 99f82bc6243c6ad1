"""A private authority, which signs certificates of brokers and of clients. Needs the extra `ottla[tls]`."""

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650

_BEFORE: Final = timedelta(days=1)
"""Certificates are valid since yesterday, for machines whose clocks are behind."""
_ORGANIZATION: Final = "Ottla"
_LONGEST_NAME: Final = 64
"""Of a common name, by X.509."""


class Issued(NamedTuple):
    """A private key, and the certificate that shows whose it is."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        """PKCS#8, which Java reads, too."""
        return bytes(self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    @property
    def certificate_pem(self) -> bytes:
        return bytes(self.certificate.public_bytes(Encoding.PEM))


class CertificateAuthority:
    """Signs certificates with its key."""

    def __init__(self, own: Issued) -> None:
        self.own = own

    @classmethod
    def new(cls, now: datetime) -> "CertificateAuthority":
        """An authority with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject("private authority")
        usage = x509.KeyUsage(**(_NO_USE | {"key_cert_sign": True, "crl_sign": True}))
        builder = _builder(subject, subject, key, key, now, AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return cls(Issued(key, builder.add_extension(usage, critical=True).sign(key, SHA256())))

    @classmethod
    def read(cls, key_pem: bytes, certificate_pem: bytes) -> "CertificateAuthority":
        """An authority that was made before. Raises `ValueError`."""
        key = load_pem_private_key(key_pem, None)
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ValueError("the key is not that of the certificate")
        return cls(Issued(key, certificate))

    def sign_broker(self, hosts: Sequence[str], now: datetime, days: int) -> Issued:
        """A key and certificate of a broker, which clients reach by the names or addresses in ``hosts``."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._signed(hosts[0], now, days, ExtendedKeyUsageOID.SERVER_AUTH, names)

    def sign_client(self, name: str, now: datetime, days: int) -> Issued:
        """A key and certificate of a client, which is known by ``name``."""
        return self._signed(name, now, days, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _signed(
        self,
        name: str,
        now: datetime,
        days: int,
        purpose: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None = None,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(name), self.own.certificate.subject, key, self.own.key, now, days)
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**(_NO_USE | {"digital_signature": True})), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return Issued(key, builder.sign(self.own.key, SHA256()))


_NO_USE: Final = cast(
    "dict[str, bool]",
    dict.fromkeys(
        (
            *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
            *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
        ),
        False,
    ),
)


def _subject(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, name[:_LONGEST_NAME]),
        ]
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signs: ec.EllipticCurvePrivateKey,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signs.public_key()), critical=False)
    )
