"""The TLS settings of each listener: which keys and certificates, which clients, and who they are.

listener.name.<listener>.ssl.<setting>     of one listener
ssl.<setting>                              of all listeners

Imported where a listener with TLS is opened only.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from config.alteration import OF_A_LISTENER_ONLY
from config.broker_settings import BrokerSettings
from config.class_settings import CLASS_SETTINGS, Where, check_class
from config.definitions import definitions
from config.dynamic import split_listener_key
from config.errors import SettingsError
from config.listener_texts import ListenerTexts
from config.listeners import Listener
from config.principal_rules import DEFAULT, InvalidRules, Rule, parse_rules
from config.values import list_entries, parse_value, trimmed

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
"""The versions of TLS that exist here."""

PEM: Final = "PEM"
PKCS12: Final = "PKCS12"
_TYPES: Final = (PEM, PKCS12, "JKS")
_CLIENT_AUTH: Final = "ssl.client.auth"
_WITHOUT_EFFECT: Final = frozenset(
    {
        *("ssl.endpoint.identification.algorithm", "ssl.keymanager.algorithm", "ssl.protocol"),
        *("ssl.secure.random.implementation", "ssl.trustmanager.algorithm"),
    }
)
"""Settings that Java's TLS has, or that say how a client finds a broker trustworthy."""


class Store(NamedTuple):
    """Where keys or certificates are: in a file, or, as PEM, in the settings themselves."""

    setting: str
    """The full name of the setting that says so, for sentences."""
    type: str
    """PEM, PKCS12, or JKS, which may turn out to be PKCS12 as in Java."""
    location: str | None
    password: str | None
    """Of the file; PEM files have none."""
    certificates: str | None
    """In-line PEM: a certificate and those that vouch for it, or certificates that are trusted."""
    key: str | None = None
    """In-line PEM: the private key."""
    key_password: str | None = None

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"Store({self.setting}, {self.type}, {self.location})"


class TlsSettings(NamedTuple):
    """TLS on one listener."""

    listener: str
    key_store: Store
    trust_store: Store | None
    client_auth: str
    """Whether a client shows a certificate: none, requested, required."""
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    """Names as Java has them; empty: those that OpenSSL finds good."""
    principal_rules: tuple[Rule, ...]
    may_change_names: bool
    """A new certificate may have another subject while the broker runs."""
    may_lose_alternative_names: bool
    """A new certificate may lack names of hosts that the old one has."""


def tls_settings(listener: Listener, given: Mapping[str, str]) -> TlsSettings:
    """The settings of a listener with TLS; ``given`` has the texts of all settings, by their full names.

    Raises:
        SettingsError: Something is missing, contradicts, or does not exist here. The sentence has no secret.
    """
    texts = ListenerTexts(listener.name, given)
    for setting in CLASS_SETTINGS:
        check_class(setting, _name(setting, texts), _text(setting, texts) or "", Where.TLS)
    client_auth = _client_auth(listener, texts)
    trust_store = _trust_store(texts)
    if client_auth != "none" and trust_store is None:
        raise SettingsError(
            f"{_name(_CLIENT_AUTH, texts)} is '{client_auth}', expected ssl.truststore.location beside it for the "
            f"listener {listener.name}: the certificates of those who vouch for clients"
        )
    return TlsSettings(
        listener=listener.name,
        key_store=_key_store(f"the listener {listener.name}", texts),
        trust_store=trust_store,
        client_auth=client_auth,
        protocols=_protocols(texts),
        cipher_suites=tuple(list_entries(_text("ssl.cipher.suites", texts) or "")),
        principal_rules=_principal_rules(texts),
        may_change_names=_parsed("ssl.allow.dn.changes", texts),
        may_lose_alternative_names=_parsed("ssl.allow.san.changes", texts),
    )


def client_stores(texts: ListenerTexts) -> tuple[Store | None, Store | None]:
    """The key store and the trust store in the settings of a client, which needs neither. Raises SettingsError."""
    has_key = _text("ssl.keystore.location", texts) or _secret("ssl.keystore.key", texts)
    return _key_store("the client", texts) if has_key else None, _trust_store(texts)


def texts_in_force(static: Mapping[str, str], dynamic: Mapping[str, str]) -> dict[str, str]:
    """The static texts with those dynamic ones over them that a listener reads anew while it is open."""
    anew = {
        key: text
        for key, text in dynamic.items()
        if (parts := split_listener_key(key))[0] is not None and parts[1] in OF_A_LISTENER_ONLY
    }
    return {**static, **anew}


def check_tls(settings: BrokerSettings) -> None:
    """Check the settings of every listener with TLS; the files that they name are not read.

    Raises:
        SettingsError: As `tls_settings` does.
    """
    for listener in settings.listeners:
        if listener.has_tls:
            tls_settings(listener, settings.given)


def has_effect(key: str) -> bool:
    """Whether a setting, without a listener's prefix, says something about a listener with TLS."""
    return key.startswith("ssl.") and key not in _WITHOUT_EFFECT


def _text(setting: str, texts: ListenerTexts) -> str | None:
    """The text of a setting, None where it is empty or not given."""
    text = texts.text(setting)
    return trimmed(text) or None if text is not None else None


def _secret(setting: str, texts: ListenerTexts) -> str | None:
    """The same for a secret, whose white space is its own."""
    return texts.text(setting) or None


def _name(setting: str, texts: ListenerTexts) -> str:
    return texts.name(setting) or setting


def _parsed(setting: str, texts: ListenerTexts) -> Any:
    definition = definitions("broker")[setting]
    return parse_value(
        _name(setting, texts), definition.type, definition.allowed, _text(setting, texts) or definition.default or ""
    )


def _client_auth(listener: Listener, texts: ListenerTexts) -> str:
    """Where clients authenticate by SASL, only what is said for this very listener counts, as in Kafka (KIP-684)."""
    if listener.has_sasl and texts.name(_CLIENT_AUTH) == _CLIENT_AUTH:
        return "none"
    return str(_parsed(_CLIENT_AUTH, texts))


def _protocols(texts: ListenerTexts) -> tuple[str, ...]:
    setting = "ssl.enabled.protocols"
    names = tuple(list_entries(_text(setting, texts) or "")) or PROTOCOLS
    for name in names:
        if name not in PROTOCOLS:
            raise SettingsError(f"{_name(setting, texts)} has '{name}', expected some of {', '.join(PROTOCOLS)}")
    return names


def _principal_rules(texts: ListenerTexts) -> tuple[Rule, ...]:
    setting = "ssl.principal.mapping.rules"
    try:
        text = texts.text(setting)
        return parse_rules(DEFAULT if text is None else text)
    except InvalidRules as reason:
        raise SettingsError(
            f"{_name(setting, texts)} cannot be read: {reason}; expected RULE:pattern/replacement/ with L or U behind "
            "it, or DEFAULT, separated by commas"
        ) from None


def _type(setting: str, texts: ListenerTexts) -> str:
    text = (_text(setting, texts) or "JKS").upper()
    if text not in _TYPES:
        raise SettingsError(f"{_name(setting, texts)} is '{text}', expected PEM or PKCS12")
    return text


def _key_store(owner: str, texts: ListenerTexts) -> Store:
    type_ = _type("ssl.keystore.type", texts)
    location = _text("ssl.keystore.location", texts)
    store = Store(
        setting=_name("ssl.keystore.location" if location else "ssl.keystore.key", texts),
        type=type_,
        location=location,
        password=_secret("ssl.keystore.password", texts),
        certificates=_secret("ssl.keystore.certificate.chain", texts),
        key=_secret("ssl.keystore.key", texts),
        key_password=_secret("ssl.key.password", texts),
    )
    if store.key is None and location is None:
        raise SettingsError(
            f"{owner} has TLS, expected its key and certificate in ssl.keystore.location (with "
            "ssl.keystore.type PEM or PKCS12), or in ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    if store.key is not None and location is not None:
        raise SettingsError(f"{store.setting} and {_name('ssl.keystore.key', texts)} are set, expected one of them")
    if (store.key is None) != (store.certificates is None):
        given, missing = ("key", "certificate.chain") if store.key is not None else ("certificate.chain", "key")
        raise SettingsError(
            f"{_name(f'ssl.keystore.{given}', texts)} is set, expected ssl.keystore.{missing} beside it"
        )
    _check_password(store, "ssl.keystore", texts)
    return store


def _trust_store(texts: ListenerTexts) -> Store | None:
    location = _text("ssl.truststore.location", texts)
    store = Store(
        setting=_name("ssl.truststore.location" if location else "ssl.truststore.certificates", texts),
        type=_type("ssl.truststore.type", texts),
        location=location,
        password=_secret("ssl.truststore.password", texts),
        certificates=_secret("ssl.truststore.certificates", texts),
    )
    if store.certificates is None and location is None:
        return None
    if store.certificates is not None and location is not None:
        raise SettingsError(
            f"{store.setting} and {_name('ssl.truststore.certificates', texts)} are set, expected one of them"
        )
    _check_password(store, "ssl.truststore", texts)
    return store


def _check_password(store: Store, prefix: str, texts: ListenerTexts) -> None:
    """Kafka's rules of what stands beside each type."""
    if store.location is None and store.type != PEM:
        raise SettingsError(f"{store.setting} is set, expected {prefix}.type=PEM beside it")
    if store.type == PEM and store.password is not None:
        raise SettingsError(
            f"{_name(f'{prefix}.password', texts)} is set, but a PEM file has no password"
            + (": expected ssl.key.password for that of the key" if "key" in prefix else "")
        )
    if store.type != PEM and store.password is None and "key" in prefix:
        raise SettingsError(f"{store.setting} is set, expected {prefix}.password beside it, or {prefix}.type=PEM")
