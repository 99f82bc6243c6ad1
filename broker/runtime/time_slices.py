"""TimeSlices: long work on the loop in slices, so that a request waits for a slice and not for the whole work."""

from collections import deque
from collections.abc import Callable, Generator
from enum import Enum
from time import monotonic_ns
from typing import Final

SLICE_NS: Final = 2_000_000
"""Nanoseconds that all works together take of one turn of the loop, if their steps are short."""


class Step(Enum):
    """What a work yields between two of its steps."""

    MORE = "more"
    """The work has more steps to do."""
    WAITS = "waits"
    """The work goes on after `Work.resume`."""


Steps = Generator[Step, None, None]
"""The steps of a work: from one yield to the next, each a fraction of a slice long."""


class Work:
    """A work that has begun and not ended."""

    __slots__ = ("_is_queued", "_slices", "steps")

    def __init__(self, slices: "TimeSlices", steps: Steps) -> None:
        self._slices = slices
        self.steps: Steps | None = steps
        self._is_queued = False

    def resume(self) -> None:
        """The work no longer waits: it goes on in its next turn."""
        if not self._is_queued and self.steps is not None:
            self._is_queued = True
            self._slices._queue(self)

    def cancel(self) -> None:
        """End the work; a step that is running is the last."""
        self.steps = None


class TimeSlices:
    """Runs the steps of all works in turn. A work that raises is a bug: the error ends the loop's callback."""

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], now_ns: Callable[[], int] = monotonic_ns
    ) -> None:
        """``call_soon`` calls in the next turn of the loop."""
        self._call_soon = call_soon
        self._now_ns = now_ns
        self._works: deque[Work] = deque()
        self._is_called = False

    @property
    def is_idle(self) -> bool:
        """Whether no work has a step to do: each has ended, or waits."""
        return not self._works

    def run(self, steps: Steps) -> Work:
        """Begin a work in a later turn of the loop."""
        work = Work(self, steps)
        work.resume()
        return work

    def _queue(self, work: Work) -> None:
        self._works.append(work)
        self._go_on()

    def _go_on(self) -> None:
        if self._works and not self._is_called:
            self._is_called = True
            self._call_soon(self._slice)

    def _slice(self) -> None:
        """Run steps until the slice is over. The next slice begins with the work that is next."""
        self._is_called = False
        try:
            self._work_until(self._now_ns() + SLICE_NS)
        finally:
            self._go_on()

    def _work_until(self, latest_ns: int) -> None:
        now_ns = self._now_ns
        while self._works:
            work = self._works.popleft()
            work._is_queued = False
            while (steps := work.steps) is not None:
                step = next(steps, None)
                if step is None:
                    work.steps = None
                elif step is Step.WAITS:
                    break
                elif now_ns() >= latest_ns:
                    work.resume()
                    return
