"""Rate: events a second over sliding windows, as Kafka's quotas measure it, and the throttle time (KIP-13)."""

from collections import deque


class _Sample:
    """What was recorded in one window."""

    __slots__ = ("last_event_ms", "start_ms", "value")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_event_ms = start_ms
        self.value = 0.0


class Rate:
    """Events a second over the last ``windows`` windows of ``window_ms`` milliseconds (`quota.window.num` and
    `quota.window.size.seconds`). A rate is taken over at least all windows but one, so that the first event after a
    pause does not count as thousands a second."""

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now_ms: int) -> None:
        """Add ``value`` at ``now_ms``, milliseconds of the monotonic clock."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window_ms:
            # One more than there are windows: the oldest may reach into the time that is looked at.
            if len(samples) > self._windows:
                samples.popleft()
            samples.append(_Sample(now_ms))
        samples[-1].value += value
        samples[-1].last_event_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        """The rate at ``now_ms``."""
        span_ms = self._span_ms(now_ms)
        return sum(sample.value for sample in self._samples) * 1000 / span_ms

    def throttle_ms(self, limit: float, now_ms: int) -> float:
        """How long nothing may be recorded until the rate is ``limit`` a second again; 0 if it is not above."""
        rate = self.per_second(now_ms)
        if rate <= limit:
            return 0
        if limit <= 0:
            return float("inf")
        return (rate - limit) / limit * self._span_ms(now_ms)

    def _span_ms(self, now_ms: int) -> int:
        """The time that the samples stand for. Forgets those that are too old."""
        elapsed_ms = self._elapsed_ms(now_ms)
        missing = self._windows - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1)

    def _elapsed_ms(self, now_ms: int) -> int:
        """The time since the oldest sample began. Forgets samples that are too old."""
        samples = self._samples
        oldest_ms = now_ms - self._windows * self._window_ms
        while samples and samples[0].last_event_ms <= oldest_ms:
            samples.popleft()
        return now_ms - samples[0].start_ms if samples else 0


class SimpleRate(Rate):
    """Events a second since the oldest of the last windows began, over one window at least. What comes after a pause
    counts at once, as Kafka's quotas of replication measure it."""

    def _span_ms(self, now_ms: int) -> int:
        return max(self._elapsed_ms(now_ms), self._window_ms)
