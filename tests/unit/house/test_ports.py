"""The ports of brokers that come back on their port are no other process's ports."""

from __future__ import annotations

import socket
import subprocess
import sys

from dev.broker_process import PORTS, port_below_client_ports
from dev.repository import REPOSITORY

LOOK = "from dev.broker_process import port_below_client_ports; print(port_below_client_ports(), flush=True); input()"


def test_processes_that_run_at_the_same_time_find_ports_far_apart() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LOOK], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    ports = [port_below_client_ports(), *(int(process.stdout.readline()) for process in processes if process.stdout)]
    for process in processes:
        process.communicate("\n")
    assert len({port // PORTS.step for port in ports}) == 5


def test_a_port_that_is_taken_is_passed_over() -> None:
    port = port_below_client_ports()
    with socket.create_server(("127.0.0.1", port)):
        found = [port_below_client_ports() for _ in range(10)]  # more than it remembers having found
    assert not any(port in range(first, first + 4) for first in found)
    assert port < port_below_client_ports(above=port) < PORTS.stop


def test_a_port_that_its_broker_has_not_opened_yet_is_passed_over() -> None:
    first, second = port_below_client_ports(), port_below_client_ports()
    assert second not in range(first, first + 4), "a broker opens further ports behind its own"
