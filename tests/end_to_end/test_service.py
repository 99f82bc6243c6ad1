"""The broker as a service of systemd: it reports that it is ready, alive and stopping."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="the service of another broker is not ours to judge",
)


class Service(BrokerProcess):
    """A broker that systemd has started and listens to."""

    def __init__(self, directory: Path, *, watchdog_s: float) -> None:
        super().__init__(directory)
        self._watchdog_us = int(watchdog_s * 1_000_000)
        self._address = str(directory / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._address)
        self._socket.settimeout(30)

    def command(self) -> list[str]:
        environment = (f"NOTIFY_SOCKET={self._address}", f"WATCHDOG_USEC={self._watchdog_us}")
        return ["env", *environment, *super().command()]

    def hears(self, line: str) -> list[str]:
        """Wait for a datagram that has this line, and return it."""
        while True:
            lines = self._socket.recv(4096).decode().split("\n")
            if line in lines:
                return lines

    def close(self) -> None:
        super().close()
        self._socket.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path, watchdog_s=0.3)
    try:
        yield service
    finally:
        service.close()


def test_a_service_is_ready_when_requests_are_accepted_and_stops_when_it_is_told_to(service: Service) -> None:
    service.launch()
    assert "EXTEND_TIMEOUT_USEC=60000000" in service.hears("STATUS=starting")
    status = next(line for line in service.hears("READY=1") if line.startswith("STATUS="))
    assert status.startswith("STATUS=ready listeners=PLAINTEXT://127.0.0.1:")

    service.stop()

    assert "STATUS=stopping" in service.hears("STOPPING=1")
    assert "stopped cleanly" in service.log_text()


def test_the_watchdog_is_fed_as_long_as_the_loop_turns(service: Service) -> None:
    service.launch()
    service.hears("READY=1")

    for _ in range(5):
        assert "WATCHDOG=1" in service.hears("READY=1")


def test_a_watchdog_that_bites_leaves_a_trace_of_where_the_loop_stood(service: Service) -> None:
    service.launch()
    service.hears("WATCHDOG=1")

    service.process.send_signal(6)
    service.process.communicate(timeout=60)

    assert "Fatal Python error: Aborted" in service.log_text()


def test_a_start_that_fails_says_no_more(tmp_path: Path) -> None:
    service = Service(tmp_path, watchdog_s=60)
    service.settings["log.dirs"] = str(Path(sys.executable))
    try:
        service.launch()
        service.hears("STATUS=starting")
        service.process.communicate(timeout=60)
        assert service.process.returncode == 1
    finally:
        service.close()
