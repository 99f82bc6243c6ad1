"""What the metadata log counts."""

from broker.runtime.histogram import RecentHistogram


class MetadataStats:
    """Since the start; durations in microseconds."""

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
        """Batches, which take effect as a whole."""
        self.records = 0
        self.commits = RecentHistogram()
        """From an append to where it is on disk."""
        self.publications = RecentHistogram()
        """What it took to tell everybody of what is on disk."""
        self.published = RecentHistogram()
        """Records that were told of at once."""
        self.snapshots_loaded = 0
        """At the start, if there was one."""
        self.snapshot_bytes = 0
        """Of the last snapshot that was written, 0 if none was."""
        self.snapshot_ms = now_ms
        """When it was written (wall clock); when the process started, if none was."""

    def rotate(self) -> None:
        """A period is over."""
        for histogram in (self.commits, self.publications, self.published):
            histogram.rotate()
