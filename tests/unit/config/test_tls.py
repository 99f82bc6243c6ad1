"""The TLS settings of a listener, and every refusal."""

import pytest

from config.errors import SettingsError
from config.parse import LoadedSettings, load_settings
from config.tls import TlsSettings, texts_in_force, tls_settings

OUTSIDE = {
    "listeners": "OUTSIDE://127.0.0.1:9093,INSIDE://127.0.0.1:9092",
    "listener.security.protocol.map": "OUTSIDE:SSL,INSIDE:PLAINTEXT",
    "listener.name.outside.ssl.keystore.type": "PEM",
    "listener.name.outside.ssl.keystore.location": "/keys.pem",
}


def load(**changed: str | None) -> LoadedSettings:
    """``OUTSIDE`` with changes: None leaves a setting out."""
    texts: dict[str, str | None] = {**OUTSIDE, **changed}
    return load_settings(None, [(key, text) for key, text in texts.items() if text is not None])


def outside(**changed: str | None) -> TlsSettings:
    settings = load(**changed).settings
    return tls_settings(settings.listeners[0], settings.given)


def test_a_listener_has_its_key_and_kafkas_defaults() -> None:
    tls = outside()
    assert (tls.key_store.type, tls.key_store.location, tls.trust_store) == ("PEM", "/keys.pem", None)
    assert (tls.client_auth, tls.protocols, tls.cipher_suites) == ("none", ("TLSv1.2", "TLSv1.3"), ())
    assert not tls.may_change_names
    assert load().notices == []


def test_what_is_said_of_one_listener_wins() -> None:
    tls = outside(
        **{
            "ssl.client.auth": "none",
            "listener.name.outside.ssl.client.auth": "required",
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": "/trusted.p12",
            "ssl.truststore.password": "geheim",
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384",
        }
    )
    assert (tls.client_auth, tls.protocols) == ("required", ("TLSv1.3",))
    assert tls.cipher_suites == ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384")
    assert tls.trust_store is not None
    assert tls.trust_store.password == "geheim"
    assert "geheim" not in repr(tls)


def test_with_sasl_a_certificate_is_asked_for_by_the_setting_of_the_listener_only() -> None:
    """KIP-684."""
    sasl = {
        "listener.security.protocol.map": "OUTSIDE:SASL_SSL,INSIDE:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/trusted.pem",
    }
    assert outside(**sasl, **{"ssl.client.auth": "required"}).client_auth == "none"
    assert outside(**sasl, **{"listener.name.outside.ssl.client.auth": "required"}).client_auth == "required"


def test_settings_that_say_nothing_here_are_named() -> None:
    loaded = load(
        **{
            "ssl.endpoint.identification.algorithm": "",
            "listener.name.inside.ssl.keystore.location": "/other.pem",
            "ssl.protocol": "TLSv1.3",
        }
    )
    assert loaded.notices == [
        "accepted without effect here: listener.name.inside.ssl.keystore.location, "
        "ssl.endpoint.identification.algorithm, ssl.protocol"
    ]


def test_without_a_listener_with_tls_its_settings_are_accepted_and_named() -> None:
    loaded = load_settings(None, [("ssl.keystore.location", "/keys.jks"), ("ssl.client.auth", "required")])
    assert loaded.notices == ["accepted without effect here: ssl.client.auth, ssl.keystore.location"]


LOCATION = "listener.name.outside.ssl.keystore.location"
TYPE = "listener.name.outside.ssl.keystore.type"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({LOCATION: None, TYPE: None}, "the listener OUTSIDE has TLS, expected its key and certificate in"),
        ({TYPE: None}, f"{LOCATION} is set, expected ssl.keystore.password beside it, or ssl.keystore.type=PEM"),
        ({TYPE: "BKS"}, f"{TYPE} is 'BKS', expected PEM or PKCS12"),
        (
            {"ssl.keystore.password": "geheim"},
            "ssl.keystore.password is set, but a PEM file has no password: expected ",
        ),
        ({"ssl.keystore.key": "geheim"}, f"{LOCATION} and ssl.keystore.key are set, expected one of them"),
        (
            {LOCATION: None, "ssl.keystore.key": "geheim"},
            "ssl.keystore.key is set, expected ssl.keystore.certificate.chain beside it",
        ),
        (
            {"ssl.keystore.certificate.chain": "x"},
            "ssl.keystore.certificate.chain is set, expected ssl.keystore.key beside it",
        ),
        (
            {"ssl.client.auth": "required"},
            "ssl.client.auth is 'required', expected ssl.truststore.location beside it for the listener OUTSIDE",
        ),
        ({"ssl.client.auth": "perhaps"}, "ssl.client.auth is 'perhaps', expected one of required, requested, none"),
        (
            {"ssl.enabled.protocols": "TLSv1.1"},
            "ssl.enabled.protocols has 'TLSv1.1', expected some of TLSv1.2, TLSv1.3",
        ),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "ssl.principal.mapping.rules cannot be read: 'RULE:x' is no rule"),
        ({"ssl.provider": "BC"}, "ssl.provider is 'BC', but this broker cannot load classes of Java"),
        (
            {"ssl.truststore.certificates": "x", "ssl.truststore.type": "PEM", "ssl.truststore.password": "geheim"},
            "ssl.truststore.password is set, but a PEM file has no password",
        ),
        ({"ssl.truststore.certificates": "x"}, "ssl.truststore.certificates is set, expected ssl.truststore.type=PEM"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_without_its_secret(
    changed: dict[str, str | None], sentence: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load(**changed)
    assert str(refused.value).startswith(sentence)
    assert "geheim" not in str(refused.value)


def test_keys_and_trust_of_a_listener_change_while_it_is_open_and_nothing_else_does() -> None:
    given = {"ssl.keystore.location": "/old", "listener.name.outside.ssl.client.auth": "none"}
    texts = texts_in_force(
        given,
        {
            "listener.name.outside.ssl.keystore.location": "/new",
            "listener.name.outside.ssl.client.auth": "required",
            "ssl.keystore.location": "/for all",
        },
    )
    assert texts == {**given, "listener.name.outside.ssl.keystore.location": "/new"}
