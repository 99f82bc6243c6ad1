"""Metrics of clients that authenticate."""

import pytest

from tests.support.broker import InProcessBroker
from tests.support.metrics import now, scrape, shown, up
from tests.support.sasl_client import LISTENERS, SaslClient

PLACE = '{listener="SASL",networkProcessor="0"}'
SERVER = "kafka_server_socket_server_metrics"

pytestmark = pytest.mark.settings(**LISTENERS, **{"listener.name.sasl.plain.connections.max.reauth.ms": "10000"})


def test_clients_that_authenticate_are_counted(broker: InProcessBroker) -> None:
    client = SaslClient(broker)
    broker.advance(1_000)
    with shown(
        broker,
        {
            f"{SERVER}_successful_authentication_total{PLACE}": up(1),
            f"{SERVER}_successful_authentication_rate{PLACE}": now(1.0),
            f"{SERVER}_successful_authentication_no_reauth_total{PLACE}": up(1),
        },
    ):
        client.log_in(version=0)
    other = '{listener="PLAINTEXT",networkProcessor="0"}'
    assert scrape(broker)[f"{SERVER}_successful_authentication_total{other}"] == 0


def test_clients_that_do_not_are_counted_too(broker: InProcessBroker) -> None:
    client = SaslClient(broker)
    broker.advance(1_000)
    with shown(
        broker,
        {f"{SERVER}_failed_authentication_total{PLACE}": up(1), f"{SERVER}_failed_authentication_rate{PLACE}": up()},
    ):
        client.handshake()
        client.send_token(b"\0alice\0wunder")
    broker.advance(100)  # the answer comes late


def test_clients_that_authenticate_again_are_counted_apart(broker: InProcessBroker) -> None:
    client = SaslClient(broker)
    client.log_in()
    broker.advance(1_000)
    with shown(
        broker,
        {
            f"{SERVER}_successful_reauthentication_total{PLACE}": up(1),
            f"{SERVER}_successful_reauthentication_rate{PLACE}": up(),
            f"{SERVER}_reauthentication_latency_avg{PLACE}": now(40.0),
        },
    ):
        client.handshake()
        broker.advance(40)
        client.token(b"\0alice\0wonder")
    broker.advance(1_000)
    with shown(
        broker,
        {
            f"{SERVER}_failed_reauthentication_total{PLACE}": up(1),
            f"{SERVER}_failed_reauthentication_rate{PLACE}": up(),
        },
    ):
        client.handshake()
        client.send_token(b"\0alice\0wunder")
    broker.advance(100)  # the answer comes late


def test_connections_whose_session_is_over_are_counted(broker: InProcessBroker) -> None:
    client = SaslClient(broker)
    client.log_in()
    broker.clock.advance(10_000)
    with shown(
        broker,
        {
            f"{SERVER}_expired_connections_killed_count{PLACE}": up(1),
            "kafka_network_socketserver_expiredconnectionskilledcount": up(1),
        },
    ):
        client.client.send_bytes(bytes.fromhex("00000014 0003 0001 00000001 0004") + b"test" + bytes(6))
        assert client.client.is_closed()
