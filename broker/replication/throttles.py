"""ReplicationThrottles: how fast replicas that lag may catch up (KIP-73): a rate each for leader and follower.

A rate holds for the partitions that the topics' configs name. A replica in sync is never held back, since it would fall
behind.
"""

from collections.abc import Mapping, Set
from math import ceil
from typing import Final

from broker.runtime.clock import Clock
from broker.runtime.rate import SimpleRate
from storage.topic_partition import TopicPartition

ALL_PARTITIONS: Final = None
"""In place of a set of partitions: all of a topic."""

_NO_LIMIT: Final = float("inf")


class ReplicationThrottle:
    """The rate of one direction, on this broker."""

    __slots__ = ("_clock", "_rate", "bytes_per_second", "partitions")

    def __init__(self, clock: Clock, *, windows: int, window_ms: int) -> None:
        """``windows`` and ``window_ms``: `replication.quota.window.num` and `replication.quota.window.size.seconds`."""
        self._clock = clock
        self._rate = SimpleRate(windows=windows, window_ms=window_ms)
        self.bytes_per_second = _NO_LIMIT
        self.partitions: Mapping[str, Set[int] | None] = {}
        """The partitions for which the rate holds, by topic; `ALL_PARTITIONS` for all of a topic."""

    def update(self, bytes_per_second: float | None, partitions: Mapping[str, Set[int] | None]) -> None:
        """Set another rate, None for no limit, and the partitions for which it holds."""
        self.bytes_per_second = _NO_LIMIT if bytes_per_second is None else bytes_per_second
        self.partitions = partitions

    def holds_for(self, topic_partition: TopicPartition) -> bool:
        """Whether the rate holds for a partition."""
        topic, index = topic_partition
        if topic not in self.partitions:
            return False
        indexes = self.partitions[topic]
        return indexes is ALL_PARTITIONS or index in indexes

    def count(self, topic_partition: TopicPartition, size: int) -> None:
        """Count bytes that are replicated, where the rate holds for their partition."""
        if size and self.holds_for(topic_partition):
            self._rate.record(size, self._clock.monotonic_ms())

    def pause_ms(self) -> int:
        """For how long nothing may be replicated; 0 where the rate is not exceeded."""
        return ceil(min(self._rate.throttle_ms(self.bytes_per_second, self._clock.monotonic_ms()), 1e9))

    def withholds(self, topic_partition: TopicPartition) -> bool:
        """Whether a replica of the partition that is not in sync gets nothing at present."""
        return self.holds_for(topic_partition) and self.pause_ms() > 0

    def per_second(self) -> float:
        """The present rate."""
        return self._rate.per_second(self._clock.monotonic_ms())


class ReplicationThrottles:
    """The throttles of this broker as a leader and as a follower."""

    __slots__ = ("follower", "leader")

    def __init__(self, clock: Clock, *, windows: int = 11, window_ms: int = 1_000) -> None:
        self.leader = ReplicationThrottle(clock, windows=windows, window_ms=window_ms)
        self.follower = ReplicationThrottle(clock, windows=windows, window_ms=window_ms)
