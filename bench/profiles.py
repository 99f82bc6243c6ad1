"""Profiles of the broker: the costliest functions of its produce and fetch path, and py-spy's flame graphs."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from bench import raw_cases
from bench.limits import SocketOptions
from bench.processes import REPOSITORY, OwnBroker
from bench.raw_cases import Bench
from bench.rival import Rival

COSTLIEST: Final = 3
PY_SPY_RATE: Final = 500
"""Samples a second."""
PY_SPY_STARTS_SOON_S: Final = 1.0

PATHS: Final[dict[str, Callable[[Bench], object]]] = {
    "produce": lambda bench: raw_cases.produce(
        bench, records=1, value_bytes=100, connections=8, in_flight=8, requests=250_000
    ),
    "fetch": lambda bench: raw_cases.fetched(
        bench, partitions=1, partition_bytes=64 * 1024, in_flight=2, requests=60_000
    ),
}
"""The two kinds of requests that a broker gets most."""


def costliest(stacks: Iterable[str], most: int = COSTLIEST) -> list[tuple[str, float]]:
    """The functions that were running themselves in most samples, with their shares of all samples.

    Each line of ``stacks`` is a stack, outermost function first, `;` between them, and behind a space how often it was
    found.
    """
    counts: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rstrip().rpartition(" ")
        if stack:
            counts[stack.rpartition(";")[2]] += int(count)
    total = counts.total()
    return [(name, count / total) for name, count in counts.most_common(most)]


def costliest_of_paths(directory: Path, scale: float) -> dict[str, list[tuple[str, float]]]:
    """The costliest functions of our broker, not compiled, on a directory of its own. They are sampled by
    `bench.sampled_broker`, which does not see compiled functions."""
    found = {}
    for path, load in PATHS.items():
        home = directory / f"sampled-{path}"
        stacks = directory / f"{path}.stacks"
        with contextlib.closing(
            OwnBroker(home, module=("bench.sampled_broker", str(stacks)), packages=REPOSITORY)
        ) as broker:
            load(_bench(broker, home, scale))
        found[path] = costliest(stacks.read_text().splitlines())
    return found


def _bench(broker: OwnBroker, home: Path, scale: float) -> Bench:
    rival = Rival(home / "rival")  # it is not asked, and does not start
    return Bench(broker=broker, rival=rival, options=SocketOptions(), directory=home, scale=scale)


def lines(found: dict[str, list[tuple[str, float]]]) -> str:
    """The last lines of `make bench`."""
    return "\n".join(
        f"costliest functions of the {path} path: " + ", ".join(f"{name} {share:.0%}" for name, share in of_path)
        for path, of_path in found.items()
    )


# py-spy ---------------------------------------------------------------------------------------------------------------


class NoProfile(Exception):
    """A profile cannot be taken; the message says why."""


def py_spy() -> str:
    """The path of py-spy: beside this Python, or on the PATH. Raises `NoProfile`."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise NoProfile("there is no py-spy here; `make profile CASE=...` installs it")
    return found


def record(pid: int, path: Path, form: str, load: Callable[[], object], seconds: float) -> None:
    """Run ``load`` on a process again and again for so long, and record a profile with py-spy meanwhile.

    ``form`` is py-spy's: `flamegraph` (a picture), `raw` (collapsed stacks). Raises `NoProfile`.
    """
    command = [py_spy(), "record", "--pid", str(pid), "--format", form, "--output", str(path)]
    watching = subprocess.Popen(
        [*command, "--rate", str(PY_SPY_RATE), "--duration", "unlimited", "--nolineno"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            watching.wait(PY_SPY_STARTS_SOON_S)  # where it may not look into the process, it ends at once
        end = time.monotonic() + seconds
        while watching.poll() is None and time.monotonic() < end:
            load()
    finally:
        if watching.poll() is None:
            watching.send_signal(signal.SIGINT)
        _, said = watching.communicate()
    if watching.returncode or not path.exists():
        raise NoProfile(
            f"py-spy ended with exit code {watching.returncode}: {said.strip()[-500:]}\n"
            "It has to look into another process: that takes root, or kernel.yama.ptrace_scope=0; in a container "
            "the capability SYS_PTRACE. Without them, `make bench` names the costliest functions all the same."
        )
