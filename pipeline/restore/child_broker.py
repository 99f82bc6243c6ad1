"""A broker process on a data directory, started for a few requests and stopped again."""

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from pipeline.broker import Broker
from pipeline.errors import PipelineError

_READY: Final = "ready "
_ADDRESS: Final = "//"
_START_TIMEOUT_S: Final = 600.0
"""How long a broker may take to start: a data directory that was left by a kill is recovered first."""
_STOP_TIMEOUT_S: Final = 120.0
_LAST_LINES: Final = 3
_PR_SET_PDEATHSIG: Final = 1
_START: Final = (
    # If the process that starts it is killed, the broker stops in order, too. (The child asks the system for it,
    # and not between fork and exec, where a process with threads had better do nothing.)
    (
        "-c",
        f"""
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, signal.SIGTERM)
os.execv(sys.executable, [sys.executable, "-m", "broker", *sys.argv[1:]])
""",
    )
    if sys.platform == "linux"
    else ("-m", "broker")
)

_SETTINGS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "ottla.prometheus.listener": "",
    # This broker answers requests only: it must not delete records.
    "log.retention.check.interval.ms": str(2**63 - 1),
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
}


class BrokerFailed(PipelineError):
    """The broker on the directory did not start, or did not stop in order."""


@contextmanager
def broker_on(directory: str, settings: Mapping[str, str]) -> Iterator[Broker]:
    """Start a broker on ``directory``, which is made if it is missing; stop it in order at the end.

    Raises BrokerFailed, with the last lines of the broker's log.
    """
    # Its log goes into a file and no pipe, since no process reads a pipe while all goes well.
    with tempfile.TemporaryFile() as log:
        process = _Process(directory, settings, log)
        try:
            yield Broker(process.wait_until_ready())
        except BaseException:
            process.end()
            raise
        process.stop()


class _Process:
    def __init__(self, directory: str, settings: Mapping[str, str], log: IO[bytes]) -> None:
        wanted = {**_SETTINGS, "log.dirs": directory, **settings}
        words = [word for key, value in wanted.items() for word in ("-o", f"{key}={value}")]
        self._directory = directory
        self._log = log
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, *_START, *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log, env=_environment(),
            # An interrupt from the terminal is for us, and we stop it in order.
            start_new_session=True,
        )  # fmt: skip

    def wait_until_ready(self) -> str:
        """Wait for the broker's address, host:port."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], _START_TIMEOUT_S)
        if not readable:
            raise BrokerFailed(f"the broker on {self._directory} was not ready within {_START_TIMEOUT_S:.0f} s")
        line = self._process.stdout.readline().decode()
        if not line.startswith(_READY):
            code = self._process.wait()
            raise BrokerFailed(f"the broker on {self._directory} ended with exit code {code}: {self._last_lines()}")
        return line.partition(_ADDRESS)[2].split()[0].partition(",")[0]

    def stop(self) -> None:
        """Stop the broker in order. Raises BrokerFailed."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.communicate(timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.end()
            raise BrokerFailed(f"the broker on {self._directory} did not stop within {_STOP_TIMEOUT_S:.0f} s") from None
        if code := self._process.returncode:
            raise BrokerFailed(f"the broker on {self._directory} stopped with exit code {code}: {self._last_lines()}")

    def end(self) -> None:
        """End the broker process in any case: by SIGTERM, and by SIGKILL if it does not stop in time."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _last_lines(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        return " / ".join(line.strip() for line in lines[-_LAST_LINES:])


def _environment() -> dict[str, str]:
    """The environment of the broker process. Python finds the package `broker` beside this package, in a checkout and
    in a wheel."""
    packages = str(Path(__file__).resolve().parents[2])
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", packages)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([packages, *others])}
