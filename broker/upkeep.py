"""What has to be done now and then: each job by its own interval, on the timing wheel."""

import logging
from collections.abc import Callable

from broker.timing_wheel import Timer, TimingWheel

log = logging.getLogger(__name__)

Job = Callable[[], None]


class Upkeep:
    """Runs jobs on the loop, again and again. A job that blocks hands its blocking part to a thread itself."""

    def __init__(self, wheel: TimingWheel) -> None:
        self._wheel = wheel
        self._timers: dict[Job, Timer] = {}
        self._is_stopped = False

    def every(self, interval_ms: int, job: Job, *, first_after_ms: int | None = None) -> None:
        """Run ``job`` every ``interval_ms``, from its end to its beginning; the first time after ``first_after_ms``."""
        self._arm(job, interval_ms, interval_ms if first_after_ms is None else first_after_ms)

    def once(self, after_ms: int, job: Job) -> None:
        """Run ``job`` once, unless the daemon stops before."""

        def run() -> None:
            del self._timers[run]
            job()

        if not self._is_stopped:
            self._timers[run] = self._wheel.add_after(after_ms, run)

    def stop(self) -> None:
        """Nothing is run from now on."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _arm(self, job: Job, interval_ms: int, after_ms: int) -> None:
        def run() -> None:
            job()
            if not self._is_stopped:
                self._arm(job, interval_ms, interval_ms)

        self._timers[job] = self._wheel.add_after(after_ms, run)
