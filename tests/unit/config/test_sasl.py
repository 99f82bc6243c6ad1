"""The SASL settings of a listener, and every refusal."""

import pytest

from config.described import describe_broker
from config.errors import SettingsError
from config.oauthbearer import SignedTokens, UnsecuredTokens
from config.parse import LoadedSettings, load_settings
from config.resources import BrokerTexts
from config.sasl import SaslSettings, sasl_settings

PLAIN_JAAS = "listener.name.outside.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OUTSIDE = {
    "listeners": "OUTSIDE://127.0.0.1:9092,INSIDE://127.0.0.1:9094",
    "listener.security.protocol.map": "OUTSIDE:SASL_PLAINTEXT,INSIDE:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    PLAIN_JAAS: f'{MODULE} required username="broker" password="geheim" user_alice="wonder" user_bob="geheim";',
}


def load(**changed: str | None) -> LoadedSettings:
    """``OUTSIDE`` with changes: underscores stand for dots, and None leaves a setting out."""
    texts: dict[str, str | None] = {**OUTSIDE, **{key.replace("_", "."): text for key, text in changed.items()}}
    return load_settings(None, [(key, text) for key, text in texts.items() if text is not None])


def outside(**changed: str | None) -> SaslSettings:
    settings = load(**changed).settings
    return sasl_settings(settings.listeners[0], settings)


def refusal(**changed: str | None) -> str:
    with pytest.raises(SettingsError) as refused:
        load(**changed)
    assert "geheim" not in str(refused.value)
    return str(refused.value)


def test_a_listener_has_mechanisms_and_the_users_of_plain() -> None:
    sasl = outside()
    assert list(sasl.mechanisms) == ["PLAIN", "SCRAM-SHA-256"]
    assert sasl.mechanisms["PLAIN"].users == {"alice": "wonder", "bob": "geheim"}
    assert (sasl.max_receive_bytes, sasl.failure_delay_ms, sasl.timeout_ms) == (524_288, 100, 60_000)
    assert load().notices == []


def test_settings_hold_for_all_listeners_or_one_or_one_mechanism_on_it() -> None:
    sasl = outside(
        **{
            "connections.max.reauth.ms": "9000",
            "listener.name.outside.scram-sha-256.connections.max.reauth.ms": "5000",
            "listener.name.outside.sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN,SCRAM-SHA-512",
            "sasl.server.max.receive.size": "1000",
        }
    )
    assert {name: mechanism.max_reauth_ms for name, mechanism in sasl.mechanisms.items()} == {
        "SCRAM-SHA-256": 5000,
        "PLAIN": 9000,
        "SCRAM-SHA-512": 9000,
    }
    assert sasl.max_receive_bytes == 1000


def test_kafkas_file_for_a_listener_with_sasl_is_taken_as_it_is() -> None:
    loaded = load(
        **{
            "listener.name.outside.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.jaas.config": "for clients",
            "listener.name.inside.sasl.enabled.mechanisms": "PLAIN",
        }
    )
    assert loaded.notices == [
        "accepted without effect here: listener.name.inside.sasl.enabled.mechanisms, sasl.jaas.config, "
        "sasl.mechanism.inter.broker.protocol"
    ]


def test_passwords_are_shown_to_nobody() -> None:
    settings = load().settings
    mechanism = sasl_settings(settings.listeners[0], settings).mechanisms["PLAIN"]
    assert "geheim" not in repr(mechanism)
    entry = next(entry for entry in describe_broker(BrokerTexts(static=settings.given)) if entry.name == PLAIN_JAAS)
    assert (entry.value, entry.is_sensitive) == (None, True)
    assert [synonym.value for synonym in entry.synonyms] == [None]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"sasl.enabled.mechanisms": None},
            "sasl.enabled.mechanisms has 'GSSAPI', its default, and the listener OUTSIDE has SASL, but there is no "
            "Kerberos here; expected some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
        ),
        (
            {"listener.name.outside.sasl.enabled.mechanisms": "PLAIN,CRAM-MD5"},
            "listener.name.outside.sasl.enabled.mechanisms has 'CRAM-MD5', and the listener OUTSIDE has SASL, but "
            "there is no such mechanism here; ",
        ),
        ({PLAIN_JAAS: None}, f"{PLAIN_JAAS} is not set, expected the users of PLAIN: {MODULE} required user_<name>="),
        ({PLAIN_JAAS: f"{MODULE} required user_a=geheim"}, f"{PLAIN_JAAS} cannot be read: it does not end with a semi"),
        ({PLAIN_JAAS: "my.Module required user_a=geheim;"}, f"{PLAIN_JAAS} has the login module my.Module, expected "),
        (
            {"listener.name.outside.plain.sasl.server.callback.handler.class": "my.Handler"},
            "listener.name.outside.plain.sasl.server.callback.handler.class is 'my.Handler', but this broker",
        ),
        (
            {"listener.name.outside.plain.connections.max.reauth.ms": "soon"},
            "listener.name.outside.plain.connections.max.reauth.ms is 'soon', expected ",
        ),
        (
            {"listener.name.outside.plain.sasl.jass.config": "geheim"},
            "listener.name.outside.plain.sasl.jass.config is not the name of a setting",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(changed: dict[str, str | None], sentence: str) -> None:
    assert refusal(**changed).startswith(sentence)


def test_brokers_do_not_find_each_other_through_sasl() -> None:
    changed = {
        "listeners": "OUTSIDE://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "listener.security.protocol.map": "OUTSIDE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "OUTSIDE",
    }
    assert refusal(**changed) == (
        "inter.broker.listener.name is 'OUTSIDE', expected a listener that speaks PLAINTEXT, not SASL_PLAINTEXT: "
        "brokers talk to each other without TLS and SASL here"
    )


# OAUTHBEARER

OAUTH: dict[str, str | None] = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    PLAIN_JAAS: None,
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
    "sasl.oauthbearer.expected.audience": "kafka,other",
}
HANDLER = "listener.name.outside.oauthbearer.sasl.server.callback.handler.class"
PACKAGE = "org.apache.kafka.common.security.oauthbearer."
UNSECURED = f"{PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
OAUTH_JAAS = "listener.name.outside.oauthbearer.sasl.jaas.config"


@pytest.mark.parametrize(
    "handler", [None, "OAuthBearerValidatorCallbackHandler", "secured.OAuthBearerValidatorCallbackHandler"]
)
def test_tokens_are_signed(handler: str | None) -> None:
    named = {} if handler is None else {HANDLER: PACKAGE + handler}
    loaded = load(**OAUTH, **named, **{"listener.name.outside.oauthbearer.sasl.oauthbearer.clock.skew.seconds": "5"})
    tokens = sasl_settings(loaded.settings.listeners[0], loaded.settings).mechanisms["OAUTHBEARER"].tokens
    assert tokens == SignedTokens(
        jwks_url="https://issuer.example/keys",
        refresh_ms=3_600_000,
        retry_backoff_ms=100,
        retry_backoff_max_ms=10_000,
        issuer="https://issuer.example",
        audiences=("kafka", "other"),
        clock_skew_s=5,
        scope_claim="scope",
        subject_claim="sub",
    )
    assert loaded.notices == []


def test_tokens_without_a_signature_are_taken_where_kafkas_class_for_them_is_named() -> None:
    jaas = (
        f'{PACKAGE}OAuthBearerLoginModule required unsecuredValidatorPrincipalClaimName="email" '
        'unsecuredValidatorRequiredScope="a b" unsecuredValidatorAllowableClockSkewMs="3000";'
    )
    changed = {**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": None, HANDLER: UNSECURED}
    assert outside(**changed, **{OAUTH_JAAS: jaas}).mechanisms["OAUTHBEARER"].tokens == UnsecuredTokens(
        subject_claim="email", scope_claim="scope", required_scopes=("a", "b"), clock_skew_ms=3000
    )


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"sasl.oauthbearer.jwks.endpoint.url": None},
            "sasl.oauthbearer.jwks.endpoint.url is not set, expected the URL of the keys that sign tokens, ",
        ),
        (
            {"sasl.oauthbearer.jwks.endpoint.url": "ftp://issuer.example/keys"},
            "sasl.oauthbearer.jwks.endpoint.url is 'ftp://issuer.example/keys', expected a URL with file:, http: or ",
        ),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https:///keys"}, "sasl.oauthbearer.jwks.endpoint.url is "),
        (
            {"sasl.oauthbearer.expected.issuer": None},
            "sasl.oauthbearer.expected.issuer is not set, expected the issuer",
        ),
        ({"sasl.oauthbearer.expected.audience": ""}, "sasl.oauthbearer.expected.audience is not set, expected the aud"),
        (
            {HANDLER: "my.Handler"},
            f"{HANDLER} is 'my.Handler', expected {PACKAGE}OAuthBearerValidatorCallbackHandler, ",
        ),
        (
            {HANDLER: UNSECURED, OAUTH_JAAS: f"{PACKAGE}OAuthBearerLoginModule required {'x' * 3};"},
            f"{OAUTH_JAAS} cannot be read: its option 1 is not of the form name=value",
        ),
    ],
)
def test_tokens_that_could_not_be_checked_are_refused_at_the_start(
    changed: dict[str, str | None], sentence: str
) -> None:
    assert refusal(**{**OAUTH, **changed}).startswith(sentence)


def test_any_issuer_and_any_audience_have_to_be_allowed() -> None:
    allowed = {"sasl.oauthbearer.allow.unverified.audience": "true", "sasl.oauthbearer.allow.unverified.issuer": "true"}
    changed = {**OAUTH, "sasl.oauthbearer.expected.issuer": None, "sasl.oauthbearer.expected.audience": None}
    tokens = outside(**changed, **allowed).mechanisms["OAUTHBEARER"].tokens
    assert isinstance(tokens, SignedTokens)
    assert (tokens.issuer, tokens.audiences) == (None, ())
