"""Notifications to systemd for a service of Type=notify: lines of KEY=VALUE in a datagram (man sd_notify).

STATUS=loading logs: 12 of 340   EXTEND_TIMEOUT_USEC=60000000     while it starts: not hung, whatever the time limit
READY=1   WATCHDOG=1                                              while it serves: the loop turns
STOPPING=1   EXTEND_TIMEOUT_USEC=60000000                         while it stops

Each datagram has the whole state, so the next datagram makes up for a lost one.
"""

import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

from broker.runtime.clock import Alarm, Clock

log = logging.getLogger(__name__)

BEAT_MS: Final = 1000
"""How often a start and a stop report that they go on."""

GRACE_MS: Final = 60_000
"""For how long after a report systemd waits for the next."""


class ServiceManager:
    """The service manager behind NOTIFY_SOCKET. Without that variable no method does anything."""

    def __init__(self, environment: Mapping[str, str], clock: Clock) -> None:
        self._clock = clock
        self._address = environment.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self.watchdog_ms = _watchdog_ms(environment)
        """How long the loop may stand still before systemd kills the process; None if there is no watchdog."""
        self._socket: socket.socket | None = None
        self._lines: Callable[[], list[str]] = list
        self._beat_ms: int | None = None
        self._alarm: Alarm | None = None
        if self._address.startswith(("/", "\0")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            # A manager that does not read must not hold the loop.
            self._socket.setblocking(False)
        elif self._address:
            log.warning("no notifications to NOTIFY_SOCKET=%s, expected a path or @name", self._address)

    def starting(self, progress: Callable[[], str]) -> None:
        """Report repeatedly how far the start has come: ``progress`` is one line."""
        self._say(lambda: [f"STATUS={progress()}", _more_time()], BEAT_MS)

    def ready(self, description: str) -> None:
        """Report that requests are accepted, and from now on, if there is a watchdog, that the loop turns."""
        status = f"STATUS=ready {description}"
        if self.watchdog_ms is None:
            self._say(lambda: ["READY=1", status], None)
        else:
            self._say(lambda: ["READY=1", "WATCHDOG=1", status], max(self.watchdog_ms // 3, 1))

    def stopping(self) -> None:
        """Report that the broker is stopping, until `close`."""
        self._say(lambda: ["STOPPING=1", "WATCHDOG=1", "STATUS=stopping", _more_time()], BEAT_MS)

    def close(self) -> None:
        """Send no more notifications."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _say(self, lines: Callable[[], list[str]], beat_ms: int | None) -> None:
        """Send ``lines`` now, and every ``beat_ms`` milliseconds unless that is None."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._lines, self._beat_ms = lines, beat_ms
        self._beat()

    def _beat(self) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto("\n".join(self._lines()).encode(), self._address)
        except OSError as error:
            # systemd restarts, or its buffer is full: the next beat repeats the state.
            log.debug("the service manager was not notified: %s", error)
        if self._beat_ms is not None:
            self._alarm = self._clock.call_at(self._clock.monotonic_ms() + self._beat_ms, self._beat)


def _more_time() -> str:
    return f"EXTEND_TIMEOUT_USEC={GRACE_MS * 1000}"


def _watchdog_ms(environment: Mapping[str, str]) -> int | None:
    """The time in WATCHDOG_USEC in milliseconds, if it is meant for this process."""
    text = environment.get("WATCHDOG_USEC", "")
    is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return max(int(text) // 1000, 1) if is_ours and text.isdecimal() else None
