"""What OpenSSL is told of a listener: key, certificates, who vouches for clients, versions and ciphers."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from broker.security.tls.certificate import Certificate, parse_certificate
from broker.security.tls.der import MalformedDer
from broker.security.tls.key_material import KeyMaterial, Unusable, as_pem
from broker.security.tls.stores import load_key, load_trusted
from config.tls import Store, TlsSettings

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_SUITES_OF_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""What OpenSSL offers for TLS 1.3. Python cannot choose among them."""
_MISMATCH: Final = "KEY_VALUES_MISMATCH"
_BAD_PASSWORD: Final = ("BAD_DECRYPT", "BAD_PASSWORD_READ", "BAD_END_LINE", "PKCS12", "MAYBE_WRONG_PASSWORD", "DECRYPT")
_DAY_FORMAT: Final = "%Y-%m-%d %H:%M:%S UTC"


class Loaded(NamedTuple):
    """What the settings of a listener stand for at present."""

    context: ssl.SSLContext
    certificate: Certificate
    """The listener's own."""
    key: KeyMaterial
    trusted: tuple[bytes, ...]

    def has_same_files(self, other: "Loaded") -> bool:
        """Whether both have the same key and certificates."""
        return (self.key, self.trusted) == (other.key, other.trusted)


def load(settings: TlsSettings, now_ms: int) -> Loaded:
    """Read the files of a listener and make a context of them. Raises `Unusable`."""
    key = load_key(settings.key_store)
    trusted = () if settings.trust_store is None else load_trusted(settings.trust_store)
    certificates = [_parsed(der, key.setting) for der in key.chain]
    _check_times(certificates[0], key.setting, now_ms)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _choose_versions_and_ciphers(context, settings)
    _load_key(context, key)
    context.verify_mode = _VERIFY[settings.client_auth]
    if settings.trust_store is not None:
        _trust(context, settings.trust_store, trusted)
    return Loaded(context, certificates[0], key, trusted)


def load_client(trust_store: Store | None, key_store: Store | None, *, checks_host: bool) -> ssl.SSLContext:
    """The context of a client that trusts ``trust_store``, or else the system's certificates. Raises `Unusable`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host
    if trust_store is None:
        context.load_default_certs()
    else:
        _trust(context, trust_store, load_trusted(trust_store))
    if key_store is not None:
        _load_key(context, load_key(key_store))
    return context


def _trust(context: ssl.SSLContext, store: Store, trusted: tuple[bytes, ...]) -> None:
    # As in Java, whoever is trusted need not have a root of its own behind it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=as_pem(trusted).decode())
    except ssl.SSLError as error:
        raise Unusable(f"the certificates of {store.setting} are none: {_words(error)}") from None


def _parsed(der: bytes, setting: str) -> Certificate:
    try:
        return parse_certificate(der)
    except MalformedDer as reason:
        raise Unusable(f"a certificate of {setting} is none: {reason}") from None


def _check_times(certificate: Certificate, setting: str, now_ms: int) -> None:
    if now_ms >= certificate.not_after_ms:
        raise Unusable(
            f"the certificate of {setting} ({certificate.subject}) expired on {_day(certificate.not_after_ms)}"
        )
    if now_ms < certificate.not_before_ms:
        raise Unusable(
            f"the certificate of {setting} ({certificate.subject}) is not valid before "
            f"{_day(certificate.not_before_ms)}"
        )


def _day(time_ms: int) -> str:
    from datetime import UTC, datetime, timedelta

    return (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)).strftime(_DAY_FORMAT)


def _load_key(context: ssl.SSLContext, key: KeyMaterial) -> None:
    with _file_of(as_pem(key.chain)) as chain, _file_of(key.key_pem) as key_file:
        try:
            # Without a password OpenSSL would ask the terminal.
            context.load_cert_chain(chain, key_file, key.password or "")
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or ""
            if reason == _MISMATCH:
                raise Unusable(f"the certificate and the private key of {key.setting} do not match") from None
            if key.password is not None and not reason.startswith(("EE_", "CA_")):
                raise Unusable(
                    f"the private key of {key.setting} cannot be opened with ssl.key.password: {_words(error)}"
                ) from None
            raise Unusable(f"the private key or certificate of {key.setting} cannot be used: {_words(error)}") from None


def _words(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return reason.replace("_", " ").lower() if reason else str(error) or type(error).__name__


@contextmanager
def _file_of(content: bytes) -> Iterator[str]:
    """A path from which OpenSSL reads ``content``: in memory where the system has such files, so that no key that was
    in the settings comes to a disk."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name


def _choose_versions_and_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    versions = sorted(_VERSIONS[name] for name in settings.protocols)
    suites = settings.cipher_suites
    if suites:
        of_1_3 = [suite for suite in suites if suite in _SUITES_OF_1_3]
        others = [suite for suite in suites if suite not in _SUITES_OF_1_3]
        if of_1_3 and len(of_1_3) < len(_SUITES_OF_1_3) and versions[-1] is ssl.TLSVersion.TLSv1_3:
            raise Unusable(
                f"ssl.cipher.suites has {', '.join(of_1_3)} for TLS 1.3, expected all or none of "
                f"{', '.join(_SUITES_OF_1_3)}: Python cannot choose among them"
            )
        versions = [version for version in versions if (of_1_3 if version is ssl.TLSVersion.TLSv1_3 else others)]
        if not versions:
            raise Unusable("ssl.cipher.suites has no suite for any version in ssl.enabled.protocols")
        if others:
            _set_ciphers(context, others)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _set_ciphers(context: ssl.SSLContext, suites: list[str]) -> None:
    context.set_ciphers("ALL:!aNULL:!eNULL")
    known = {cipher["name"] for cipher in context.get_ciphers()}
    names = [openssl_name(suite) for suite in suites]
    if unknown := [suite for suite, name in zip(suites, names, strict=True) if name not in known]:
        raise Unusable(f"ssl.cipher.suites has {', '.join(unknown)}, which this OpenSSL does not have")
    context.set_ciphers(":".join(names))


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a cipher suite: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256 there."""
    name = suite.removeprefix("TLS_").replace("RSA_WITH_", "WITH_", 1) if suite.startswith("TLS_RSA_WITH_") else suite
    name = name.removeprefix("TLS_").removeprefix("WITH_").replace("_WITH_", "_").replace("_CBC", "")
    name = name.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("POLY1305_SHA256", "POLY1305")
    return name.replace("_", "-")
