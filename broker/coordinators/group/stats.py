"""What a shard counts, for metrics to come."""

from dataclasses import dataclass


@dataclass(slots=True)
class GroupStats:
    """Plain counters since the start; whoever does it counts it."""

    committed_offsets: int = 0
    deleted_offsets: int = 0
    """By request, or with their topic or group."""
    expired_offsets: int = 0
    completed_rebalances: int = 0
