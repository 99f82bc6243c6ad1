"""A broker process whose clients authenticate by SASL on one of its listeners."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dev.broker_process import BrokerProcess, port_below_client_ports
from protocol.messages.scram_credentials import AlterUserScramCredentialsRequest
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
