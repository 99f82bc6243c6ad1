"""Metrics of connections, queues, and of idle time."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker.metrics.network import MOST_SOFTWARE, Network
from broker.metrics.series import Samples
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.broker import InProcessBroker
from tests.support.metrics import now, scrape, shown, up
from tests.support.requests import fetch_request

PLACE = '{listener="PLAINTEXT",networkProcessor="0"}'
SERVER = "kafka_server_socket_server_metrics"


def read(source: Network) -> dict[str, Samples]:
    """What a source says this very moment, without a turn of the loop."""
    return {samples.family.name: samples for samples in source.collect()}


@contextmanager
def dialled(broker: InProcessBroker, *, count: int = 1) -> Iterator[list[socket.socket]]:
    """Connections through the broker's own listener, each with its first bytes sent."""
    sockets = []
    try:
        for _ in range(count):
            ours = socket.create_connection(("127.0.0.1", broker.server.socket_server.acceptors[0].port))
            sockets.append(ours)
        yield sockets
    finally:
        for ours in sockets:
            ours.close()
        broker.settle()


def test_connections_are_counted_by_listener_and_processor(broker: InProcessBroker) -> None:
    broker.settle()
    with shown(
        broker,
        {
            f"{SERVER}_connection_count{PLACE}": now(1),
            f"{SERVER}_connection_creation_total{PLACE}": up(1),
            f"{SERVER}_connection_creation_rate{PLACE}": up(),
        },
    ):
        client = broker.connect()
        broker.advance(100)
    with shown(
        broker,
        {
            f"{SERVER}_connection_count{PLACE}": now(0),
            f"{SERVER}_connection_close_total{PLACE}": up(1),
            f"{SERVER}_connection_close_rate{PLACE}": up(),
        },
    ):
        client.close()
    page = scrape(broker)
    for processor in ("1", "2"):
        assert page[f'{SERVER}_connection_count{{listener="PLAINTEXT",networkProcessor="{processor}"}}'] == 0


def test_requests_and_answers_and_their_bytes_are_counted(broker: InProcessBroker) -> None:
    client = broker.connect()
    broker.advance(1_000)
    with shown(
        broker,
        {
            f"{SERVER}_request_total{PLACE}": up(1),
            f"{SERVER}_response_total{PLACE}": up(1),
            f"{SERVER}_incoming_byte_total{PLACE}": up(4 + 20),
            f"{SERVER}_outgoing_byte_total{PLACE}": up(),
            f"{SERVER}_request_rate{PLACE}": now(1.0),
            f"{SERVER}_response_rate{PLACE}": now(1.0),
            f"{SERVER}_incoming_byte_rate{PLACE}": now(24.0),
            f"{SERVER}_outgoing_byte_rate{PLACE}": up(),
            f"{SERVER}_request_size_avg{PLACE}": now(24.0),
        },
    ):
        client.send_bytes(bytes.fromhex("00000014 0003 0001 00000001 0004") + b"test" + bytes.fromhex("00000000 0000"))
        client.receive_payload()


def test_what_clients_call_themselves_is_told(broker: InProcessBroker) -> None:
    unknown = 'clientSoftwareName="unknown",clientSoftwareVersion="unknown",listener="PLAINTEXT",networkProcessor="0"'
    named = 'clientSoftwareName="apache-kafka-java",clientSoftwareVersion="4.3.1",listener="PLAINTEXT"'
    client = broker.connect()
    with shown(
        broker,
        {
            f'{SERVER}_connections_software{{{named},networkProcessor="0"}}': now(1),
            f"{SERVER}_connections_software{{{unknown}}}": now(0),
        },
    ):
        client.ask(ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.3.1"), 4)


def test_clients_that_each_call_themselves_otherwise_do_not_fill_the_page(broker: InProcessBroker) -> None:
    for number in range(MOST_SOFTWARE + 20):
        request = ApiVersionsRequest(client_software_name=f"client{number}", client_software_version="1")
        broker.connect().ask(request, 4)
    assert len(scrape(broker).labelled(f"{SERVER}_connections_software")) == MOST_SOFTWARE


@pytest.mark.settings(connections_max_idle_ms=1_000)
def test_connections_that_idle_out_are_counted(broker: InProcessBroker) -> None:
    broker.connect()
    for connection in broker.server.socket_server.processors[0]:
        connection.last_active_us -= 2_000_000  # the time of connections is the system's, and not the test's
    with shown(broker, {'ottla_network_connections_idled_out_total{listener="PLAINTEXT"}': up(1)}):
        broker.advance(2_000)


def test_accepted_connections_have_a_rate(broker: InProcessBroker) -> None:
    broker.advance(10_000)
    with (
        shown(
            broker,
            {
                f'{SERVER}_connection_accept_rate{{listener="PLAINTEXT"}}': now(0.2),
                f"{SERVER}_broker_connection_accept_rate": now(0.2),
            },
        ),
        dialled(broker, count=2),
    ):
        broker.wait_until(lambda: broker.server.socket_server.acceptors[0].stats.accepted == 2)


@pytest.mark.settings(max_connections_per_ip=1)
def test_connections_that_are_turned_away_are_counted(broker: InProcessBroker) -> None:
    with (
        shown(broker, {'ottla_network_connections_refused_total{listener="PLAINTEXT"}': up(1)}),
        dialled(broker, count=2),
    ):
        broker.wait_until(lambda: broker.server.socket_server.acceptors[0].stats.refused == 1)


@pytest.mark.settings(max_connections=1)
def test_the_time_in_which_nobody_gets_in_is_counted_in_nanoseconds(broker: InProcessBroker) -> None:
    blocked = 'kafka_network_acceptor_acceptorblockedpercent_count{listener="PLAINTEXT"}'
    with shown(broker, {blocked: up(70_000_000)}), dialled(broker, count=2) as (first, _):
        broker.wait_until(lambda: broker.server.socket_server.acceptors[0]._blocked_since_ms is not None)
        broker.advance(70)
        first.close()
        broker.wait_until(lambda: broker.server.socket_server.acceptors[0].stats.accepted == 2)


def test_memory_that_requests_hold_is_told(broker: InProcessBroker) -> None:
    limit = broker.server.socket_server.processors[0].memory.limit_bytes
    client = broker.connect()
    client.send_bytes((1_000_000).to_bytes(4, "big") + bytes(500_000))
    broker.settle()
    page = scrape(broker)
    held = page["kafka_network_socketserver_memorypoolused"]
    assert held >= 500_000
    assert page["kafka_network_socketserver_memorypoolavailable"] == limit - held
    client.close()
    assert scrape(broker)["kafka_network_socketserver_memorypoolused"] == 0


def test_requests_that_wait_for_a_handler_are_told(broker: InProcessBroker) -> None:
    assert scrape(broker)["kafka_network_requestchannel_requestqueuesize"] == 0
    assert broker.server.metric_sources.handlers is not None

    async def without_handlers() -> None:
        assert broker.server.metric_sources.handlers is not None
        broker.server.metric_sources.handlers.resize(0)

    broker.run(without_handlers())
    client = broker.connect()
    for _ in range(3):
        client.send(MetadataRequest(topics=None), 12)
    broker.settle()
    assert scrape(broker)["kafka_network_requestchannel_requestqueuesize"] == 3


def test_connections_whose_answers_wait_for_their_turn_are_told(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    clients = [broker.connect(processor=processor) for processor in (0, 0, 1)]
    for client in clients:
        client.send(fetch_request("orders", max_wait_ms=500), 12)
    broker.settle()
    network = Network(broker.server.metric_sources)

    async def look_while_they_wait() -> Samples:
        broker.server.components.replicas.fetch_purgatory.expire_all()
        return read(network)["kafka_network_requestchannel_responsequeuesize"]

    waiting = dict(broker.run(look_while_they_wait()).values)
    assert waiting == {(): 3, ("0",): 2, ("1",): 1, ("2",): 0}
    page = scrape(broker)
    assert page["kafka_network_requestchannel_responsequeuesize"] == 0
    assert page['kafka_network_requestchannel_responsequeuesize{processor="1"}'] == 0


def test_handlers_and_processors_are_idle_for_the_part_of_the_others_time_that_they_do_not_need(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = broker.server.metric_sources.handlers
    assert handlers is not None
    started_us = 5_000_000
    busy_us = started_us
    monkeypatch.setattr("broker.metrics.network.loop_busy_us", lambda: busy_us)
    network = Network(broker.server.metric_sources)
    for _ in range(2):
        broker.server.metric_sources.period_is_over()

    def told(name: str) -> dict[tuple[str, ...], float]:
        return dict(read(network)[name].values)

    handlers.stats.busy_us += 4_000_000
    broker.server.socket_server.processors[0].stats.busy_us += 1_000_000
    busy_us += 6_000_000
    broker.clock.advance(10_000)

    assert told("ottla_loop_busy_ratio") == {(): pytest.approx(0.6, rel=0.01)}
    name = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
    assert told(name) == {(): pytest.approx(0.4 / 0.8, rel=0.05)}
    assert told("kafka_server_kafkarequesthandlerpool_brokerrequesthandleravgidle_percent") == told(name)
    of_processors = told("kafka_network_processor_idle_percent")
    assert of_processors[("0",)] == pytest.approx(0.4 / 0.5, rel=0.05)
    assert of_processors[("1",)] == pytest.approx(1.0, rel=0.05)
    assert told("kafka_network_socketserver_networkprocessoravgidle_percent") == {
        (): pytest.approx(sum(of_processors.values()) / 3)
    }

    busy_us += 100_000_000  # more than there was: nothing is left to anybody
    assert told("ottla_loop_busy_ratio") == {(): 1.0}
    assert told(name) == {(): 0.0}


def test_requests_make_handlers_processors_and_the_loop_less_idle(broker: InProcessBroker) -> None:
    before = scrape(broker)
    broker.create_topic("orders")
    for _ in range(50):
        broker.produce("orders", b"one")
    broker.advance(1_000)
    after = scrape(broker)
    for name in (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_brokerrequesthandleravgidle_percent",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        'kafka_network_processor_idle_percent{networkProcessor="0"}',
    ):
        assert 0 <= after[name] <= 1
        assert 0 <= before[name] <= 1
    assert 0 < after["ottla_loop_busy_ratio"] <= 1


def test_the_time_of_the_loop_is_this_threads(broker: InProcessBroker) -> None:
    from broker.metrics.network import loop_busy_us

    async def work() -> int:
        before = loop_busy_us()
        await asyncio.sleep(0)
        sum(range(2_000_000))
        return loop_busy_us() - before

    assert broker.run(work()) > 1_000
