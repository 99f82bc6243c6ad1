"""How a test process gets its brokers: a zygote is started once, and forks each of them (`broker.control.zygote`)."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

from ottla.testing.errors import BrokerError

_STDERR: Final = 2
_PIECE: Final = 65_536
_END_S: Final = 60.0
"""How long the zygote may take to end, in seconds."""
_LAUNCHER: Final = Path(__file__).resolve().parent.parent / "__main__.py"


class Spawned:
    """A broker's process: a child of the zygote, not of this process."""

    def __init__(self, pid: int, stdout: int, description: dict[str, Any]) -> None:
        self.pid = pid
        self.description = description
        """What the broker has said of itself (`broker.control.command_line`)."""
        self._stdout = stdout

    def end(self, timeout_s: float) -> None:
        """Stop the process and wait until it has ended; its data is removed then."""
        if self._stdout < 0:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                break
            # The other end of its standard output closes with the process.
            if select.select([self._stdout], [], [], timeout_s)[0]:
                break
        os.close(self._stdout)
        self._stdout = -1


class _Zygote:
    """The zygote of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = -1
        """The process that has started it: a fork of that process starts its own."""

    def start(self) -> None:
        """Start the zygote, unless there is one. It imports while this process does something else."""
        with self._lock:
            self._started()

    def spawn(self, arguments: Sequence[str], stderr: IO[bytes], timeout_s: float) -> Spawned:
        """Fork a broker with this command line, and wait until it accepts requests. Raises `BrokerError`."""
        reading, writing = os.pipe()
        try:
            with self._lock:
                requests = self._started()
                socket.send_fds(requests, [json.dumps(list(arguments)).encode()], [writing, stderr.fileno()])
        except OSError as error:
            os.close(reading)
            raise BrokerError(f"the process that starts brokers cannot be asked: {error}") from error
        finally:
            os.close(writing)
        try:
            line = _first_line(reading, timeout_s)
            description = json.loads(line)
        except ValueError:
            os.close(reading)
            stderr.seek(0)
            said = stderr.read().decode(errors="replace").strip().splitlines()
            raise BrokerError("the broker does not start: " + (said[-1] if said else "it says nothing")) from None
        return Spawned(description["pid"], reading, description)

    def _started(self) -> socket.socket:
        if self._requests is not None and self._owner == os.getpid():
            if self._process is not None and self._process.poll() is None:
                return self._requests
            self._requests.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_LAUNCHER), "test-server"], stdin=theirs.fileno(), stdout=_STDERR
            )
        self._requests, self._owner = ours, os.getpid()
        atexit.register(self._end)
        return ours

    def _end(self) -> None:
        """Let the zygote end with this process, and its brokers with it."""
        if self._owner == os.getpid() and self._requests is not None and self._process is not None:
            # A process that the test has forked may have the socket, too, and may wait for the end of this one.
            self._requests.shutdown(socket.SHUT_RDWR)
            self._requests.close()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _first_line(descriptor: int, timeout_s: float) -> bytes:
    """The first line that comes; what there is of it if the other end closes, or takes too long."""
    deadline = time.monotonic() + timeout_s
    received = b""
    while not received.endswith(b"\n"):
        if not select.select([descriptor], [], [], max(deadline - time.monotonic(), 0.0))[0]:
            break
        piece = os.read(descriptor, _PIECE)
        if not piece:
            break
        received += piece
    return received


ZYGOTE: Final = _Zygote()
