"""Notifications to systemd: over a socket of the same kind, with a hand-moved clock."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker.runtime.manual_clock import ManualClock
from broker.server.systemd import BEAT_MS, ServiceManager


class Systemd:
    """The end of NOTIFY_SOCKET that systemd has."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)

    def heard(self) -> list[list[str]]:
        """The lines of every datagram since the last time."""
        datagrams = []
        try:
            while True:
                datagrams.append(self._socket.recv(4096).decode().split("\n"))
        except BlockingIOError:
            return datagrams

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@ottla-test-{os.getpid()}"
    with closing(Systemd(address)) as systemd:
        yield systemd


def manager(clock: ManualClock, systemd: Systemd, **environment: str) -> ServiceManager:
    return ServiceManager({"NOTIFY_SOCKET": systemd.address, **environment}, clock)


def test_a_start_says_how_far_it_is_and_asks_for_more_time_at_every_beat(systemd: Systemd) -> None:
    clock, progress = ManualClock(), ["starting"]
    with closing(manager(clock, systemd)) as one:
        one.starting(lambda: progress[-1])
        assert systemd.heard() == [["STATUS=starting", "EXTEND_TIMEOUT_USEC=60000000"]]

        progress.append("loading logs: 12 of 340, 0 of 0 bytes checked")
        clock.advance(2 * BEAT_MS)

        assert [lines[0] for lines in systemd.heard()] == [f"STATUS={progress[-1]}"] * 2


def test_a_broker_that_is_ready_says_so_once_where_nobody_watches_it(systemd: Systemd) -> None:
    clock = ManualClock()
    with closing(manager(clock, systemd)) as one:
        one.starting(lambda: "starting")
        systemd.heard()

        one.ready("listeners=PLAINTEXT://:9092")
        clock.advance(100 * BEAT_MS)

        assert systemd.heard() == [["READY=1", "STATUS=ready listeners=PLAINTEXT://:9092"]]
        assert one.watchdog_ms is None
        assert clock.alarms == 0


def test_a_watchdog_hears_three_times_in_its_time_that_the_loop_turns(systemd: Systemd) -> None:
    clock = ManualClock()
    with closing(manager(clock, systemd, WATCHDOG_USEC="60000000", WATCHDOG_PID=str(os.getpid()))) as one:
        one.ready("here")
        systemd.heard()

        clock.advance(60_000)

        assert one.watchdog_ms == 60_000
        assert systemd.heard() == [["READY=1", "WATCHDOG=1", "STATUS=ready here"]] * 3


@pytest.mark.parametrize("environment", [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": ""}])
def test_a_watchdog_that_is_not_for_this_process_is_not_fed(systemd: Systemd, environment: dict[str, str]) -> None:
    with closing(manager(ManualClock(), systemd, **{"WATCHDOG_USEC": "60000000", **environment})) as one:
        assert one.watchdog_ms is None


def test_a_stop_says_so_and_goes_on_saying_so_until_it_is_over(systemd: Systemd) -> None:
    clock = ManualClock()
    one = manager(clock, systemd, WATCHDOG_USEC="60000000")
    one.ready("here")
    systemd.heard()

    one.stopping()
    clock.advance(2 * BEAT_MS)
    one.close()
    clock.advance(2 * BEAT_MS)

    assert systemd.heard() == [["STOPPING=1", "WATCHDOG=1", "STATUS=stopping", "EXTEND_TIMEOUT_USEC=60000000"]] * 3
    assert clock.alarms == 0


def test_a_manager_that_does_not_listen_is_told_at_the_next_beat(tmp_path: Path) -> None:
    clock, address = ManualClock(), str(tmp_path / "notify")
    with closing(ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"}, clock)) as one:
        one.ready("nobody hears")

        with closing(Systemd(address)) as systemd:
            clock.advance(1000)
            assert [lines[0] for lines in systemd.heard()] == ["READY=1"]


def test_a_manager_that_does_not_read_does_not_hold_the_loop(tmp_path: Path) -> None:
    clock = ManualClock()
    with closing(Systemd(str(tmp_path / "notify"))) as systemd, closing(manager(clock, systemd)) as one:
        one.starting(lambda: "x" * 1000)
        clock.advance(10_000 * BEAT_MS)

        assert len(systemd.heard()) < 10_000


def test_without_a_manager_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with closing(ServiceManager({}, clock)) as one:
        one.starting(lambda: "starting")
        one.ready("here")
        one.stopping()
    assert clock.alarms == 0
    assert caplog.messages == []


def test_an_address_that_is_none_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with closing(ServiceManager({"NOTIFY_SOCKET": "vsock:2:1234"}, ManualClock())) as one:
        one.ready("here")
    assert caplog.messages == ["no notifications to NOTIFY_SOCKET=vsock:2:1234, expected a path or @name"]
