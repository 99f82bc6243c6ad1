"""The login of a tool, by the client settings of Kafka's tools."""

import pytest

from config.client_login import ClientLogin, Sasl, client_login
from config.errors import SettingsError

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="wonder"'
SCRAM = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-512"}


def test_without_settings_there_is_no_login() -> None:
    assert client_login({}) == ClientLogin()
    assert client_login({"client.id": "me", "sasl.mechanism": "PLAIN"}) == ClientLogin()


def test_a_user_or_a_token_logs_in_by_sasl() -> None:
    user = client_login({**SCRAM, "sasl.jaas.config": f"{JAAS};"})
    token = client_login({**SCRAM, "sasl.jaas.config": f"{JAAS} tokenauth=true;"})

    assert user == ClientLogin(sasl=Sasl("SCRAM-SHA-512", "alice", "wonder"))
    assert token == ClientLogin(sasl=Sasl("SCRAM-SHA-512", "alice", "wonder", is_token=True))
    assert "wonder" not in repr(user)


def test_tls_trusts_what_is_named_or_the_system_and_checks_the_host_unless_told_otherwise() -> None:
    assert client_login({"security.protocol": "SSL"}) == ClientLogin(has_tls=True)
    unchecked = client_login({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""})
    assert not unchecked.checks_host
    named = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"}
    trust_store = client_login(named).trust_store
    assert trust_store is not None
    assert (trust_store.type, trust_store.location) == ("PEM", "ca.pem")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS', expected one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is 'GSSAPI', expected one of PLAIN, SCRAM-SHA-256"),
        (SCRAM, "sasl.jaas.config is not set, expected the user and the password for SCRAM-SHA-512"),
        ({**SCRAM, "sasl.jaas.config": JAAS}, "sasl.jaas.config cannot be read: it does not end with a semicolon"),
        ({**SCRAM, "sasl.jaas.config": "M required;"}, "has no username and no password"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "DER"}, "ssl.truststore.type is 'DER', expected PEM"),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "LDAPS"},
            "ssl.endpoint.identification.algorithm is 'ldaps', expected https, or nothing",
        ),
        ({"security.protocol": "SSL", "ssl.keystore.location": "a.p12"}, "expected ssl.keystore.password beside it"),
    ],
)
def test_what_cannot_be_done_is_said_without_secrets(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        client_login(settings)

    assert sentence in str(refused.value)
    assert "wonder" not in str(refused.value)
