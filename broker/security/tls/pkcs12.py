"""PKCS12 files, read by pyca/cryptography: the extra `ottla[tls]`. Imported where a listener has such a file only."""

from typing import Any, Final, cast

from broker.security.tls.key_material import KeyMaterial, Unusable
from config.tls import Store

_EXTRA: Final = "install ottla[tls], or convert it to PEM: openssl pkcs12 -in {} -out keys.pem -nodes"


def key_of_pkcs12(store: Store, content: bytes, where: str) -> KeyMaterial:
    """The private key of a file with its certificates. Raises `Unusable`."""
    loaded = _loaded(store, content, where)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if loaded.key is None or loaded.cert is None:
        raise Unusable(f"{where} has no private key with a certificate")
    der = Encoding.DER
    others = [other.certificate for other in loaded.additional_certs]
    return KeyMaterial(
        setting=store.setting,
        key_pem=cast(Any, loaded.key).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        password=None,
        chain=tuple(one.public_bytes(der) for one in _in_order(loaded.cert.certificate, others)),
    )


def certificates_of_pkcs12(store: Store, content: bytes, where: str) -> tuple[bytes, ...]:
    """All certificates of a file. Raises `Unusable`."""
    loaded = _loaded(store, content, where)
    from cryptography.hazmat.primitives.serialization import Encoding

    entries = [*([] if loaded.cert is None else [loaded.cert]), *loaded.additional_certs]
    if not entries:
        raise Unusable(f"{where} has no certificate")
    return tuple(entry.certificate.public_bytes(Encoding.DER) for entry in entries)


def _loaded(store: Store, content: bytes, where: str) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError as error:
        raise Unusable(f"{where} is PKCS12, which cannot be read ({error}): {_EXTRA.format(store.location)}") from None
    password = None if store.password is None else store.password.encode()
    try:
        return load_pkcs12(content, password)
    except Exception as error:  # noqa: BLE001 - whatever the library finds wrong with somebody's file
        raise Unusable(f"{where} cannot be opened with its password: {error}") from None


def _in_order(own: Any, others: list[Any]) -> list[Any]:
    """The key's own certificate, then who vouches for it, and so on: a file may have them in any order."""
    chain = [own]
    while True:
        issuers = [one for one in others if one.subject == chain[-1].issuer and one not in chain]
        if not issuers:
            return chain
        chain.append(issuers[0])
