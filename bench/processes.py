"""CPU and memory of processes from /proc, and starting the broker and its peers for the bench."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self

from bench.conversation import Conversation, address_of
from compiled.packages import extensions, is_current

REPOSITORY = Path(__file__).resolve().parents[1]
_COMPILED = Path(sys.prefix) / "compiled"
IS_COMPILED = is_current(_COMPILED) and bool(extensions(_COMPILED))
PACKAGES = _COMPILED if IS_COMPILED else REPOSITORY
"""The directory with the packages of a user's broker: compiled (`make run`), if there is a compiled version of this
checkout."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
CPUCLOCK_SCHED = 2
"""Linux: the clock of a process that the scheduler counts."""
MEGABYTE_OF_MEMORY = 1 << 20
SETTLES_WITHIN_S = 2.0
SETTLING_STEP_S = 0.05
AT_REST = 0.1
"""An idle process takes less than this share of a processor; an idle JVM takes less, too."""
LISTENER = re.compile(r"(\w+)://127\.0\.0\.1:(\d+)")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, of all its threads, ended ones included; to the nanosecond.

    It is read from the process's own clock, as clock_getcpuclockid(3) names it. /proc/PID/stat counts the same in steps
    of 10 ms, and a whole sample of a codec may take two of them.
    """
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def machine_cpu_seconds() -> tuple[float, float]:
    """Since the start of the machine, for all processors together: the seconds in which they worked, and the seconds
    that the host gave to other guests (steal)."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = (
        int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq) / TICKS_PER_S, steal / TICKS_PER_S


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident memory of a process: now and at its highest, in MB of 1,048,576 bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    now, most = (re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE) for name in ("VmRSS", "VmHWM"))
    assert now is not None
    assert most is not None
    return int(now[1]) / 1024, int(most[1]) / 1024


def memory_available_mb() -> float:
    """Memory that can be used without swapping, in MB of 1,048,576 bytes."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def listening_pid(port: int) -> int | None:
    """The process that listens on a port of this machine; None if this user may not see it."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(descriptor) in inodes:
                return int(descriptor.parts[2])
        except OSError:
            continue
    return None


def congestion_control(port: int) -> str:
    """The congestion control of connections to the broker's port, as `ss` shows it; else the system's default."""
    default = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    if (ss := shutil.which("ss")) is None:
        return default
    shown = subprocess.run([ss, "-tinH", f"sport = :{port}"], capture_output=True, text=True, check=False).stdout
    known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    found = [word for word in shown.split() if word in known]
    return found[-1] if found else default


class BenchedBroker:
    """A running broker that the bench has not started, given by its address."""

    def __init__(self, bootstrap: str, pid: int | None = None) -> None:
        self.bootstrap = bootstrap
        self.port = address_of(bootstrap)[1]
        self.pid = pid if pid is not None else listening_pid(self.port)

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid) if self.pid is not None else float("nan")

    def congestion_control(self) -> str:
        with Conversation(self.bootstrap):
            return congestion_control(self.port)

    def wait_until_removed(self) -> None:
        """Wait until the files of deleted topics are removed, so that no case is measured meanwhile."""

    def close(self) -> None:
        pass


def users_environment() -> dict[str, str]:
    """The environment of a user: Python writes the bytecode of imported modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class StartedBroker(BenchedBroker):
    """A broker that the bench has started, with its data directory."""

    pid: int

    def __init__(self, bootstrap: str, pid: int, *, data_directory: Path, created_s: float) -> None:
        super().__init__(bootstrap, pid)
        self.data_directory = data_directory
        self.created_s = created_s
        """When the process was created, by `time.perf_counter`."""

    def wait_until_removed(self) -> None:
        while any(path.name.endswith("-delete") for path in self.data_directory.iterdir()):
            time.sleep(0.001)

    @contextmanager
    def held(self) -> Iterator[None]:
        """A context in which the process is stopped (SIGSTOP), so that its background work does not disturb another
        broker's sample."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def settle(self) -> None:
        """Wait until the process is idle, for a limited time."""
        deadline = time.monotonic() + SETTLES_WITHIN_S
        used_s = self.cpu_seconds()
        while time.monotonic() < deadline:
            time.sleep(SETTLING_STEP_S)
            before_s, used_s = used_s, self.cpu_seconds()
            if used_s - before_s < AT_REST * SETTLING_STEP_S:
                return


class OwnBroker(StartedBroker):
    """The broker of this checkout as a user runs it, or that of other ``packages``, with a directory of its own and a
    free port.

    ``module`` is what Python runs, with its first arguments.
    """

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        python: Sequence[str] = (),
        module: Sequence[str] = ("broker",),
        packages: Path = PACKAGES,
    ) -> None:
        self._log_path = directory / "broker.log"
        data_directory = directory / "data"
        command = [sys.executable, *python, "-m", *module]
        given = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data_directory), **(settings or {})}
        options = [word for key, value in given.items() for word in ("-o", f"{key}={value}")]
        directory.mkdir(parents=True, exist_ok=True)
        created_s = time.perf_counter()
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *options],
                cwd=packages,
                env=users_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        if not line.startswith("ready "):
            self._process.kill()
            code = self._process.wait()
            raise RuntimeError(f"the broker did not start (exit code {code}):\n{self._log_path.read_text()[-4000:]}")
        self.listeners = {name: f"127.0.0.1:{port}" for name, port in LISTENER.findall(line)}
        """Addresses of the listeners, by name."""
        bootstrap = next(iter(self.listeners.values()))
        super().__init__(bootstrap, self._process.pid, data_directory=data_directory, created_s=created_s)

    def latency_line(self, listener: str) -> str:
        """The line of the broker's log with the latencies of ``listener`` since the last such line."""
        before = len(self.log_text())
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            found = re.search(rf"{listener} answered .*\n", self.log_text()[before:])
            if found is not None:
                return found[0]
            time.sleep(0.001)
        raise RuntimeError("the broker has logged no latencies")

    def close(self, signal_number: int = signal.SIGTERM) -> None:
        self._process.send_signal(signal_number)
        self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def log_text(self) -> str:
        return self._log_path.read_text(errors="replace")


class Worker(Protocol):
    """A process that works for the bench, or an object that stands for it."""

    def cpu_seconds(self) -> float: ...


class Disturbance:
    """How many processors worked for processes other than brokers and bench while a sample was taken.

    These are processes on this machine and the host's other guests. Each process is counted by itself: the clock of the
    processors misses some work that is charged to processes, and that would hide the work of others.
    """

    def __init__(self, *brokers: Worker) -> None:
        self._brokers = brokers
        self._started = time.perf_counter()
        self._others, self._stolen = self._other_seconds()

    def _other_seconds(self) -> tuple[float, float]:
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        worked, stolen = machine_cpu_seconds()
        return worked - ours - sum(broker.cpu_seconds() for broker in self._brokers), stolen

    def processors(self) -> float:
        others, stolen = self._other_seconds()
        seconds = max(0.0, others - self._others) + stolen - self._stolen
        return seconds / (time.perf_counter() - self._started)


class Program:
    """A process of one of the bench's own programs, as a context; it ends when its standard input closes."""

    def __init__(self, module: str, *options: str) -> None:
        command = [sys.executable, "-m", module, *options]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.first_line = self._process.stdout.readline()
        """The line that the program prints when it has begun."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def cpu_seconds(self) -> float:
        return cpu_seconds(self._process.pid)


class Peer(Program):
    """A process of a server of `bench.peers`."""

    def __init__(self, kind: str, *options: str) -> None:
        super().__init__("bench.peers", kind, *options)
        self.bootstrap = f"127.0.0.1:{int(self.first_line)}"


class Disturber(Program):
    """A process of a client of `bench.disturbers`."""

    def __init__(self, kind: str, *options: str) -> None:
        super().__init__("bench.disturbers", kind, *options)


def wait_until_answering(bootstrap: str, *, most_seconds: float = 60.0) -> None:
    """Wait until the broker answers ApiVersions."""
    deadline = time.monotonic() + most_seconds
    while True:
        try:
            with Conversation(bootstrap):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)
