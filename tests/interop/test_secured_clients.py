"""Clients that share no code, in several languages, over SASL and TLS: each makes a topic, writes to it and reads it.

kafka-python, confluent-kafka (librdkafka) and aiokafka are in ``tests/end_to_end``, Kafka's own tools and client in
`test_java_sasl` and `test_java_tls`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.interop import programs
from tests.interop.conftest import installed
from tests.interop.test_kafkajs import SCRIPT
from tests.support.clients import Login, Tls
from tests.support.sasl_broker import MECHANISMS, SaslBroker
from tests.support.tls_broker import WAYS, TlsBroker

NUMBERS = [str(number) for number in range(10)]


class Way(NamedTuple):
    """How a client reaches the broker, and who it says that it is."""

    bootstrap: str
    login: Login | None = None
    tls: Tls | None = None


@pytest.fixture(scope="module")
def sasl_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl")) as broker:
        broker.set_password("alice", "wonder")
        yield broker


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path_factory.mktemp("tls")) as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"secured-{uuid.uuid4().hex[:8]}"


def franz_go(way: Way, topic: str) -> list[str]:
    options = {"bootstrap": way.bootstrap, "topic": topic, "count": str(len(NUMBERS))}
    if way.login is not None:
        options |= {"mechanism": way.login.mechanism, "user": way.login.user, "password": way.login.password}
    if way.tls is not None:
        options["authority"] = way.tls.authority
        if way.tls.certificate:
            options |= {"certificate": way.tls.certificate, "key": way.tls.key}
    words = [word for name, value in options.items() for word in (f"-{name}", value)]
    return programs.run([installed(programs.franz_go), *words]).done().lines


def kcat(way: Way, topic: str) -> list[str]:
    options: dict[str, str] = {}
    if way.login is not None:
        options |= {"sasl.mechanism": way.login.mechanism}
        options |= {"sasl.username": way.login.user, "sasl.password": way.login.password}
    if way.tls is not None:
        options["ssl.ca.location"] = way.tls.authority
        if way.tls.certificate:
            options |= {"ssl.certificate.location": way.tls.certificate, "ssl.key.location": way.tls.key}
    transport = "PLAINTEXT" if way.tls is None else "SSL"
    options["security.protocol"] = transport if way.login is None else f"SASL_{transport}"
    words = [word for name, value in options.items() for word in ("-X", f"{name}={value}")]
    command = [installed(programs.kcat), "-b", way.bootstrap, *words, "-t", topic]
    programs.run([*command, "-P"], stdin="\n".join(NUMBERS).encode()).done()
    return programs.run([*command, "-C", "-q", "-e"]).done().lines


def kafkajs(way: Way, topic: str) -> list[str]:
    node, directory = installed(programs.kafkajs)
    connection: dict[str, Any] = {}
    if way.login is not None:
        login = {"username": way.login.user, "password": way.login.password}
        connection["sasl"] = {"mechanism": way.login.mechanism.lower(), **login}
    if way.tls is not None:
        connection["ssl"] = {"ca": [Path(way.tls.authority).read_text()]}
        if way.tls.certificate:
            connection["ssl"]["cert"] = Path(way.tls.certificate).read_text()
            connection["ssl"]["key"] = Path(way.tls.key).read_text()

    def call(client: str, name: str, *arguments: object, **options: object) -> Any:
        asked = {"client": client, "options": options, "call": name, "arguments": arguments, "connection": connection}
        words = ("env", f"NODE_PATH={directory / 'node_modules'}", node, str(SCRIPT), way.bootstrap)
        answer = json.loads(programs.run(words, stdin=json.dumps(asked).encode()).done().output)
        assert "error" not in answer, answer
        return answer["result"]

    call("producer", "send", {"topic": topic, "messages": [{"value": number} for number in NUMBERS]})
    received = call("consumer", "receive", topic, len(NUMBERS), groupId=topic)
    return [record["value"] for record in received]


CLIENTS = {"franz-go": franz_go, "kcat": kcat, "kafkajs": kafkajs}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_with_its_password_produces_and_consumes(
    sasl_broker: SaslBroker, topic: str, client: str, mechanism: str
) -> None:
    way = Way(sasl_broker.sasl_bootstrap, Login(mechanism, "alice", "wonder"))
    assert sorted(CLIENTS[client](way, topic)) == NUMBERS


@pytest.mark.parametrize("listener", WAYS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_over_tls_produces_and_consumes(tls_broker: TlsBroker, topic: str, client: str, listener: str) -> None:
    login = Login("PLAIN", "alice", "wonder") if listener == "SASL_SSL" else None
    way = Way(tls_broker.bootstrap_of(listener), login, tls_broker.client("alice" if listener == "MUTUAL" else None))
    assert sorted(CLIENTS[client](way, topic)) == NUMBERS
