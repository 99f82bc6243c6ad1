"""SaslHandshake and SaslAuthenticate through the codec, over a listener without SASL."""

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.support.broker import InProcessBroker


@serves(SaslHandshakeRequest, E.ILLEGAL_SASL_STATE)
@every_version(SaslHandshakeRequest)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", ""])
def test_no_mechanism_is_offered(broker: InProcessBroker, mechanism: str, version: int) -> None:
    answer = broker.ask(SaslHandshakeRequest(mechanism=mechanism), version)
    assert (answer.error_code, answer.mechanisms) == (E.ILLEGAL_SASL_STATE, [])


@serves(SaslAuthenticateRequest, E.ILLEGAL_SASL_STATE)
@every_version(SaslAuthenticateRequest)
def test_nobody_has_to_authenticate_and_the_connection_goes_on(broker: InProcessBroker, version: int) -> None:
    client = broker.connect()
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=b"\0user\0password"), version)
    assert (answer.error_code, answer.auth_bytes) == (E.ILLEGAL_SASL_STATE, b"")
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert client.ask(MetadataRequest(topics=[]), 12).brokers
