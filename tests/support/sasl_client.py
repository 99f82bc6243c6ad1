"""A broker whose clients authenticate, and what they say to it."""

from collections.abc import Callable
from typing import Any, Final

from broker.network.connection import Connection
from broker.security.sasl.scram import ScramHash
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.messages.scram_credentials import AlterUserScramCredentialsRequest
from tests.support.broker import Client, InProcessBroker
from tests.support.scram_client import ScramClient

LISTENERS: Final = {
    "listeners": "SASL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder" user_bob="build";'
    ),
}
ALICE: Final = b"\0alice\0wonder"
BOB: Final = b"\0bob\0build"


class SaslClient:
    """A connection to the listener with SASL."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        self.client: Client = broker.connect("SASL")

    @property
    def connection(self) -> Connection:
        return self.client.connection

    @property
    def principal(self) -> str:
        return self.connection.session.principal

    @property
    def is_let_in(self) -> bool:
        return self.connection.session.is_authenticated

    def ask(self, request: object, version: int) -> Any:
        return self.client.ask(request, version)

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return self.client.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def token(self, token: bytes, version: int = 2) -> Any:
        return self.client.ask(SaslAuthenticateRequest(auth_bytes=token), version)

    def send_token(self, token: bytes, version: int = 2) -> None:
        """Send a token whose answer comes later."""
        self.client.send(SaslAuthenticateRequest(auth_bytes=token), version)
        self.broker.settle()

    def raw(self, token: bytes) -> bytes:
        """Send a bare token and return the answer to it."""
        self.client.send_bytes(len(token).to_bytes(4) + token)
        return self.client.receive_payload()

    def log_in(self, token: bytes = ALICE, version: int = 2) -> Any:
        """Authenticate by PLAIN; the last answer."""
        self.handshake()
        return self.token(token, version)

    def is_served(self) -> bool:
        """Whether requests of any API are answered."""
        return bool(
            self.client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3).api_keys
        )

    def fails_after_a_while(self, receive: Callable[[], Any]) -> Any:
        """Nothing is answered until the delay of failures is over; then ``receive`` gets the last there is."""
        assert self.client.has_no_answer()
        assert not self.connection.is_closed
        self.broker.clock.advance(99)
        assert self.client.has_no_answer()
        self.broker.clock.advance(1)
        answer = receive()
        assert self.client.is_closed()
        return answer


def log_in_by_scram(client: SaslClient, user: str, password: str, hash_: ScramHash) -> Any:
    """Authenticate by SCRAM; the last answer."""
    client.handshake(hash_.value)
    scram = ScramClient(user, password, hash_)
    final = scram.final(client.token(scram.first()).auth_bytes)
    client.send_token(final)
    client.broker.clock.advance(100)
    answer = client.client.receive()
    assert answer.error_code or scram.believes(answer.auth_bytes)
    return answer


def set_password(broker: InProcessBroker, user: str, salted_password: bytes, hash_: ScramHash, salt: bytes) -> None:
    """Give a user a SCRAM credential, through the listener without SASL."""
    upsertion = AlterUserScramCredentialsRequest.Upsertion(
        name=user,
        mechanism=1 if hash_ is ScramHash.SHA_256 else 2,
        iterations=4096,
        salt=salt,
        salted_password=salted_password,
    )
    answer = broker.connect("PLAINTEXT").ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0)
    assert [result.error_code for result in answer.results] == [0]
