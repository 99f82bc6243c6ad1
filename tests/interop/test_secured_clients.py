"""Clients that share no code, in several languages, say who they are: each makes a topic, writes to it and reads it.

kafka-python, confluent-kafka (librdkafka) and aiokafka are in ``tests/end_to_end``, Kafka's tools in `test_java_sasl`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop import programs
from tests.interop.conftest import installed
from tests.interop.test_kafkajs import SCRIPT
from tests.support.sasl_broker import MECHANISMS, SaslBroker

NUMBERS = [str(number) for number in range(10)]


@pytest.fixture(scope="module")
def sasl_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    broker = SaslBroker(tmp_path_factory.mktemp("sasl"))
    broker.start()
    broker.set_password("alice", "wonder")
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture
def topic() -> str:
    return f"sasl-{uuid.uuid4().hex[:8]}"


def franz_go(bootstrap: str, topic: str, mechanism: str) -> list[str]:
    client = installed(programs.franz_go)
    login = ("-mechanism", mechanism, "-user", "alice", "-password", "wonder")
    words = (client, "-bootstrap", bootstrap, "-topic", topic, "-count", str(len(NUMBERS)), *login)
    return programs.run(words).done().lines


def kcat(bootstrap: str, topic: str, mechanism: str) -> list[str]:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    login |= {"sasl.username": "alice", "sasl.password": "wonder"}
    options = [word for key, value in login.items() for word in ("-X", f"{key}={value}")]
    command = [installed(programs.kcat), "-b", bootstrap, *options, "-t", topic]
    programs.run([*command, "-P"], stdin="\n".join(NUMBERS).encode()).done()
    return programs.run([*command, "-C", "-q", "-e"]).done().lines


def kafkajs(bootstrap: str, topic: str, mechanism: str) -> list[str]:
    node, directory = installed(programs.kafkajs)
    login = {"sasl": {"mechanism": mechanism.lower(), "username": "alice", "password": "wonder"}}

    def call(client: str, name: str, *arguments: object, **options: object) -> Any:
        asked = {"client": client, "options": options, "call": name, "arguments": arguments, "connection": login}
        words = ("env", f"NODE_PATH={directory / 'node_modules'}", node, str(SCRIPT), bootstrap)
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
    assert sorted(CLIENTS[client](sasl_broker.sasl_bootstrap, topic, mechanism)) == NUMBERS
