"""The facts about a run: the machine, the versions, the day."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from bench import librdkafka
from bench.checkout import name_of_this
from bench.processes import IS_COMPILED


def about(directory: Path, command: str) -> dict[str, str]:
    """The facts by name, for readers who want to repeat the run."""
    return {
        "date": time.strftime("%d %b %Y"),
        "command": f"`{command}`",
        "processor": f"{_processor()}, {os.cpu_count()} of them for both brokers and the clients",
        "memory": f"{_memory_gb():.0f} GB",
        "system": f"{platform.system()} {platform.release()}, data on {_file_system(directory)}"
        + "".join(f", {words}" for words in _settings(directory)),
        # Who built it counts: one without profile-guided optimisation is a good deal slower.
        "Ottla": f"commit {name_of_this()}, Python {platform.python_version()} ({platform.python_compiler()}), "
        + ("its hot path compiled by mypyc" if IS_COMPILED else "not compiled"),
        "clients": ", ".join(
            [f"librdkafka {librdkafka.version()}", *(f"{name} {version(name)}" for name in ("kafka-python",))]
        ),
    }


def java_version() -> str:
    """The version that `java -version` prints."""
    said = subprocess.run(["java", "-version"], check=False, capture_output=True, text=True).stderr
    found = re.search(r'version "([^"]+)"', said)
    return found[1] if found else "unknown"


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9


def _file_system(directory: Path) -> str:
    """The type of the file system that a directory is on."""
    best, kind = "", "an unknown file system"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mounted, of_type, *_ = line.split()
        inside = str(directory) == mounted or str(directory).startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(best):
            best, kind = mounted, of_type
    return kind


def _settings(directory: Path) -> Iterator[str]:
    """Settings of the system that differ between systems and change some of the rows."""
    device = directory.stat().st_dev
    disk = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    for place in (disk, disk.parent):  # the latter for a partition
        with suppress(OSError):
            yield f"which it reads ahead by {int((place / 'queue/read_ahead_kb').read_text()):,} KB"
            break
    with suppress(OSError):
        halt_poll_ns = int(Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns").read_text())
        yield f"a guest whose idle processors are kept for {halt_poll_ns:,} ns"
