"""Stock clients authenticate by SASL in their default configuration; the broker is a process as users have it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.support.clients import CLIENTS, Login, Record, connect, values
from tests.support.raw_client import RawClient
from tests.support.sasl_broker import MECHANISMS, SaslBroker
from tests.support.tokens import CLAIMS, Issuer, first_message, key_set, unsigned


@pytest.fixture(scope="module")
def sasl_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl")) as broker:
        broker.set_password("alice", "wonder")
        yield broker


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("client_name", CLIENTS)
def test_a_client_with_its_password_produces_and_consumes(
    sasl_broker: SaslBroker, client_name: str, mechanism: str
) -> None:
    client = connect(client_name, sasl_broker.sasl_bootstrap, Login(mechanism, "alice", "wonder"))
    topic = f"sasl-{uuid.uuid4().hex[:8]}"
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"%d" % number) for number in range(10)])
    assert values(client.consume_all(topic)) == [b"%d" % number for number in range(10)]


def test_a_client_with_another_password_is_told_so(sasl_broker: SaslBroker, mechanism: str) -> None:
    """aiokafka; the others try again for half a minute."""
    client = connect("aiokafka", sasl_broker.sasl_bootstrap, Login(mechanism, "alice", "wunder"))
    with pytest.raises(Exception, match="Unable to bootstrap"):
        client.topics()


def test_a_new_directory_has_the_users_that_its_first_start_names(tmp_path: Path) -> None:
    broker = SaslBroker(tmp_path)
    broker.arguments = ["--add-scram", "SCRAM-SHA-512=[name=alice,password=wonder]"]
    try:
        for _ in range(2):  # the second start finds the users in the metadata log, and does not make them anew
            broker.start()
            client = connect("aiokafka", broker.sasl_bootstrap, Login("SCRAM-SHA-512", "alice", "wonder"))
            assert client.topics() == set()
            broker.stop()
        assert "--add-scram has no effect, since" in broker.log_text()
        assert "wonder" not in broker.log_text(last_lines=10_000)
    finally:
        broker.close()


# OAUTHBEARER


class Tokens(NamedTuple):
    """A broker that takes tokens, and what signs them."""

    broker: SaslBroker
    sign: Callable[[dict[str, Any]], str]


@pytest.fixture(scope="module", params=["signed", "unsecured"])
def tokens(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    directory = tmp_path_factory.mktemp("oauthbearer")
    if request.param == "signed":
        pytest.importorskip("jwt", reason="PyJWT is an extra")
        issuer = Issuer()
        (directory / "keys.json").write_bytes(key_set(issuer.jwk()))
        sign: Callable[[dict[str, Any]], str] = issuer.sign
        settings = {
            "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
            "sasl.oauthbearer.expected.issuer": "https://issuer.example",
            "sasl.oauthbearer.expected.audience": "kafka",
        }
    else:
        sign = partial(unsigned, {"alg": "none"})
        settings = {
            "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
                "OAuthBearerUnsecuredValidatorCallbackHandler"
            ),
        }
    with SaslBroker(directory, **{"sasl.enabled.mechanisms": "OAUTHBEARER", **settings}) as broker:
        yield Tokens(broker, sign)


def claims(**changed: Any) -> dict[str, Any]:
    now_s = int(time.time())
    return {**CLAIMS, "iat": now_s, "exp": now_s + 600, **changed}


@pytest.mark.parametrize("client_name", CLIENTS)
def test_a_client_with_a_token_produces_and_consumes(tokens: Tokens, client_name: str) -> None:
    login = Login("OAUTHBEARER", token=tokens.sign(claims()))
    client = connect(client_name, tokens.broker.sasl_bootstrap, login)
    topic = f"sasl-{uuid.uuid4().hex[:8]}"
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"%d" % number) for number in range(10)])
    assert values(client.consume_all(topic)) == [b"%d" % number for number in range(10)]


def test_a_token_that_has_expired_lets_nobody_in(tokens: Tokens) -> None:
    expired = first_message(tokens.sign(claims(iat=1_600_000_000, exp=1_600_000_600)))
    with RawClient(tokens.broker.sasl_bootstrap) as client:
        client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        refusal = bytes(client.ask(SaslAuthenticateRequest(auth_bytes=expired), 2).auth_bytes)
        assert refusal == b'{"status":"invalid_token"}'
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=b"\1"), 2)
        assert (answer.error_code, answer.error_message) == (58, refusal.decode())
