"""ClientLogin: how a tool connects to a broker, by the client settings that Kafka's tools take with --command-config.

security.protocol=SASL_SSL
ssl.truststore.location=ca.pem        ssl.truststore.type=PEM
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="...";

Settings of a client that say nothing about its login are passed over, as Kafka's tools do.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from config.errors import InvalidConfig, SettingsError
from config.jaas import InvalidJaas, parse_jaas
from config.listener_texts import ListenerTexts
from config.sources import read_settings_file
from config.tls import Store, client_stores
from config.values import trimmed

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = (PLAIN, *SCRAM)
_JAAS: Final = "sasl.jaas.config"
_HOST_CHECK: Final = "ssl.endpoint.identification.algorithm"


class Sasl(NamedTuple):
    """Who a client is, and its proof."""

    mechanism: str
    user: str
    password: str
    is_token: bool = False
    """The user is the id of a delegation token, and the password its HMAC."""

    def __repr__(self) -> str:
        """Without the password."""
        return f"Sasl({self.mechanism}, {self.user})"


class ClientLogin(NamedTuple):
    """What a connection to a broker begins with: nothing, TLS, SASL, or both."""

    has_tls: bool = False
    trust_store: Store | None = None
    """The certificates that vouch for brokers; None: those of the system."""
    key_store: Store | None = None
    """The client's own certificate."""
    checks_host: bool = True
    """Whether a broker's certificate must have the name by which the broker is reached."""
    sasl: Sasl | None = None


def read_client_login(path: str | None) -> ClientLogin:
    """The login in a file of client settings; without a file there is none. Raises SettingsError."""
    return ClientLogin() if path is None else client_login(read_settings_file(path))


def client_login(given: Mapping[str, str]) -> ClientLogin:
    """The login in client settings by name. Raises SettingsError, whose sentence has no secret."""
    protocol = trimmed(given.get("security.protocol", "PLAINTEXT")).upper()
    if protocol not in _PROTOCOLS:
        raise InvalidConfig("security.protocol", protocol, f"one of {', '.join(_PROTOCOLS)}")
    sasl = _sasl(given) if protocol.startswith("SASL_") else None
    if not protocol.endswith("SSL"):
        return ClientLogin(sasl=sasl)
    key_store, trust_store = client_stores(ListenerTexts("", given))
    algorithm = trimmed(given.get(_HOST_CHECK, "https")).lower()
    if algorithm not in ("", "https"):
        raise InvalidConfig(_HOST_CHECK, algorithm, "https, or nothing")
    return ClientLogin(
        has_tls=True, trust_store=trust_store, key_store=key_store, checks_host=algorithm == "https", sasl=sasl
    )


def _sasl(given: Mapping[str, str]) -> Sasl:
    mechanism = trimmed(given.get("sasl.mechanism", "GSSAPI"))
    if mechanism not in _MECHANISMS:
        raise InvalidConfig("sasl.mechanism", mechanism, f"one of {', '.join(_MECHANISMS)}")
    if _JAAS not in given:
        raise SettingsError(f"{_JAAS} is not set, expected the user and the password for {mechanism}")
    try:
        options = parse_jaas(given[_JAAS]).options
    except InvalidJaas as reason:
        raise SettingsError(f"{_JAAS} cannot be read: {reason}") from None
    if missing := [name for name in ("username", "password") if name not in options]:
        raise SettingsError(f"{_JAAS} has no {' and no '.join(missing)}, expected both for {mechanism}")
    is_token = mechanism in SCRAM and options.get("tokenauth", "").lower() == "true"
    return Sasl(mechanism, options["username"], options["password"], is_token)
