"""GroupStats: counters of the groups of all partitions."""


class GroupStats:
    """Counters since the start of the broker. They outlive the shards: loading a partition again does not reset
    them."""

    __slots__ = (
        "committed_offsets",
        "completed_rebalances",
        "consumer_rebalances",
        "deleted_offsets",
        "expired_offsets",
        "share_rebalances",
        "streams_rebalances",
    )

    def __init__(self) -> None:
        self.committed_offsets = 0
        self.deleted_offsets = 0
        """Offsets deleted by request. As in Kafka, offsets deleted with their topic or their group are not counted."""
        self.expired_offsets = 0
        self.consumer_rebalances = 0
        """How often the epoch of a consumer group has grown."""
        self.completed_rebalances = 0
        """Generations whose assignment has been stored."""
        self.share_rebalances = 0
        """New epochs of share groups that came with a heartbeat."""
        self.streams_rebalances = 0
        """New epochs of streams groups that came with a heartbeat."""
