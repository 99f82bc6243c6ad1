"""The settings of OAUTHBEARER on one listener: how the tokens of clients are checked."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from config.definitions import definitions
from config.errors import InvalidConfig, SettingsError
from config.jaas import LoginModule
from config.listener_texts import ListenerTexts
from config.listeners import Listener
from config.values import parse_value, trimmed

OAUTHBEARER: Final = "OAUTHBEARER"
VALIDATOR_SETTING: Final = "sasl.server.callback.handler.class"

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_SIGNED: Final = (
    f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",  # its name before Kafka 4
)
_UNSECURED: Final = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_UNSECURED_OPTION: Final = "unsecuredValidator"
_OURS: Final = (
    *("sasl.oauthbearer.allow.unverified.", "sasl.oauthbearer.clock.skew.", "sasl.oauthbearer.expected."),
    *("sasl.oauthbearer.jwks.", "sasl.oauthbearer.scope.claim.", "sasl.oauthbearer.sub.claim."),
)
"""How the settings begin that have an effect here; the others are for clients that get tokens."""


class SignedTokens(NamedTuple):
    """Tokens are JWTs that are signed by a key of a JWK set."""

    jwks_url: str
    """file:, http: or https:."""
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    issuer: str | None
    """None: any issuer will do."""
    audiences: tuple[str, ...]
    """Empty: any audience will do."""
    clock_skew_s: int
    scope_claim: str
    subject_claim: str


class UnsecuredTokens(NamedTuple):
    """Tokens are not signed (`alg: none`): whoever connects is who it says. For tests."""

    subject_claim: str
    scope_claim: str
    required_scopes: tuple[str, ...]
    clock_skew_ms: int


def is_oauthbearer_key(key: str) -> bool:
    """Whether a setting says how tokens are checked."""
    return key.startswith(_OURS)


def oauthbearer_settings(
    listener: Listener, texts: ListenerTexts, module: LoginModule | None
) -> SignedTokens | UnsecuredTokens:
    """How the tokens of a listener's clients are checked. ``module``: the JAAS configuration.

    Raises:
        SettingsError: Neither way is asked for, or a setting is missing or wrong.
    """
    handler = trimmed(texts.text(VALIDATOR_SETTING, OAUTHBEARER) or "")
    if handler == _UNSECURED:
        return _unsecured(listener, {} if module is None else module.options)
    if handler and handler not in _SIGNED:
        key = texts.name(VALIDATOR_SETTING, OAUTHBEARER) or VALIDATOR_SETTING
        expected = (
            f"{_SIGNED[0]}, or for tokens without a signature {_UNSECURED}: this broker cannot load other classes"
        )
        raise InvalidConfig(key, handler, expected)
    return _signed(listener, texts)


def _signed(listener: Listener, texts: ListenerTexts) -> SignedTokens:
    def value(name: str) -> Any:
        return _value(f"sasl.oauthbearer.{name}", texts)

    url = value("jwks.endpoint.url")
    if not url:
        raise SettingsError(
            f"{_URL} is not set, expected the URL of the keys that sign tokens, since the listener {listener.name} has "
            f"{OAUTHBEARER}; tokens without a signature are taken where "
            f"listener.name.{listener.name.lower()}.oauthbearer.{VALIDATOR_SETTING} is {_UNSECURED}"
        )
    parts = urlsplit(url)
    if parts.scheme not in ("file", "http", "https") or not (parts.path if parts.scheme == "file" else parts.hostname):
        raise InvalidConfig(texts.name(_URL, OAUTHBEARER) or _URL, url, "a URL with file:, http: or https:")
    for expected in ("issuer", "audience"):
        if not value(f"expected.{expected}") and not value(f"allow.unverified.{expected}"):
            raise SettingsError(
                f"sasl.oauthbearer.expected.{expected} is not set, expected the {expected} of the tokens, or "
                f"sasl.oauthbearer.allow.unverified.{expected}=true, since {_URL} is set"
            )
    return SignedTokens(
        jwks_url=url,
        refresh_ms=max(value("jwks.endpoint.refresh.ms"), 1),
        retry_backoff_ms=max(value("jwks.endpoint.retry.backoff.ms"), 1),
        retry_backoff_max_ms=max(value("jwks.endpoint.retry.backoff.max.ms"), 1),
        issuer=value("expected.issuer") or None,
        audiences=value("expected.audience"),
        clock_skew_s=max(value("clock.skew.seconds"), 0),
        scope_claim=value("scope.claim.name"),
        subject_claim=value("sub.claim.name"),
    )


def _unsecured(listener: Listener, options: Mapping[str, str]) -> UnsecuredTokens:
    def option(name: str, default: str) -> str:
        return options.get(_UNSECURED_OPTION + name) or default

    skew = option("AllowableClockSkewMs", "0")
    if not skew.isdecimal() or len(skew) > len(str(1 << 63)):
        raise SettingsError(
            f"the option {_UNSECURED_OPTION}AllowableClockSkewMs of {OAUTHBEARER} on the listener {listener.name} is "
            "no number of milliseconds"
        )
    return UnsecuredTokens(
        subject_claim=option("PrincipalClaimName", "sub"),
        scope_claim=option("ScopeClaimName", "scope"),
        required_scopes=tuple(option("RequiredScope", "").split()),
        clock_skew_ms=int(skew),
    )


def _value(setting: str, texts: ListenerTexts) -> Any:
    definition = definitions("broker")[setting]
    name = texts.name(setting, OAUTHBEARER) or setting
    text = texts.text(setting, OAUTHBEARER)
    if text is None:
        text = definition.default
    return None if text is None else parse_value(name, definition.type, definition.allowed, text)
