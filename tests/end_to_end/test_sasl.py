"""Stock clients authenticate by SASL in their default configuration; the broker is a process as users have it."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess, port_below_client_ports
from protocol.messages.scram_credentials import AlterUserScramCredentialsRequest
from tests.support.clients import CLIENTS, Login, Record, connect, values
from tests.support.raw_client import RawClient

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class SaslBroker(BrokerProcess):
    """A broker with a listener for administrators, and one whose clients authenticate."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.arguments: list[str] = []
        """Of the command line, behind the settings."""
        self.sasl_port = port_below_client_ports()
        plain = port_below_client_ports(above=self.sasl_port)
        super().__init__(
            directory,
            port=plain,
            settings={
                "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{self.sasl_port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "listener.name.sasl.plain.sasl.jaas.config": (
                    'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder";'
                ),
                **settings,
            },
        )

    @property
    def sasl_bootstrap(self) -> str:
        return f"127.0.0.1:{self.sasl_port}"

    def command(self) -> list[str]:
        return [*super().command(), *self.arguments]

    def set_password(self, user: str, password: str) -> None:
        """Give a user the same password for both mechanisms of SCRAM."""
        for code, digest in ((1, "sha256"), (2, "sha512")):
            salted = hashlib.pbkdf2_hmac(digest, password.encode(), b"a salt", 4096)
            upsertion = AlterUserScramCredentialsRequest.Upsertion(
                name=user, mechanism=code, iterations=4096, salt=b"a salt", salted_password=salted
            )
            with RawClient(self.bootstrap) as client:
                request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
                assert [result.error_code for result in client.ask(request, 0).results] == [0]


@pytest.fixture(scope="module")
def sasl_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    broker = SaslBroker(tmp_path_factory.mktemp("sasl"))
    broker.start()
    broker.set_password("alice", "wonder")
    try:
        yield broker
    finally:
        broker.close()


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
