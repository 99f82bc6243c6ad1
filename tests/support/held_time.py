"""A broker process whose time a test can hold and move by hand: `python -m tests.support.held_time` is that process.

Until a test holds the clock, time is the event loop's. The time of day in answers is always the system's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from broker.runtime.clock import Alarm
from broker.server import command_line
from broker.server.broker_server import BrokerServer
from dev.broker_process import BrokerProcess
from dev.repository import PACKAGES, REPOSITORY
from tests.support.broker import TURNS_TO_SETTLE

PATIENCE_S = 60.0
DONE = b"."


class HeldTimeBroker(BrokerProcess):
    """Our broker as a process, with a pipe through which its clock is held and moved."""

    _line: socket.socket

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.support.held_time", *super().command()[3:]]

    def launch(self) -> None:
        assert not self.is_running, f"the broker on port {self.port} runs already"
        self._line, theirs = socket.socketpair()
        self._line.settimeout(PATIENCE_S)
        # `-m` looks for packages in the working directory first, where the broker is, and then for the tests.
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        with theirs, self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=PACKAGES, env=environment, stdin=theirs, stdout=subprocess.PIPE, stderr=log
            )

    def pass_time(self, by_ms: int) -> None:
        """Move the held clock forward, after the broker has processed the requests that were sent before."""
        self._line.sendall(b"%d\n" % by_ms)
        assert self._line.recv(1) == DONE, "the broker has gone"

    def close(self) -> None:
        super().close()
        self._line.close()

    def _finish(self) -> tuple[str, int]:
        self._line.close()
        return super()._finish()


class HeldAlarm:
    """A callback that is called when the loop's time has come, or when the test has moved the clock far enough."""

    def __init__(self, clock: HeldClock, deadline_ms: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.timer: asyncio.TimerHandle | None = None
        self._clock = clock
        self._callback = callback

    def cancel(self) -> None:
        self._clock.alarms.pop(self, None)
        if self.timer is not None:
            self.timer.cancel()

    def ring(self) -> None:
        self.cancel()
        self._callback()


class HeldClock:
    """A `broker.runtime.clock.Clock` with the loop's time until it is first moved, and with the test's time from then
    on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.alarms: dict[HeldAlarm, None] = {}
        self._loop = loop
        self._held_ms: int | None = None

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000) if self._held_ms is None else self._held_ms

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Alarm:
        alarm = HeldAlarm(self, deadline_ms, callback)
        self.alarms[alarm] = None
        if self._held_ms is None:
            alarm.timer = self._loop.call_at(deadline_ms / 1000, alarm.ring)
        return alarm

    def advance(self, by_ms: int) -> None:
        """Hold the clock and move it forward; every alarm on the way rings at its own time."""
        self._held_ms = self.monotonic_ms()
        for alarm in self.alarms:
            if alarm.timer is not None:
                alarm.timer.cancel()
        until_ms = self._held_ms + by_ms
        while self.alarms and (first := min(self.alarms, key=_deadline)).deadline_ms <= until_ms:
            self._held_ms = max(first.deadline_ms, self._held_ms)
            first.ring()
        self._held_ms = until_ms


def _deadline(alarm: HeldAlarm) -> int:
    return alarm.deadline_ms


class _Line:
    """The broker's end of the pipe, which is its standard input."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: HeldClock) -> None:
        self._clock = clock
        self._socket = socket.socket(fileno=os.dup(0))
        self._moving: asyncio.Task[None] | None = None
        loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        if command := self._socket.recv(64):
            self._moving = asyncio.get_running_loop().create_task(self._move(int(command)))
        else:
            asyncio.get_running_loop().remove_reader(self._socket)

    async def _move(self, by_ms: int) -> None:
        await _settle()
        self._clock.advance(by_ms)
        await _settle()
        self._socket.send(DONE)


async def _settle() -> None:
    for _ in range(TURNS_TO_SETTLE):
        await asyncio.sleep(0)


def _with_held_time(*arguments: Any, **options: Any) -> BrokerServer:
    loop = asyncio.get_running_loop()
    clock = HeldClock(loop)
    server = BrokerServer(*arguments, clock=clock, **options)
    server.held_time = _Line(loop, clock)  # type: ignore[attr-defined]  # lives as long as the broker
    return server


if __name__ == "__main__":
    command_line.BrokerServer = _with_held_time  # type: ignore[assignment,misc]
    raise SystemExit(command_line.run())
