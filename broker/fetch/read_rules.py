"""The rules of reading that the fast path and the slow path share: an answer's limits, and what is counted of it.

Whether a partition may be read, and up to which offset, is the partition's own rule: `Partition.is_readable_in`,
`Partition.visible_end` and `Partition.has_nothing_for`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker.replication.isolation import FetchIsolation
from broker.replication.partition import Partition
from broker.request.faults import NegativeFetchSize
from storage.index.transaction_index import AbortedTransaction
from storage.reading import LogRead

if TYPE_CHECKING:
    from broker.fetch.replica_choice import ReplicaChoice
    from broker.replication.follower import Follower
    from broker.request.quota import RequestQuota

FOLLOWERS_SERVE_SINCE_VERSION: Final = 11
"""The version of Fetch from which on a consumer may read from a follower (KIP-392)."""


class FetchRequirements:
    """What a fetch asks for as a whole, as far as this broker allows it."""

    __slots__ = (
        "follower",
        "isolation",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "only_leader",
        "quota",
        "replica_choice",
        "wants_aborted",
    )

    def __init__(
        self,
        *,
        isolation: FetchIsolation,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        fetch_max_bytes: int,
        only_leader: bool = True,
        follower: Follower | None = None,
        replica_choice: ReplicaChoice | None = None,
        quota: RequestQuota | None = None,
    ) -> None:
        """``fetch_max_bytes``: the broker's own limit for every answer, which caps both numbers of bytes."""
        self.isolation = isolation
        self.only_leader = only_leader
        """Whether only the leader of a partition may answer."""
        self.replica_choice = replica_choice
        """Which replicas are closer to the consumer; None where it reads from leaders."""
        self.follower = follower
        """Whose fetch it is; None for a consumer's."""
        self.quota = quota
        """The quotas of the client; None where nothing limits it."""
        self.wants_aborted = isolation is FetchIsolation.TXN_COMMITTED
        """Whether the aborted transactions in the records are answered, too (KIP-98)."""
        self.max_bytes = min(max_bytes, fetch_max_bytes)
        """Bytes of records in an answer at most, but for a first batch that is larger (KIP-74)."""
        self.min_bytes = min(min_bytes, self.max_bytes)
        """With fewer bytes of records the fetch waits for more."""
        self.max_wait_ms = max_wait_ms

    def is_enough(self, size: int) -> bool:
        """Whether ``size`` bytes of records are answered at once: nothing is missing, or the fetch does not wait."""
        return size >= self.min_bytes or self.max_wait_ms <= 0

    def without_wait(self) -> FetchRequirements:
        """The same for a fetch that has waited as long as it was asked to."""
        return FetchRequirements(
            isolation=self.isolation,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            max_wait_ms=0,
            fetch_max_bytes=self.max_bytes,
            only_leader=self.only_leader,
            follower=self.follower,
            replica_choice=self.replica_choice,
            quota=self.quota,
        )


class FetchBudget:
    """The bytes of records that partitions may still add to an answer, one after the other (KIP-74)."""

    __slots__ = ("left", "size")

    def __init__(self, max_bytes: int) -> None:
        self.left = max_bytes
        self.size = 0
        """Bytes of records that have been found. While there are none, a batch may be larger than ``left``."""

    def spend(self, size: int) -> None:
        """A partition gives ``size`` bytes of records, which may be more than are left."""
        self.size += size
        self.left = max(self.left - size, 0)


def read_records(
    partition: Partition,
    fetch_offset: int,
    partition_max_bytes: int,
    requirements: FetchRequirements,
    budget: FetchBudget,
    in_memory_only: bool,
) -> tuple[LogRead, Sequence[AbortedTransaction] | None]:
    """Read what a partition that may be read here gives to an answer, and take it off ``budget``; with the aborted
    transactions in it, None where they are not wanted.

    Raises NegativeFetchSize for a limit below 0 where there are records, and what `storage.log.Log.read` raises.
    """
    log = partition.log
    end = partition.visible_end(requirements.isolation)
    max_bytes = min(partition_max_bytes, budget.left)
    if max_bytes < 0 and log.log_start_offset <= fetch_offset < end:
        raise NegativeFetchSize(f"{partition.topic_partition}: at most {max_bytes} bytes asked for")
    found = log.read(
        fetch_offset,
        max_bytes=max_bytes,
        upper_bound_offset=end,
        at_least_one_batch=not budget.size,
        in_memory_only=in_memory_only,
    )
    aborted = log.aborted_transactions(fetch_offset, found) if requirements.wants_aborted else None
    if found.size:
        budget.spend(found.size)
    return found, aborted


def count_fetches(partition: Partition, times: int) -> None:
    """Count fetches of a partition (Kafka: TotalFetchRequestsPerSec). A fetch that waits is one, however often it
    reads."""
    partition.stats.fetches += times


def count_bytes_out(partition: Partition, size: int) -> None:
    """Count bytes of records that are answered (Kafka: BytesOutPerSec)."""
    partition.stats.fetched_bytes += size
