"""Reading keys and certificates from files and settings."""

import base64
import re
from typing import Final

from broker.security.tls.key_material import KeyMaterial, Unusable
from config.tls import PEM, Store

MOST_BYTES: Final = 1 << 20
"""The largest file of keys or certificates that is read."""

_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_CERTIFICATES: Final = (b"CERTIFICATE", b"TRUSTED CERTIFICATE", b"X509 CERTIFICATE")
_ENCRYPTED: Final = (b"ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")
_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_LINE: Final = 64
_DER_SEQUENCE: Final = b"\x30"


def load_key(store: Store) -> KeyMaterial:
    """The key and certificates of a listener. Raises `Unusable`."""
    content, where = _content(store)
    if store.location is not None and not _is_pem(store, content, where):
        from broker.security.tls.pkcs12 import key_of_pkcs12

        return key_of_pkcs12(store, content, where)
    keys = [_in_lines(match) for match in _BLOCK.finditer(content) if match[1].endswith(b"PRIVATE KEY")]
    if len(keys) != 1:
        raise Unusable(f"{where} has {len(keys)} private keys in PEM, expected one")
    if store.key_password is None and any(mark in keys[0] for mark in _ENCRYPTED):
        raise Unusable(f"the private key in {where} has a password, expected it in ssl.key.password")
    return KeyMaterial(
        setting=store.setting,
        key_pem=keys[0],
        password=store.key_password,
        chain=_certificates(content, where),
    )


def load_trusted(store: Store) -> tuple[bytes, ...]:
    """The certificates of those who vouch for clients, as DER. Raises `Unusable`."""
    content, where = _content(store)
    if store.location is not None and not _is_pem(store, content, where):
        from broker.security.tls.pkcs12 import certificates_of_pkcs12

        return certificates_of_pkcs12(store, content, where)
    return _certificates(content, where)


def _content(store: Store) -> tuple[bytes, str]:
    """The bytes of a store, and what to call it in a sentence."""
    if store.location is None:
        inline = f"{store.key or ''}\n{store.certificates or ''}"
        return inline.encode(), store.setting
    where = f"{store.setting}={store.location}"
    try:
        with open(store.location, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise Unusable(f"{where} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > MOST_BYTES:
        raise Unusable(f"{where} has more than {MOST_BYTES} bytes, expected keys or certificates")
    return content, where


def _is_pem(store: Store, content: bytes, where: str) -> bool:
    """Whether a file is PEM; else it is PKCS12. The type JKS reads PKCS12, too, as Java does. Raises `Unusable`."""
    if content.startswith(_JKS):
        raise Unusable(
            f"{where} is a JKS file, which only Java reads; convert it: keytool -importkeystore -srckeystore "
            f"{store.location} -destkeystore keys.p12 -deststoretype PKCS12"
        )
    if store.type == PEM:
        return True
    if not content.startswith(_DER_SEQUENCE):
        hint = "; it looks like PEM, for which the type is PEM" if b"-----BEGIN " in content else ""
        raise Unusable(f"{where} is no PKCS12 file{hint}")
    return False


def _in_lines(block: re.Match[bytes]) -> bytes:
    """A key in the lines that OpenSSL wants: in a properties file they may be joined by spaces."""
    if b":" in block[2]:
        return block[0] + b"\n"  # an old form, whose headers are lines of their own
    text = b"".join(block[2].split())
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return b"\n".join((b"-----BEGIN " + block[1] + b"-----", *lines, b"-----END " + block[1] + b"-----", b""))


def _certificates(content: bytes, where: str) -> tuple[bytes, ...]:
    found = []
    for match in _BLOCK.finditer(content):
        if match[1] in _CERTIFICATES:
            try:
                found.append(base64.b64decode(b"".join(match[2].split()), validate=True))
            except ValueError:
                raise Unusable(f"a certificate in {where} is no base64") from None
    if not found:
        raise Unusable(f"{where} has no certificate in PEM")
    return tuple(found)
