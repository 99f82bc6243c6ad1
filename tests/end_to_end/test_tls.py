"""Stock clients over TLS in their default configuration; the broker is a process as users have it."""

from __future__ import annotations

import socket
import ssl
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from protocol.messages.configs import IncrementalAlterConfigsRequest
from tests.support.certificates import written
from tests.support.clients import CLIENTS, Login, Record, connect, values
from tests.support.raw_client import RawClient
from tests.support.tls_broker import KEYSTORE, WAYS, TlsBroker

BROKER, SET = 4, 0


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path_factory.mktemp("tls")) as broker:
        yield broker


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client_name", CLIENTS)
def test_a_client_produces_and_consumes(tls_broker: TlsBroker, client_name: str, way: str) -> None:
    login = Login("PLAIN", "alice", "wonder") if way == "SASL_SSL" else None
    tls = tls_broker.client("alice" if way == "MUTUAL" else None)
    client = connect(client_name, tls_broker.bootstrap_of(way), login, tls)
    topic = f"tls-{uuid.uuid4().hex[:8]}"
    client.create_topic(topic)
    sent = [b"%d" % number * 20_000 for number in range(20)]
    client.produce(topic, [Record(value=value) for value in sent])
    assert values(client.consume_all(topic)) == sent


def test_a_client_without_a_certificate_is_not_let_in(tls_broker: TlsBroker) -> None:
    """aiokafka; the others try again for half a minute."""
    client = connect("aiokafka", tls_broker.bootstrap_of("MUTUAL"), None, tls_broker.client())
    with pytest.raises(Exception, match="Unable to bootstrap"):
        client.topics()
    assert "its handshake on MUTUAL has failed: peer did not return a certificate" in tls_broker.log_text()


def shown_by(broker: TlsBroker) -> bytes:
    """The certificate that the broker shows now."""
    context = ssl.create_default_context(cafile=broker.trusted)
    with (
        socket.create_connection(("127.0.0.1", broker.ports["SSL"])) as wire,
        context.wrap_socket(wire, server_hostname="localhost") as tls,
    ):
        return tls.getpeercert(binary_form=True) or b""


def set_keystore(broker: TlsBroker, path: str) -> tuple[int, str | None]:
    change = IncrementalAlterConfigsRequest.Resource.Config(name=KEYSTORE, config_operation=SET, value=path)
    resource = IncrementalAlterConfigsRequest.Resource(resource_type=BROKER, resource_name="1", configs=[change])
    with RawClient(broker.bootstrap) as client:
        (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1).responses
    return answer.error_code, answer.error_message


def test_a_certificate_is_changed_while_the_broker_runs(tls_broker: TlsBroker) -> None:
    first = shown_by(tls_broker)
    path = tls_broker.directory / "next.pem"
    assert set_keystore(tls_broker, written(path, tls_broker.authority.issue().pem())) == (0, None)
    second = shown_by(tls_broker)
    assert set_keystore(tls_broker, written(path, tls_broker.authority.issue().pem())) == (0, None)
    third = shown_by(tls_broker)
    assert len({first, second, third}) == 3
    expired = tls_broker.authority.issue(lasts=timedelta(minutes=-1))
    code, message = set_keystore(tls_broker, written(tls_broker.directory / "expired.pem", expired.pem()))
    assert code == 42
    assert "expired on" in (message or "")
    assert shown_by(tls_broker) == third
