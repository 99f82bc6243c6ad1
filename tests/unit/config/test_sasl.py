"""The SASL settings of a listener, and every refusal."""

import pytest

from config.described import describe_broker
from config.errors import SettingsError
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
            "Kerberos here; expected some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
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
            "listener.name.outside.plain.sasl.server.callback.handler.class is set, but this broker cannot load",
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
