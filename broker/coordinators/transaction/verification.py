"""PartitionVerifier: how the leader of a partition asks whether a transaction may write to it (KIP-890)."""

from collections.abc import Callable, Sequence
from typing import Protocol

from protocol.errors import ErrorCode
from storage.topic_partition import TopicPartition

Verified = Callable[[Sequence[ErrorCode]], None]
"""Called exactly once, with a code for each partition in the order of the request; in the same turn where nothing has
to be written or asked of another node."""


class PartitionVerifier(Protocol):
    """Asks the coordinator of a transactional id.

    The codes are NONE, TRANSACTION_ABORTABLE (the partition is not in the transaction), INVALID_PRODUCER_ID_MAPPING,
    INVALID_PRODUCER_EPOCH (of a fenced producer), CONCURRENT_TRANSACTIONS, and those of a coordinator that is not here
    or not ready. The caller maps them to what a client of an old version knows.
    """

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        then: Verified,
    ) -> None:
        """Say of each partition whether it is in the producer's open transaction (KIP-890, part 1)."""

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        then: Verified,
    ) -> None:
        """Add the partitions to the producer's transaction; open one if none is open (KIP-890, part 2)."""
