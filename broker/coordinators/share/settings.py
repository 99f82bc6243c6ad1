"""What the settings of the broker say about the state of share groups."""

from typing import NamedTuple


class ShareSettings(NamedTuple):
    """`share.coordinator.*`."""

    updates_per_snapshot: int
    """After so many updates of a share partition comes a snapshot."""
    cold_snapshot_interval_ms: int
    """How old a snapshot may become before another is written, though nothing has changed."""
