"""Counters of the share coordinator, of all its partitions."""

from broker.runtime.histogram import RecentHistogram


class ShareStats:
    """What has been written."""

    __slots__ = ("pruned_offsets", "write_times", "writes")

    def __init__(self) -> None:
        self.writes = 0
        """Writes of state, those included that were refused."""
        self.write_times = RecentHistogram()
        """How long each write took until it was answered, in microseconds."""
        self.pruned_offsets: dict[int, int] = {}
        """Up to where each partition of the topic was pruned last, by partition."""
