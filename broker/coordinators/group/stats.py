"""What the groups of all partitions have counted together."""


class GroupStats:
    """Plain counters since the start; whoever does it counts it. They outlive the shards: a partition that is loaded
    again begins no count anew."""

    __slots__ = ("committed_offsets", "completed_rebalances", "deleted_offsets", "expired_offsets")

    def __init__(self) -> None:
        self.committed_offsets = 0
        self.deleted_offsets = 0
        """By request; as in Kafka, those that go with their topic or their group are not counted."""
        self.expired_offsets = 0
        self.completed_rebalances = 0
        """Generations whose assignment is stored."""
