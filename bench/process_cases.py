"""Cases of the process itself: the time to its first answer, its memory, and the time of each import."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.processes import PACKAGES, OwnBroker, memory_mb, users_environment

IMPORT = re.compile(r"^import time:\s+(\d+) \|\s+(\d+) \|( *)(\S+)$")
API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


def free_port() -> int:
    """A free port below those that the system gives to clients, so that no client takes it before the broker does."""
    for port in range(21_000, 32_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port between 21000 and 32000")


def start(directory: Path) -> dict[str, float]:
    """Seconds from the creation of the process to the first answer on its port: with a new directory, then with the
    same directory again.

    An uncounted start before leaves the bytecode of the checkout behind, as an installation does.
    """
    _start_once(directory / "bytecode")
    first, idle_mb = _start_once(directory)
    again, _ = _start_once(directory)
    return {"new_directory_s": first, "again_s": again, "idle_mb": idle_mb}


def _start_once(directory: Path) -> tuple[float, float]:
    port = free_port()
    command = [sys.executable, "-m", "broker"]
    options = ["-o", f"listeners=PLAINTEXT://127.0.0.1:{port}", "-o", f"log.dirs={directory / 'data'}"]
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "broker.log").open("ab") as log:
        started = time.perf_counter()
        process = subprocess.Popen([*command, *options], cwd=PACKAGES, env=users_environment(), stdout=log, stderr=log)
        try:
            _first_answer(port, process)
            return time.perf_counter() - started, memory_mb(process.pid)[0]
        finally:
            process.terminate()
            process.wait(60)


def _first_answer(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(API_VERSIONS_V0)
                if connection.recv(4096):
                    return
        except OSError:
            time.sleep(0.0005)
    raise RuntimeError(f"the broker ended with exit code {process.returncode} instead of answering")


def imports(directory: Path) -> list[dict[str, object]]:
    """The milliseconds of each import before `ready`, largest first: of the module itself, and with the modules that it
    imports.

    `package` sums the modules of one top-level package. Python's own measurement slows imports down by a third.
    """
    broker = OwnBroker(directory, python=("-X", "importtime"))
    broker.close()
    own: dict[str, int] = {}
    whole: dict[str, int] = {}
    modules: dict[str, int] = {}
    for line in broker.log_text().splitlines():
        if (found := IMPORT.match(line)) is None:
            continue
        package = found[4].partition(".")[0]
        own[package] = own.get(package, 0) + int(found[1])
        whole[package] = max(whole.get(package, 0), int(found[2]))
        modules[package] = modules.get(package, 0) + 1
    rows = [
        {"package": name, "own_ms": own[name] / 1000, "whole_ms": whole[name] / 1000, "modules": modules[name]}
        for name in sorted(own, key=lambda name: -own[name])
    ]
    total = {"package": "(all)", "own_ms": sum(own.values()) / 1000, "modules": sum(modules.values())}
    return [total, *rows]
