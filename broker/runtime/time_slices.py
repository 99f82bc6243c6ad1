"""Long work in slices of the loop's time: whoever asks something meanwhile waits for a slice, not for the work."""

from collections import deque
from collections.abc import Callable, Generator
from enum import Enum
from time import monotonic_ns
from typing import Final

SLICE_NS: Final = 2_000_000
"""What all works together take of one turn of the loop, if their steps are short."""


class Step(Enum):
    """What a work says between two of its steps."""

    MORE = "more"
    """It goes on whenever it is its turn."""
    WAITS = "waits"
    """It goes on behind `Work.resume`."""


Steps = Generator[Step, None, None]
"""A work: it runs from one yield to the next, which should be a fraction of a slice away."""


class Work:
    """One work under way."""

    __slots__ = ("_is_queued", "_slices", "steps")

    def __init__(self, slices: "TimeSlices", steps: Steps) -> None:
        self._slices = slices
        self.steps: Steps | None = steps
        self._is_queued = False

    def resume(self) -> None:
        """What it has waited for is there."""
        if not self._is_queued and self.steps is not None:
            self._is_queued = True
            self._slices._queue(self)

    def cancel(self) -> None:
        """It does not go on; where a step of it is under way, not behind that."""
        self.steps = None


class TimeSlices:
    """Takes every work under way in its turn. A work that raises is a bug, and ends the loop's callback with it."""

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], now_ns: Callable[[], int] = monotonic_ns
    ) -> None:
        """``call_soon`` calls in the next turn of the loop."""
        self._call_soon = call_soon
        self._now_ns = now_ns
        self._works: deque[Work] = deque()
        self._is_called = False

    def run(self, steps: Steps) -> Work:
        """Begin a work, in a later turn of the loop."""
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
        """Work until the slice is over; the next one begins with who is next."""
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
