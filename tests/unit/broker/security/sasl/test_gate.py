"""The states of a connection on a SASL listener, as Kafka 4.4.0 has them unless a test says otherwise."""

import hashlib
import logging

import pytest

from broker.security.sasl.scram import ScramHash
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.headers import encode_request
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.messages.scram_credentials import AlterUserScramCredentialsRequest
from tests.support.broker import ConnectionClosed, InProcessBroker
from tests.support.sasl_client import (
    ALICE,
    BOB,
    LISTENERS,
    SaslClient,
    log_in_by_scram,
    set_password,
)

pytestmark = pytest.mark.settings(**LISTENERS)

VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture
def client(broker: InProcessBroker) -> SaslClient:
    return SaslClient(broker)


# The way in


@serves(SaslAuthenticateRequest)
@every_version(SaslAuthenticateRequest)
def test_a_client_authenticates_and_is_served(client: SaslClient, version: int) -> None:
    assert client.ask(VERSIONS, 3).api_keys
    answer = client.handshake()
    assert (answer.error_code, answer.mechanisms) == (E.NONE, MECHANISMS)
    assert not client.is_let_in
    answer = client.token(ALICE, version)
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (E.NONE, b"", 0)
    assert client.is_let_in
    assert client.principal == "User:alice"
    assert client.ask(MetadataRequest(topics=[]), 12).brokers


@serves(SaslHandshakeRequest, versions=[0])
def test_behind_the_first_version_of_the_handshake_tokens_are_bare(client: SaslClient) -> None:
    assert client.handshake(version=0).error_code == E.NONE
    assert client.raw(ALICE) == b""
    assert client.principal == "User:alice"
    assert client.is_served()


@pytest.mark.parametrize("hash_", list(ScramHash))
def test_a_user_logs_in_with_the_password_that_an_administrator_has_set(
    broker: InProcessBroker, client: SaslClient, hash_: ScramHash
) -> None:
    salted = hashlib.pbkdf2_hmac(hash_.digest, b"wonder", b"salt", 4096)
    set_password(broker, "alice", salted, hash_, b"salt")
    assert log_in_by_scram(client, "alice", "wonder", hash_).error_code == E.NONE
    assert client.principal == "User:alice"
    assert client.is_served()


def test_a_deleted_credential_lets_nobody_in_any_more(broker: InProcessBroker, client: SaslClient) -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"wonder", b"salt", 4096)
    set_password(broker, "alice", salted, ScramHash.SHA_256, b"salt")
    deletion = AlterUserScramCredentialsRequest.Deletion(name="alice", mechanism=1)
    broker.connect().ask(AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]), 0)
    answer = log_in_by_scram(client, "alice", "wonder", ScramHash.SHA_256)
    assert answer.error_code == E.SASL_AUTHENTICATION_FAILED
    assert not client.is_let_in


def test_a_credential_of_one_hash_is_none_of_the_other(broker: InProcessBroker, client: SaslClient) -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"wonder", b"salt", 4096)
    set_password(broker, "alice", salted, ScramHash.SHA_256, b"salt")
    answer = log_in_by_scram(client, "alice", "wonder", ScramHash.SHA_512)
    assert (answer.error_code, answer.error_message) == (
        E.SASL_AUTHENTICATION_FAILED,
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512",
    )


def test_the_salt_of_a_name_without_a_credential_stays_the_same(broker: InProcessBroker) -> None:
    """Kafka refuses the first message of such a name, which tells that there is no such user."""
    asked = []
    for _ in range(2):
        client = SaslClient(broker)
        client.handshake("SCRAM-SHA-256")
        asked.append(client.token(b"n,,n=mallory,r=abc").auth_bytes.split(b",")[1:])
    assert asked[0] == asked[1]


# Failures


@serves(SaslAuthenticateRequest, E.SASL_AUTHENTICATION_FAILED)
@every_version(SaslAuthenticateRequest)
def test_a_wrong_password_is_answered_late_and_is_the_end(client: SaslClient, version: int) -> None:
    client.handshake()
    client.send_token(b"\0alice\0wunder", version)
    answer = client.fails_after_a_while(client.client.receive)
    assert (answer.error_code, answer.error_message) == (
        E.SASL_AUTHENTICATION_FAILED,
        "Authentication failed: Invalid username or password",
    )
    assert not client.is_let_in


def test_a_wrong_bare_token_closes_late_without_an_answer(client: SaslClient) -> None:
    client.handshake(version=0)
    client.client.send_bytes(len(BOB).to_bytes(4) + BOB[:-1] + b"x")
    client.broker.settle()
    client.fails_after_a_while(lambda: None)


@serves(SaslHandshakeRequest, E.UNSUPPORTED_SASL_MECHANISM)
@every_version(SaslHandshakeRequest)
@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", ""])
def test_a_mechanism_that_the_listener_does_not_have_is_the_end(
    client: SaslClient, mechanism: str, version: int
) -> None:
    answer = client.handshake(mechanism, version)
    assert (answer.error_code, answer.mechanisms) == (E.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    assert client.client.is_closed()


@pytest.mark.parametrize(
    ("request_", "version"),
    [(MetadataRequest(topics=None), 12), (SaslAuthenticateRequest(auth_bytes=ALICE), 2)],
)
@pytest.mark.parametrize("knows_versions", [False, True])
def test_before_the_handshake_nothing_else_is_served(
    client: SaslClient, knows_versions: bool, request_: object, version: int
) -> None:
    if knows_versions:
        client.ask(VERSIONS, 3)
    with pytest.raises(ConnectionClosed):
        client.ask(request_, version)
    assert not client.is_let_in


def test_versions_are_told_once_before_authentication(client: SaslClient) -> None:
    client.client.send_bytes(encode_request(1, "x", VERSIONS, 3).replace(b"\0\x12\0\3", b"\0\x12\0\x63"))
    assert client.client.receive_payload()[4:6] == b"\0\x23"  # an unsupported version does not count
    assert client.ask(VERSIONS, 3).api_keys
    with pytest.raises(ConnectionClosed):
        client.ask(VERSIONS, 3)


@serves(ApiVersionsRequest, E.ILLEGAL_SASL_STATE, versions=[3])
@serves(SaslHandshakeRequest, E.ILLEGAL_SASL_STATE, versions=[1])
def test_between_handshake_and_token_another_request_is_refused_and_is_the_end(broker: InProcessBroker) -> None:
    for request, version in ((VERSIONS, 3), (SaslHandshakeRequest(mechanism="PLAIN"), 1)):
        client = SaslClient(broker)
        client.handshake()
        assert client.ask(request, version).error_code == E.ILLEGAL_SASL_STATE
        assert client.client.is_closed()
        assert not client.is_let_in


@serves(SaslAuthenticateRequest, E.ILLEGAL_SASL_STATE, versions=[2])
@serves(SaslHandshakeRequest, E.ILLEGAL_SASL_STATE, versions=[1])
def test_after_authentication_further_tokens_are_refused_and_the_connection_goes_on(client: SaslClient) -> None:
    client.log_in()
    answer = client.token(BOB)
    assert (answer.error_code, answer.error_message) == (
        E.ILLEGAL_SASL_STATE,
        "SaslAuthenticate request received after successful authentication",
    )
    answer = client.handshake()
    assert (answer.error_code, answer.mechanisms) == (E.ILLEGAL_SASL_STATE, [])
    assert client.principal == "User:alice"
    assert client.is_served()


# Bounds


def test_a_client_that_is_not_authenticated_has_one_request_under_way(client: SaslClient) -> None:
    handshake = encode_request(1, "x", SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = encode_request(2, "x", SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    after = encode_request(3, "x", MetadataRequest(topics=[]), 12)
    client.client.send_bytes(handshake + token + after * 3)
    answered = [client.client.receive_payload()[:4] for _ in range(5)]
    assert answered == [number.to_bytes(4) for number in (1, 2, 3, 3, 3)]
    assert client.connection.max_in_flight == 64


def test_what_stands_behind_a_failure_is_not_read(client: SaslClient) -> None:
    handshake = encode_request(1, "x", SaslHandshakeRequest(mechanism="PLAIN"), 1)
    wrong = encode_request(2, "x", SaslAuthenticateRequest(auth_bytes=b"\0alice\0x"), 2)
    right = encode_request(3, "x", SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    client.client.send_bytes(handshake + wrong + right)
    assert client.client.receive_payload()[:4] == (1).to_bytes(4)
    assert client.fails_after_a_while(client.client.receive_payload)[:4] == (2).to_bytes(4)
    assert not client.is_let_in


@pytest.mark.parametrize("has_shaken_hands", [False, True])
def test_a_large_request_closes_without_being_read(client: SaslClient, has_shaken_hands: bool) -> None:
    if has_shaken_hands:
        client.handshake()
    client.client.send_bytes((524_289).to_bytes(4) + bytes(100))
    assert client.client.is_closed()
    assert client.broker.held_bytes == 0


def test_a_large_token_within_the_bound_is_a_wrong_password(client: SaslClient) -> None:
    client.handshake()
    client.send_token(b"\0alice\0" + b"x" * 500_000)
    assert client.fails_after_a_while(client.client.receive).error_code == E.SASL_AUTHENTICATION_FAILED
    assert client.broker.held_bytes == 0


def test_after_authentication_requests_may_be_as_large_as_any(client: SaslClient) -> None:
    client.log_in()
    client.client.send_bytes((600_000).to_bytes(4) + bytes(100))
    client.broker.settle()
    assert not client.connection.is_closed


def test_a_client_that_does_not_authenticate_in_time_is_closed(
    client: SaslClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka closes it when nothing has come or gone for connections.max.idle.ms."""
    client.ask(VERSIONS, 3)
    client.broker.clock.advance(59_999)
    client.client.send_bytes(b"\0")
    client.broker.settle()
    assert not client.connection.is_closed
    with caplog.at_level(logging.INFO):
        client.broker.clock.advance(1)
    assert client.client.is_closed()
    assert "has not authenticated in 60000 ms (ottla.authentication.timeout.ms)" in caplog.text


def test_a_client_that_has_authenticated_stays(client: SaslClient) -> None:
    client.log_in()
    client.broker.clock.advance(60_000)
    assert client.is_served()


@pytest.mark.parametrize("version", [0, 1])
def test_no_exchange_cut_short_lets_in(broker: InProcessBroker, version: int) -> None:
    handshake = encode_request(1, "x", SaslHandshakeRequest(mechanism="PLAIN"), version)
    token = encode_request(2, "x", SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    bare = len(ALICE).to_bytes(4) + ALICE
    whole = handshake + (token if version else bare)
    beside = SaslClient(broker)
    beside.log_in()
    for size in range(len(whole)):
        client = SaslClient(broker)
        client.client.send_bytes(whole[:size])
        broker.settle()
        assert not client.is_let_in
        broker.forget(client.client)
        assert client.connection.is_closed
    assert broker.held_bytes == 0
    assert beside.is_served()


def test_the_log_says_what_has_failed_once_and_no_secret(client: SaslClient, caplog: pytest.LogCaptureFixture) -> None:
    client.handshake()
    with caplog.at_level(logging.INFO):
        client.send_token(b"\0alice\0geheim")
        client.broker.clock.advance(100)
        client.broker.settle()
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [f"Closing {client.connection.peer}: PLAIN: Authentication failed: Invalid username or password"]
