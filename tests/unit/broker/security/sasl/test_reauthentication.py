"""A client authenticates again on the connection that it has (KIP-368), or loses it."""

from collections.abc import Iterator

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl import SaslHandshakeRequest
from tests.support.broker import ConnectionClosed, InProcessBroker
from tests.support.sasl_client import ALICE, BOB, LISTENERS, SaslClient

pytestmark = pytest.mark.settings(
    **LISTENERS,
    **{
        "listener.name.sasl.plain.connections.max.reauth.ms": "3000",
        "listener.name.sasl.scram-sha-256.connections.max.reauth.ms": "5000",
    },
)
VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[SaslClient]:
    """A client that has just authenticated."""
    client = SaslClient(broker)
    assert client.log_in().session_lifetime_ms == 3000
    yield client
    assert client.principal == "User:alice"


def test_the_session_ends_with_the_first_request_behind_its_time(client: SaslClient) -> None:
    client.broker.clock.advance(2999)
    assert client.is_served()
    client.broker.clock.advance(1)
    assert not client.connection.is_closed
    with pytest.raises(ConnectionClosed):
        client.ask(VERSIONS, 3)
    assert client.connection.authentication_stats.sessions_expired == 1


def test_a_client_that_authenticates_again_has_the_time_once_more(client: SaslClient) -> None:
    for _ in range(3):
        client.broker.clock.advance(2000)
        assert client.log_in().session_lifetime_ms == 3000
        assert client.is_served()
    stats = client.connection.authentication_stats
    assert (stats.successes, stats.successes_again, stats.failures_again) == (1, 3, 0)


def test_a_client_may_authenticate_again_though_its_time_is_over(client: SaslClient) -> None:
    client.broker.clock.advance(10_000)
    assert client.log_in().error_code == E.NONE
    assert client.is_served()


def test_a_client_may_authenticate_again_at_once_but_not_twice_in_a_second(client: SaslClient) -> None:
    assert client.log_in().error_code == E.NONE
    client.broker.clock.advance(999)
    assert client.handshake().error_code == E.ILLEGAL_SASL_STATE
    assert client.is_served()
    client.broker.clock.advance(1)
    assert client.log_in().error_code == E.NONE


def test_another_principal_is_refused_and_is_the_end(client: SaslClient) -> None:
    client.handshake()
    client.send_token(BOB)
    answer = client.fails_after_a_while(client.client.receive)
    assert (answer.error_code, answer.error_message) == (
        E.SASL_AUTHENTICATION_FAILED,
        "Cannot change principals during re-authentication from User.alice: User.bob",
    )
    assert client.connection.authentication_stats.failures_again == 1


def test_a_wrong_password_is_the_end(client: SaslClient) -> None:
    client.handshake()
    client.send_token(b"\0alice\0wunder")
    assert client.fails_after_a_while(client.client.receive).error_code == E.SASL_AUTHENTICATION_FAILED


def test_another_mechanism_ends_with_its_first_token(client: SaslClient) -> None:
    assert client.handshake("SCRAM-SHA-256").error_code == E.NONE
    with pytest.raises(ConnectionClosed):
        client.token(b"n,,n=alice,r=abc")


def test_an_unknown_mechanism_is_refused_and_is_the_end(client: SaslClient) -> None:
    """Kafka closes without an answer."""
    assert client.handshake("GSSAPI").error_code == E.UNSUPPORTED_SASL_MECHANISM
    assert client.client.is_closed()


def test_another_request_between_handshake_and_token_is_the_end(client: SaslClient) -> None:
    client.handshake()
    assert client.ask(MetadataRequest(topics=None), 12).brokers == []
    assert client.client.is_closed()


def test_a_client_that_cannot_be_told_of_its_time_has_it_all_the_same(client: SaslClient) -> None:
    old = SaslClient(client.broker)
    assert old.log_in(version=0).session_lifetime_ms == 0
    assert old.is_served()
    assert old.connection.authentication_stats.successes_without_lifetime == 1
    client.broker.clock.advance(3000)
    with pytest.raises(ConnectionClosed):
        old.ask(VERSIONS, 3)


def test_bare_tokens_authenticate_again_too(client: SaslClient) -> None:
    client.handshake(version=0)
    assert client.raw(ALICE) == b""
    assert client.is_served()


def test_requests_under_way_are_answered_first(client: SaslClient) -> None:
    requests = [(MetadataRequest(topics=[]), 12)] * 5 + [(SaslHandshakeRequest(mechanism="PLAIN"), 1)]
    for request, version in requests:
        client.client.send(request, version)
    answers = [client.client.receive() for _ in requests]
    assert all(answer.brokers for answer in answers[:5])
    assert client.token(ALICE).error_code == E.NONE


@pytest.mark.settings(**LISTENERS)
def test_without_an_end_there_is_nothing_to_authenticate_again(broker: InProcessBroker) -> None:
    client = SaslClient(broker)
    assert client.log_in().session_lifetime_ms == 0
    broker.clock.advance(10_000_000)
    assert client.handshake().error_code == E.ILLEGAL_SASL_STATE


def test_a_connection_that_is_gone_leaves_no_alarm(client: SaslClient) -> None:
    gone = SaslClient(client.broker)
    gone.log_in()
    client.broker.forget(gone.client)
    client.broker.clock.advance(3000)
    assert gone.connection.is_closed
    assert client.connection.authentication_stats.sessions_expired == 0
