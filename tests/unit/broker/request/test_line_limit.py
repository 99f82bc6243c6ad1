"""Whoever repeats a mistake gets a line, and its repetitions a number."""

import logging
from collections.abc import Iterator

import pytest

from broker.request.line_limit import INTERVAL_MS, MOST_LINES, LineLimit
from broker.request.session import Peer
from broker.runtime.manual_clock import ManualClock

network = logging.getLogger("broker.network.connection")


class Lines(logging.Handler):
    """What would have been written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(record.getMessage())


class Log:
    """A handler behind a limit, with time in the test's hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.handler = Lines()
        self.handler.addFilter(LineLimit(self.clock))

    @property
    def written(self) -> list[str]:
        """The lines since the last question."""
        lines, self.handler.written = self.handler.written, []
        return lines

    def pass_interval(self) -> None:
        self.clock.advance(INTERVAL_MS)


@pytest.fixture
def it() -> Iterator[Log]:
    log = Log()
    root = logging.getLogger()
    level, given = root.level, root.handlers[:]
    root.addHandler(log.handler)
    root.setLevel(logging.INFO)
    yield log
    root.setLevel(level)
    root.handlers[:] = given


def peer(port: int) -> Peer:
    return Peer(host="10.0.0.1", port=port, listener="PLAINTEXT")


def refuse(somebody: Peer, size: int = -1) -> None:
    network.info("%s announced a request of %d bytes", somebody, size)


def test_a_connection_gets_one_line_of_a_kind_and_then_a_number(it: Log) -> None:
    one = peer(1)
    for size in range(4712):
        refuse(one, size)
    assert it.written == ["10.0.0.1:1 announced a request of 0 bytes"]
    it.pass_interval()
    assert it.written == ["and 4711 more like it in 10 s, the last: 10.0.0.1:1 announced a request of 4711 bytes"]
    it.pass_interval()
    assert it.written == []


def test_a_noisy_connection_does_not_hide_another(it: Log) -> None:
    one, other = peer(1), peer(2)
    for _ in range(100):
        refuse(one)
    refuse(other)
    assert it.written == [f"10.0.0.1:{port} announced a request of -1 bytes" for port in (1, 2)]


def test_who_connects_again_and_again_is_held_to_the_limit_for_all(it: Log) -> None:
    for port in range(5000):
        refuse(peer(port))
    assert len(it.written) == MOST_LINES
    it.pass_interval()
    assert it.written == ["and 4990 more like it in 10 s, the last: 10.0.0.1:4999 announced a request of -1 bytes"]


def test_after_the_interval_lines_pass_again(it: Log) -> None:
    one = peer(1)
    for _ in range(3):
        refuse(one)
        assert len(it.written) == 1
        it.pass_interval()
        assert it.written == []


def test_another_kind_has_its_own_limit(it: Log) -> None:
    one = peer(1)
    for port in range(100):
        refuse(peer(port))
    network.info("Closing %s: idle for %d ms", one, 5)
    assert it.written[-1] == "Closing 10.0.0.1:1: idle for 5 ms"


def test_a_line_without_a_connection_counts_too(it: Log) -> None:
    for number in range(100):
        logging.getLogger("broker.request.faults").error("unexpected %s", number)
    assert len(it.written) == MOST_LINES
    it.pass_interval()
    assert it.written == ["and 90 more like it in 10 s, the last: unexpected 99"]


def test_what_the_broker_says_of_itself_always_passes(it: Log) -> None:
    for number in range(100):
        logging.getLogger("broker.server.broker_server").warning("recovered orders-%d", number)
    assert len(it.written) == 100
    assert not it.clock.alarms
