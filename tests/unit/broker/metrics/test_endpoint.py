"""The metrics endpoint: its answers, and that clients cannot cost much."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.logs.loading import LogLoading
from broker.metrics import http
from broker.server.broker_server import BrokerServer, CannotStart
from config.broker_settings import BrokerSettings
from config.listen_address import METRICS_LISTENER, ListenAddress
from config.parse import load_settings
from dev.broker_process import port_below_client_ports
from tests.support.broker import InProcessBroker, running_broker
from tests.support.metrics import OPENMETRICS, Answer, Page, ask, get, metrics_port, read_answer, scrape, until


def exchange(broker: InProcessBroker, request: str, *, accept: str = "") -> Answer:
    answer: Answer = broker.run(ask(metrics_port(broker), request, accept=accept))
    return answer


def send(broker: InProcessBroker, content: bytes) -> Answer:
    """Send some bytes and read what comes back."""

    async def talk() -> Answer:
        reader, writer = await asyncio.open_connection("127.0.0.1", metrics_port(broker))
        writer.write(content)
        try:
            return await read_answer(reader)
        finally:
            writer.close()
            await writer.wait_closed()

    answer: Answer = broker.run(talk())
    return answer


# What it answers ------------------------------------------------------------------------------------------------------


def test_the_page_is_there_in_the_plain_text_format(broker: InProcessBroker) -> None:
    answer = get(broker, "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert Page(answer.text)["kafka_server_kafkaserver_brokerstate"] == 3


def test_the_page_is_there_as_openmetrics_for_who_asks_for_it(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"one")
    answer = get(broker, "/metrics", accept=OPENMETRICS)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
    assert answer.text.count("# EOF") == 1
    page = Page(answer.text, is_openmetrics=True)
    assert page['kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}'] == 1
    assert page.names() == scrape(broker).names()


def test_what_prometheus_sends_is_understood(broker: InProcessBroker) -> None:
    accept = (
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
        "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
        "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
    )
    answer = get(broker, "/metrics", accept=accept)
    assert answer.status == 200
    Page(answer.text, is_openmetrics=True)


def test_a_question_mark_and_what_follows_changes_nothing(broker: InProcessBroker) -> None:
    assert get(broker, "/metrics?name[]=up").status == 200


def test_who_asks_for_the_head_gets_the_head(broker: InProcessBroker) -> None:
    answer = exchange(broker, "HEAD /metrics HTTP/1.1")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 1_000


def test_it_is_healthy_and_ready_and_says_what_there_is(broker: InProcessBroker) -> None:
    assert get(broker, "/healthz")[::2] == (200, b"alive\n")
    assert get(broker, "/readyz")[::2] == (200, b"ready\n")
    assert get(broker, "/")[::2] == (200, b"Ottla: /metrics /healthz /readyz\n")


def test_it_is_not_ready_while_logs_are_loaded_and_says_how_far_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_broker(tmp_path) as broker:
        broker.create_topic("orders", partitions=3)
    seen: list[Answer] = []

    async def start() -> BrokerServer:
        settings = load_settings(
            None,
            [
                ("log.dirs", str(tmp_path)),
                ("listeners", "PLAINTEXT://127.0.0.1:0"),
                ("ottla.prometheus.listener", "127.0.0.1:0"),
            ],
        ).settings
        daemon = BrokerServer(settings)
        load_logs = LogLoading.run

        async def ask_while_they_are_loaded(loading: LogLoading, **arguments: Any) -> None:
            assert daemon.metrics is not None
            port = daemon.metrics.address.port
            seen.append(await ask(port, "GET /readyz HTTP/1.1"))
            await load_logs(loading, **arguments)
            seen.extend([await ask(port, f"GET {path} HTTP/1.1") for path in ("/readyz", "/healthz", "/metrics")])

        monkeypatch.setattr(LogLoading, "run", ask_while_they_are_loaded)
        await daemon.start()
        return daemon

    async def start_and_stop() -> None:
        daemon = await start()
        await daemon.stop()

    asyncio.run(start_and_stop())

    before, after, health, metrics = seen
    assert before[::2] == (503, b"loading logs: 0 of 0, 0 of 0 bytes checked\n")
    assert after[::2] == (503, b"loading logs: 3 of 3, 0 of 0 bytes checked\n")
    assert health.status == 200
    page = Page(metrics.text)
    assert page["kafka_server_kafkaserver_brokerstate"] == 2
    assert page[f'kafka_log_logmanager_logsloaded_total{{dir="{tmp_path}"}}'] == 3


def test_it_is_not_ready_any_more_once_it_stops(broker: InProcessBroker) -> None:
    readiness = broker.server.readiness
    broker.server.shutdown.ask()
    assert (readiness, broker.server.readiness) == (
        http.Readiness(True, "ready"),
        http.Readiness(False, "stopping"),
    )


@pytest.mark.settings(ottla_prometheus_listener="")
def test_without_a_listener_there_is_no_endpoint(broker: InProcessBroker) -> None:
    assert broker.server.metrics is None
    broker.create_topic("orders")


@pytest.mark.settings(ottla_prometheus_partitions="false")
def test_series_of_partitions_can_be_left_out(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"one")
    page = scrape(broker)
    assert not any("partition" in labels for labels in map(dict, (labels for _, labels in page.values)))
    assert page['kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}'] == 1


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /nowhere HTTP/1.1", 404),
        ("GET /metrics/ HTTP/1.1", 404),
        ("POST /metrics HTTP/1.1", 405),
        ("DELETE / HTTP/1.1", 405),
        ("GET /metrics", 400),
        ("GET /metrics HTTP/2", 400),
        ("GET  /metrics HTTP/1.1", 400),
        ("hello", 400),
        ("\x16\x03\x01 \x00 HTTP/1.", 405),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(
    broker: InProcessBroker, request_line: str, status: int
) -> None:
    answer = exchange(broker, request_line)
    assert answer.status == status
    assert answer.body
    assert get(broker, "/healthz").status == 200


def test_a_request_without_end_is_refused_when_it_is_too_long(broker: InProcessBroker) -> None:
    answer = send(broker, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000)
    assert answer.status == 431
    assert get(broker, "/healthz").status == 200


def test_who_stalls_is_left_and_costs_no_page(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_S", 0.05)

    async def stall() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", metrics_port(broker))
        writer.write(b"GET /metr")
        try:
            return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()

    assert broker.run(stall()) == b""
    assert broker.server.metrics is not None
    assert broker.server.metrics._pages is None


def test_who_hangs_up_in_the_middle_harms_nobody(broker: InProcessBroker) -> None:
    async def hang_up() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", metrics_port(broker))
        writer.write(b"GET /metrics HTTP/1.1\r\n")
        writer.transport.abort()
        await asyncio.sleep(0)

    broker.run(hang_up())
    assert get(broker, "/metrics").status == 200
    assert broker.server.failure is None


def test_a_thousand_scrapes_at_once_share_few_pages(broker: InProcessBroker) -> None:
    assert get(broker, "/metrics").status == 200
    assert broker.server.metrics is not None
    pages = broker.server.metrics._pages
    assert pages is not None
    made = 0
    make = pages._make

    async def counted(format: object) -> object:
        nonlocal made
        made += 1
        return await make(format)  # type: ignore[arg-type]

    pages._make = counted  # type: ignore[method-assign, assignment]

    async def scrape_together() -> list[Answer]:
        return await asyncio.gather(*[ask(metrics_port(broker), "GET /metrics HTTP/1.1") for _ in range(1_000)])

    answers = broker.run(scrape_together())
    assert {answer.status for answer in answers} == {200}
    assert all(int(answer.headers["content-length"]) == len(answer.body) for answer in answers)
    assert made <= 3 * 1_000 / http.MOST_CONNECTIONS
    assert not broker.server.metrics._readers


def test_no_more_than_so_many_are_served_at_a_time_and_the_others_have_their_turn(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "HEAD_S", 60.0)  # those that are silent are served until they go

    async def crowd() -> Answer:
        silent = [
            await asyncio.open_connection("127.0.0.1", metrics_port(broker)) for _ in range(http.MOST_CONNECTIONS)
        ]
        try:
            assert broker.server.metrics is not None
            await until(broker.server.metrics._connection_slots.locked)
            asking = asyncio.ensure_future(ask(metrics_port(broker), "GET /healthz HTTP/1.1"))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not asking.done(), "every place is taken"
            silent[0][1].close()
            return await asking
        finally:
            for _, writer in silent:
                writer.close()
                await writer.wait_closed()

    assert broker.run(crowd()).status == 200


def test_who_reads_slowly_is_left_when_the_page_kept_for_him_is_one_too_many(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MOST_PAGES", 2)
    assert get(broker, "/metrics").status == 200
    endpoint = broker.server.metrics
    assert endpoint is not None
    assert endpoint._pages is not None
    large = [bytes(1 << 20)] * 20

    async def make(format: object) -> object:
        from broker.metrics.pages import Page as MadePage

        return MadePage("text/plain", large)

    endpoint._pages._make = make  # type: ignore[method-assign, assignment]

    async def read_none_of_three() -> list[int]:
        slow = []
        for number in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", metrics_port(broker), limit=1 << 16)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            slow.append((reader, writer))
            wanted = min(number + 1, 2)
            await until(lambda: sum(map(len, endpoint._readers.values())) >= wanted)  # noqa: B023 - it is awaited here
        sizes = []
        for reader, writer in slow:
            try:
                sizes.append(len(await reader.read()))
            except ConnectionResetError:
                sizes.append(0)
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        return sizes

    first, second, third = broker.run(read_none_of_three())
    assert first < 20 << 20 < min(second, third)
    assert not endpoint._readers


def test_a_bug_in_a_page_is_told_once_and_the_next_page_is_there(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert get(broker, "/metrics").status == 200
    assert broker.server.metrics is not None
    assert broker.server.metrics._pages is not None

    def broken() -> object:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(broker.server.metrics._pages, "_survey", broken)
        assert exchange(broker, "GET /metrics HTTP/1.1").status == 500
    assert [record.exc_info is not None for record in caplog.records if record.levelno >= logging.ERROR] == [True]
    assert get(broker, "/metrics").status == 200
    assert broker.server.failure is None


# Ports that are taken -------------------------------------------------------------------------------------------------


def test_a_port_that_somebody_named_and_that_is_taken_refuses_the_start_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(
                CannotStart,
                match=rf"^ottla\.prometheus\.listener=127\.0\.0\.1:{port} cannot be opened: Address already in use$",
            ),
            running_broker(tmp_path / "data", ottla_prometheus_listener=f"127.0.0.1:{port}"),
        ):
            pass
    assert not list((tmp_path / "data").iterdir()), "nothing has begun"
    with running_broker(tmp_path / "data"):
        pass


def test_an_address_that_this_machine_does_not_have_refuses_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(CannotStart, match=r"ottla\.prometheus\.listener=192\.0\.2\.1:9404 cannot be opened: "),
        running_broker(tmp_path, ottla_prometheus_listener="192.0.2.1:9404"),
    ):
        pass


def settings_with_metrics_at(port: int, directory: Path, *, is_given: bool, listener_port: int = 0) -> BrokerSettings:
    """Settings of which somebody has named the metrics port, or that have it by default."""
    listeners = f"PLAINTEXT://127.0.0.1:{listener_port}"
    settings = load_settings(None, [("log.dirs", str(directory)), ("listeners", listeners)]).settings
    given = {**settings.given, **({METRICS_LISTENER: f"127.0.0.1:{port}"} if is_given else {})}
    return settings.replace(ottla_prometheus_listener=ListenAddress("127.0.0.1", port), given=given)


def lines_of_a_start(
    settings: BrokerSettings, caplog: pytest.LogCaptureFixture, then: Callable[[BrokerServer], Awaitable[None]]
) -> list[str]:
    """What the endpoint says while a daemon starts, does something, and stops."""
    caplog.set_level(logging.INFO, "broker.metrics")

    async def start() -> None:
        daemon = BrokerServer(settings)
        await daemon.start()
        await then(daemon)
        await daemon.stop()

    asyncio.run(start())
    return [record.getMessage() for record in caplog.records if record.name == "broker.metrics.http"]


def metrics_port_of(daemon: BrokerServer) -> int:
    assert daemon.metrics is not None
    return daemon.metrics.address.port


def test_a_default_port_that_is_taken_is_another_one_and_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = 0

    async def is_ready(daemon: BrokerServer) -> None:
        nonlocal found
        found = metrics_port_of(daemon)
        assert (await ask(found, "GET /readyz HTTP/1.1")).status == 200

    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        lines = lines_of_a_start(settings_with_metrics_at(taken, tmp_path, is_given=False), caplog, is_ready)

    assert found != taken
    assert lines == [f"metrics at http://127.0.0.1:{found}/metrics, since 127.0.0.1:{taken} is taken"]


def test_a_default_port_that_a_listener_has_is_another_one_and_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken = port_below_client_ports()
    found = 0

    async def both_answer(daemon: BrokerServer) -> None:
        nonlocal found
        found = metrics_port_of(daemon)
        assert (await ask(found, "GET /readyz HTTP/1.1")).status == 200
        _, writer = await asyncio.open_connection("127.0.0.1", taken)
        writer.close()
        await writer.wait_closed()

    settings = settings_with_metrics_at(taken, tmp_path, is_given=False, listener_port=taken)
    lines = lines_of_a_start(settings, caplog, both_answer)

    assert found != taken
    assert lines == [f"metrics at http://127.0.0.1:{found}/metrics, since 127.0.0.1:{taken} is taken"]


def test_a_port_that_somebody_named_and_that_the_system_gave_to_a_listener_refuses_the_start(tmp_path: Path) -> None:
    taken = port_below_client_ports()
    settings = settings_with_metrics_at(taken, tmp_path, is_given=True, listener_port=taken)

    async def start() -> None:
        await BrokerServer(settings).start()

    with pytest.raises(
        CannotStart, match=rf"^{METRICS_LISTENER}=127\.0\.0\.1:{taken} cannot be opened: Address already"
    ):
        asyncio.run(start())


def test_a_listener_whose_port_is_taken_while_logs_are_loaded_refuses_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        taken = other.getsockname()[1]

        async def start() -> None:
            daemon = BrokerServer(settings_with_metrics_at(0, tmp_path, is_given=True, listener_port=taken))
            load_logs = LogLoading.run

            async def be_overtaken(loading: LogLoading, **arguments: Any) -> None:
                other.listen()
                await load_logs(loading, **arguments)

            monkeypatch.setattr(LogLoading, "run", be_overtaken)
            await daemon.start()

        with pytest.raises(
            CannotStart, match=rf"^PLAINTEXT://127\.0\.0\.1:{taken} cannot listen: Address already in use$"
        ):
            asyncio.run(start())
