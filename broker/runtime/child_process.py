"""Child processes for work that would keep the interpreter busy: orders in and answers out, as JSON lines.

An order is a line on the child's stdin; its answers are lines on stdout, and an empty line ends them. The child dies
with the broker, since it works on files that the next broker may open.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from broker.runtime.cpu_scheduling import take_usual_turns
from broker.runtime.stderr import never_wait_for_stderr

Message = dict[str, Any]

_PACKAGES_DIRECTORY: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
_PR_SET_PDEATHSIG: Final = 1
_SIGNALS_OF_THE_BROKER: Final = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip


class ChildEnded(Exception):
    """The process ended in the middle of an order."""


class ChildProcess:
    """The broker's end of a child process. Its methods block, so a thread calls them."""

    def __init__(self, module: str) -> None:
        """Start `python -m module <our process id>`, which calls `serve`. Raises OSError where the system has no
        process to give."""
        paths = [_PACKAGES_DIRECTORY, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            # -P: a directory called broker where we were started is not ours.
            [sys.executable, "-P", "-m", module, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def ask(self, order: Mapping[str, Any]) -> Iterator[Message]:
        """Send an order, and yield its answers as they come. Raises `ChildEnded`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(order).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        while (line := stdout.readline()) != b"\n":
            if not line.endswith(b"\n"):
                raise self._ended()
            yield json.loads(line)

    def _ended(self) -> ChildEnded:
        return ChildEnded(f"process {self.pid} ended with exit code {self._process.wait()}")

    def kill(self) -> None:
        """Kill the child: a thread that waits for an answer gets `ChildEnded`. This method does not block."""
        self._process.kill()

    def wait(self) -> None:
        """Return when the child has ended."""
        assert self._process.stdin is not None
        # The child may have ended before it read the order: that is no error.
        with self._process, suppress(BrokenPipeError):
            self._process.stdin.close()


def serve(perform: Callable[[Message], Iterable[Message]]) -> None:
    """The child's end: perform orders until stdin is closed."""
    never_wait_for_stderr()
    _die_with_the_broker()
    take_usual_turns()
    # A terminal and some process managers send their signals to the child as well; the broker decides when it ends.
    for number in _SIGNALS_OF_THE_BROKER:
        signal.signal(number, signal.SIG_IGN)
    write = sys.stdout.write
    try:
        for line in sys.stdin:
            for message in perform(json.loads(line)):
                write(json.dumps(message) + "\n")
                sys.stdout.flush()
            write("\n")
            sys.stdout.flush()
    except BrokenPipeError:
        # The broker has gone. Python would report an error when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _die_with_the_broker() -> None:
    """Linux kills the child when the broker's thread that started it ends. Elsewhere the next answer fails (EPIPE)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the broker is gone")
