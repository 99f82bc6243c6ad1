"""Signals that a terminal, a container engine or a person sends: the broker reports or goes on, and stops in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.waiting import until
from tests.support.clients import Record, connect, values

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="the process of another broker is not ours to judge",
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, port=port_below_client_ports())
    try:
        yield process
    finally:
        process.close()


def serves(broker: BrokerProcess) -> bool:
    client = connect("confluent-kafka", broker.bootstrap)
    client.produce("signals", [Record(value=b"v", partition=0)])
    return values(client.consume("signals", partition=0, offset=0, count=1)) == [b"v"]


def stops_in_order(broker: BrokerProcess, number: int = signal.SIGTERM) -> bool:
    broker.stop(number)
    return (broker.data_directory / ".kafka_cleanshutdown").exists()


def test_sigquit_writes_what_all_threads_and_tasks_do_and_the_broker_goes_on(broker: BrokerProcess) -> None:
    broker.start()
    for count in (1, 2):
        broker.process.send_signal(signal.SIGQUIT)
        until(lambda: broker.log_text(last_lines=1000).count("\nTask metrics ") == count, "the stacks")  # noqa: B023

    text = broker.log_text(last_lines=1000)
    assert text.count("\nThread MainThread ") == 2
    assert "worker_thread.py" in text, "a thread that waits for work"
    assert "\nTask handler-0 " in text, "a task that waits for requests; compiled, it has no frames"
    assert serves(broker)
    assert stops_in_order(broker)


def test_sigquit_shows_where_a_loop_is_stuck(tmp_path: Path) -> None:
    program = (
        "import asyncio, time\n"
        "from broker.server.signals import Signals\n"
        "signals = Signals()\n"
        "def stuck_here():\n"
        "    print('stuck', flush=True)\n"
        "    time.sleep(1000)\n"
        "async def main():\n"
        "    signals.stop_by(asyncio.get_running_loop(), print)\n"
        "    stuck_here()\n"
        "asyncio.run(main())\n"
    )
    log = tmp_path / "stderr"
    with log.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=stderr)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"stuck\n"
        process.send_signal(signal.SIGQUIT)
        until(lambda: "in stuck_here" in log.read_text(), "the stack")
        process.kill()


@pytest.mark.parametrize(
    "number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGWINCH, signal.SIGXFSZ, signal.SIGCONT]
)
def test_it_goes_on_and_stops_in_order_after_it(broker: BrokerProcess, number: signal.Signals) -> None:
    broker.start()
    broker.process.send_signal(number)
    assert serves(broker)
    assert stops_in_order(broker)


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2])
def test_a_broker_that_is_starting_is_not_ended_by_it(broker: BrokerProcess, number: signal.Signals) -> None:
    broker.launch()
    until(lambda: "open files" in broker.log_text(), "the first line of the log")
    broker.process.send_signal(number)
    until(lambda: broker.is_running and "metrics at" in broker.log_text(), "the start")
    assert serves(broker)
    assert stops_in_order(broker)


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_broker_that_was_suspended_goes_on_where_it_was(broker: BrokerProcess, number: signal.Signals) -> None:
    # A terminal sends SIGTSTP, which the system discards for a process group without a shell, as in a build.
    broker.start()
    assert serves(broker)
    broker.process.send_signal(signal.SIGSTOP)
    until(lambda: state_of(broker) == "T", "the stop")
    broker.process.send_signal(signal.SIGCONT)
    assert serves(broker)
    broker.process.send_signal(signal.SIGSTOP)
    until(lambda: state_of(broker) == "T", "the stop")
    broker.process.send_signal(number)
    assert stops_in_order(broker, signal.SIGCONT)


def state_of(broker: BrokerProcess) -> str:
    return Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_second_signal_changes_nothing_of_a_stop_under_way(broker: BrokerProcess) -> None:
    broker.start()
    assert serves(broker)
    for number in cycle((signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)):
        if not broker.is_running:
            break
        broker.process.send_signal(number)
    assert stops_in_order(broker)
