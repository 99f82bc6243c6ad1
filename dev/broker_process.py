"""A broker process under test, started as its user would: command line, `ready` line, signals, log."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from dev.repository import PACKAGES

READY = re.compile(r"^ready listeners=(?P<listeners>\S+) node\.id=(?P<node_id>\d+) cluster\.id=(?P<cluster_id>\S+)$")
ADDRESS = re.compile(r"//(?P<host>[^:/,]*|\[[^\]]+\]):(?P<port>\d+)")
METRICS = re.compile(r"metrics at http://\S+:(?P<port>\d+)/metrics")


class BrokerDidNotStart(AssertionError):
    """The process ended, or printed nothing, before its `ready` line."""


class BrokerProcess:
    """A data directory and the broker process on it, which may be killed, stopped and started again.

    The first start takes any free port (or `port`), every later start the same port, so that clients find the broker.
    The stderr of all its processes is in `log_path`. A `with` starts the broker and closes it.
    """

    packages = PACKAGES
    """The directory with the packages that the process runs."""

    environment: Mapping[str, str] | None = None
    """The environment of the process; None: that of this process."""

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None, port: int = 0) -> None:
        self.directory = directory
        self.data_directory = directory / "data"
        self.log_path = directory / "broker.log"
        self.settings = dict(settings or {})
        self.port = port
        self.cluster_id = ""
        self.node_id = -1
        self.ready_line = ""
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def metrics_port(self) -> int:
        """The metrics port of the current process."""
        return int(METRICS.findall(self.log_path.read_text(errors="replace"))[-1])

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the broker was not started"
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self) -> list[str]:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data_directory),
            "ottla.prometheus.listener": "127.0.0.1:0",
            **self.settings,
        }
        options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        return [sys.executable, "-m", "broker", *options]

    def start(self, *, timeout_s: float = 60.0) -> BrokerProcess:
        """Start the broker and wait for its `ready` line."""
        self.launch()
        line = self._first_line(timeout_s)
        found = READY.match(line)
        if found is None:
            self.kill()
            raise BrokerDidNotStart(f"expected 'ready listeners=… node.id=… cluster.id=…' on stdout, got {line!r}")
        self.ready_line = line
        self.node_id = int(found["node_id"])
        self.cluster_id = found["cluster_id"]
        address = ADDRESS.search(found["listeners"])
        assert address is not None, f"no address in {line!r}"
        self.port = int(address["port"])
        return self

    def launch(self) -> None:
        """Start the process. Does not wait."""
        assert not self.is_running, f"the broker on port {self.port} runs already"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.packages,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def kill(self) -> None:
        """Kill the process by SIGKILL: data in the page cache is kept, data in the process is lost."""
        self.process.kill()
        self._finish()

    def stop(self, signal_number: int = signal.SIGTERM, *, timeout_s: float = 60.0) -> str:
        """Stop the process in order; its exit code must be 0. Returns the stdout behind the `ready` line."""
        self.process.send_signal(signal_number)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the broker did not stop within {timeout_s} s of signal {signal_number}\n{self.log_text()}"
            ) from None
        rest, code = self._finish()
        assert code == 0, f"exit code {code} after signal {signal_number}, expected 0\n{self.log_text()}"
        return rest

    def close(self) -> None:
        """Kill the process if it still runs, and let its output go."""
        if self.is_running:
            self.kill()
        elif self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def log_text(self, *, last_lines: int = 200) -> str:
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-last_lines:])

    def _stdout(self) -> IO[bytes]:
        stdout = self.process.stdout
        assert stdout is not None
        return stdout

    def _first_line(self, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        descriptor = self._stdout().fileno()
        received = b""
        while b"\n" not in received:
            readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                self.kill()
                raise BrokerDidNotStart(f"no line on stdout within {timeout_s} s\n{self.log_text()}")
            piece = os.read(descriptor, 4096)
            if not piece:
                _, code = self._finish()
                raise BrokerDidNotStart(f"exit code {code} before `ready`\n{self.log_text()}")
            received += piece
        line, _, self._after_ready = received.partition(b"\n")
        return line.decode()

    _after_ready = b""

    def _finish(self) -> tuple[str, int]:
        rest = self._after_ready + self._stdout().read()
        self._after_ready = b""
        self._stdout().close()
        return rest.decode(errors="replace"), self.process.wait()


class RunningBroker(BrokerProcess):
    """A running broker that the tests have not started (`OTTLA_TEST_BOOTSTRAP=host:port`): it is used and left
    running."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        host, _, port = bootstrap.rpartition(":")
        super().__init__(directory, port=int(port))
        self._host = host

    @property
    def bootstrap(self) -> str:
        return f"{self._host}:{self.port}"

    def start(self, *, timeout_s: float = 60.0) -> BrokerProcess:
        return self


PORTS: Final = range(20_000, 32_000, 100)
"""The ports of brokers that come back on their port, by the first one of those that a process claims together."""

_TOGETHER: Final = 4
"""A broker may open this many ports from its own on, for controllers and for clients that authenticate."""

_just_found: Final = deque[int](maxlen=8)
"""The ports that this process has found last: the brokers that they are for may not have opened them yet."""


def port_below_client_ports(*, above: int = 0) -> int:
    """A free port that the system gives to no client socket, for a broker that must come back on the same port.

    The next three are free as well. The system gives ports from 32768 upwards to clients (49152 on macOS); a lingering
    client socket would keep the port in use. Processes look in different places, since a broker that is killed leaves
    its port free for a moment.
    """
    for port in range(max(_first_port(os.getpid()), above + 1), PORTS.stop):
        ports = range(port, port + _TOGETHER)
        if all(abs(port - found) >= _TOGETHER for found in _just_found) and all(map(_is_free, ports)):
            _just_found.append(port)
            return port
    raise RuntimeError(f"every port from {above + 1} to {PORTS.stop - 1} is taken")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@cache
def _first_port(process_id: int) -> int:
    """Where this process begins to look for ports: at those that no other process has claimed.

    A process claims some ports for as long as it lives by the UDP port of the first one's number.
    """
    begin = process_id * 37 % len(PORTS)
    for first in chain(PORTS[begin:], PORTS[:begin]):
        with socket.socket(type=socket.SOCK_DGRAM) as claim:
            try:
                claim.bind(("127.0.0.1", first))
            except OSError:
                continue
            claim.detach()
            return first
    raise RuntimeError(f"every port from {PORTS.start} to {PORTS.stop - 1} is claimed")


RETENTION_COMES_LATER = {"log.initial.task.delay.ms": "86400000"}
"""A setting for brokers that tests share: otherwise retention would delete, 30 s after the start, the records that
tests date back to 2023."""
