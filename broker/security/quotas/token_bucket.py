"""TokenBucket: events that come in bursts, as the quota of changes of topics measures them (KIP-599)."""


class TokenBucket:
    """Fills with ``rate`` tokens a second up to a burst. An event takes tokens, which may be more than there are."""

    __slots__ = ("_filled_ms", "_tokens")

    def __init__(self) -> None:
        self._tokens = 0.0
        self._filled_ms: int | None = None
        """None: the bucket is full."""

    def tokens(self, rate: float, burst: float, now_ms: int) -> float:
        """How many tokens there are at ``now_ms``; below 0, so many are missing."""
        if self._filled_ms is None:
            self._tokens = burst
        else:
            self._tokens = min(self._tokens + rate * (now_ms - self._filled_ms) / 1000, burst)
        self._filled_ms = now_ms
        return self._tokens

    def take(self, tokens: float, rate: float, burst: float, now_ms: int) -> None:
        """Take tokens, whether or not there are as many."""
        self._tokens = self.tokens(rate, burst, now_ms) - tokens
