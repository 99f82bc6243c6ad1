"""The SASL settings of each listener: mechanisms, users of PLAIN, and how long a session lasts.

listener.name.<listener>.<mechanism>.sasl.jaas.config      the only name under which Kafka reads a JAAS configuration
listener.name.<listener>.<mechanism>.<setting>             every other setting has three names:
listener.name.<listener>.<setting>                         `config.listener_texts` says which of them counts
<setting>

Imported where a listener with SASL is opened only.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from config.broker_settings import BROKER_SETTINGS, BrokerSettings
from config.class_settings import CLASS_SETTINGS, Where, check_class
from config.errors import SettingsError
from config.jaas import InvalidJaas, LoginModule, parse_jaas
from config.listener_texts import ListenerTexts
from config.listeners import Listener
from config.oauthbearer import (
    OAUTHBEARER,
    VALIDATOR_SETTING,
    SignedTokens,
    UnsecuredTokens,
    is_oauthbearer_key,
    oauthbearer_settings,
)

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER)
"""The mechanisms that exist here."""

_LOGIN_MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM, "org.apache.kafka.common.security.scram.ScramLoginModule"),
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_USER_PREFIX: Final = "user_"
_JAAS: Final = "sasl.jaas.config"
_ENABLED: Final = "sasl.enabled.mechanisms"


class MechanismSettings(NamedTuple):
    """One mechanism on one listener."""

    name: str
    max_reauth_ms: int
    """After how long a client has to authenticate again; 0: never."""
    users: Mapping[str, str]
    """Passwords by user, for PLAIN."""
    tokens: SignedTokens | UnsecuredTokens | None = None
    """How tokens are checked, for OAUTHBEARER."""

    def __repr__(self) -> str:
        """Without the passwords."""
        return f"MechanismSettings({self.name!r}, {self.max_reauth_ms}, {len(self.users)} users)"


class SaslSettings(NamedTuple):
    """SASL on one listener."""

    mechanisms: Mapping[str, MechanismSettings]
    """By name, in the order of `sasl.enabled.mechanisms`."""
    max_receive_bytes: int
    failure_delay_ms: int
    timeout_ms: int
    token_secret_key: str | None
    """With which delegation tokens are made; None where there are none."""

    def __repr__(self) -> str:
        """Without the key."""
        return f"SaslSettings({list(self.mechanisms.values())!r})"


def sasl_settings(listener: Listener, settings: BrokerSettings) -> SaslSettings:
    """The settings of a listener with SASL.

    Raises:
        SettingsError: A mechanism does not exist here, or its users cannot be read. The sentence has no password.
    """
    texts = ListenerTexts(listener.name, settings.given)
    names: tuple[str, ...] = _value(_ENABLED, texts, settings)
    if not names:
        raise SettingsError(f"{_ENABLED} is empty, but the listener {listener.name} has SASL; {_expected_mechanisms()}")
    return SaslSettings(
        mechanisms={name: _mechanism(name, listener, texts, settings) for name in names},
        max_receive_bytes=_value("sasl.server.max.receive.size", texts, settings),
        failure_delay_ms=settings.connection_failed_authentication_delay_ms,
        timeout_ms=settings.ottla_authentication_timeout_ms,
        token_secret_key=settings.delegation_token_secret_key,
    )


def _mechanism(name: str, listener: Listener, texts: ListenerTexts, settings: BrokerSettings) -> MechanismSettings:
    if name not in MECHANISMS:
        key = texts.name(_ENABLED) or _ENABLED
        reason = "there is no Kerberos here" if name == "GSSAPI" else "there is no such mechanism here"
        default = "" if texts.name(_ENABLED) else ", its default"
        raise SettingsError(
            f"{key} has {name!r}{default}, and the listener {listener.name} has SASL, but {reason}; "
            + _expected_mechanisms()
        )
    for setting in CLASS_SETTINGS:
        if not (setting == VALIDATOR_SETTING and name == OAUTHBEARER):
            check_class(setting, texts.name(setting, name) or setting, texts.text(setting, name) or "", Where.SASL)
    module = _login_module(name, listener, texts)
    options = {} if module is None else module.options
    return MechanismSettings(
        name=name,
        max_reauth_ms=max(_value("connections.max.reauth.ms", texts, settings, name), 0),
        users={
            option.removeprefix(_USER_PREFIX): password
            for option, password in options.items()
            if name == PLAIN and option.startswith(_USER_PREFIX)
        },
        tokens=oauthbearer_settings(listener, texts, module) if name == OAUTHBEARER else None,
    )


def _login_module(mechanism: str, listener: Listener, texts: ListenerTexts) -> LoginModule | None:
    """The JAAS configuration of a mechanism; None where it may be left out, since nothing here depends on it."""
    wanted = f"listener.name.{listener.name.lower()}.{mechanism.lower()}.{_JAAS}"
    text = texts.text(_JAAS, mechanism)
    if text is None or texts.name(_JAAS, mechanism) != wanted:
        if mechanism != PLAIN:
            return None
        form = f'{_LOGIN_MODULES[PLAIN]} required user_<name>="<password>";'
        raise SettingsError(f"{wanted} is not set, expected the users of PLAIN: {form}")
    try:
        module = parse_jaas(text)
    except InvalidJaas as reason:
        raise SettingsError(
            f'{wanted} cannot be read: {reason}; expected {_LOGIN_MODULES[mechanism]} required <option>="<value>" ...;'
        ) from None
    if module.name != _LOGIN_MODULES[mechanism]:
        raise SettingsError(f"{wanted} has the login module {module.name}, expected {_LOGIN_MODULES[mechanism]}")
    return module


def _value(setting: str, texts: ListenerTexts, settings: BrokerSettings, mechanism: str | None = None) -> Any:
    """The value of a setting for a listener, or for a mechanism on it."""
    name = texts.name(setting, mechanism)
    declaration = BROKER_SETTINGS[setting]
    if name is None or name == setting:
        return getattr(settings, setting.replace(".", "_"))
    return declaration.parse(name, texts.text(setting, mechanism) or "")


def check_sasl(settings: BrokerSettings) -> None:
    """Check the settings of every listener with SASL.

    Raises:
        SettingsError: As `sasl_settings` does.
    """
    for listener in settings.listeners:
        if listener.has_sasl:
            sasl_settings(listener, settings)


def has_effect(key: str, settings: BrokerSettings) -> bool:
    """Whether a setting that `BrokerSettings` has no field for says something about a listener with SASL."""
    return is_oauthbearer_key(key) and any(
        OAUTHBEARER in sasl_settings(listener, settings).mechanisms
        for listener in settings.listeners
        if listener.has_sasl
    )


def _expected_mechanisms() -> str:
    return f"expected some of {', '.join(MECHANISMS)}"
