"""MetadataStats: counters and histograms of the metadata log."""

from broker.runtime.histogram import RecentHistogram


class MetadataStats:
    """Counters since the start; durations in microseconds."""

    __slots__ = (
        "appends",
        "commits",
        "publications",
        "published",
        "records",
        "snapshot_bytes",
        "snapshot_ms",
        "snapshots_loaded",
    )

    def __init__(self, now_ms: int) -> None:
        self.appends = 0
        """Appended batches, each of which takes effect as a whole."""
        self.records = 0
        self.commits = RecentHistogram()
        """Time from an append until it is on disk."""
        self.publications = RecentHistogram()
        """Time of publishing a committed change to all subscribers."""
        self.published = RecentHistogram()
        """Number of records that were published together."""
        self.snapshots_loaded = 0
        """Snapshots that were loaded: 1 if there was a snapshot at the start."""
        self.snapshot_bytes = 0
        """Size of the last snapshot that was written, 0 if none was."""
        self.snapshot_ms = now_ms
        """When the last snapshot was written (wall clock); the start of the process, if none was."""

    def rotate(self) -> None:
        """A period is over: forget recent values of the period before it."""
        for histogram in (self.commits, self.publications, self.published):
            histogram.rotate()
