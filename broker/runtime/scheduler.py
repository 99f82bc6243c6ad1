"""Scheduler: periodic jobs, each with its own interval, on the timing wheel."""

from collections.abc import Callable
from functools import partial

from broker.runtime.timing_wheel import TimingWheel

Job = Callable[[], None]


class Scheduler:
    """Runs jobs on the loop periodically. A job gives its blocking part to a thread itself."""

    def __init__(self, wheel: TimingWheel) -> None:
        self._wheel = wheel
        self._is_stopped = False
        self.least_interval_ms = 0
        """Below this no interval counts: set while a clock is moved by months, which would else run a job of every few
        seconds a million times."""

    def every(self, interval_ms: int, job: Job, *, first_after_ms: int | None = None) -> None:
        """Run ``job`` every ``interval_ms``, from its end to its beginning; the first time after ``first_after_ms``.

        Only this first time if ``interval_ms`` is not positive, as Kafka's scheduler does.
        """
        after_ms = self.interval(interval_ms) if first_after_ms is None else first_after_ms
        self._wheel.add_after(after_ms, partial(self._run_again, interval_ms, job))

    def interval(self, interval_ms: int) -> int:
        """How long a work pauses that is done every ``interval_ms``, in milliseconds."""
        return max(interval_ms, self.least_interval_ms) if interval_ms > 0 else interval_ms

    def once(self, after_ms: int, job: Job) -> None:
        """Run ``job`` once, unless the broker stops before."""
        self._wheel.add_after(after_ms, partial(self._run, job))

    def stop(self) -> None:
        """Run no job from now on."""
        self._is_stopped = True

    def _run(self, job: Job) -> None:
        if not self._is_stopped:
            job()

    def _run_again(self, interval_ms: int, job: Job) -> None:
        self._run(job)
        if not self._is_stopped and interval_ms > 0:
            self.every(interval_ms, job)
