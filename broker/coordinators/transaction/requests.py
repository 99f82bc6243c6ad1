"""Requests to the transaction coordinator and its answers, independent of the protocol's versions."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.coordinators.result import ProducerIdAndEpoch
from protocol.errors import ErrorCode
from storage.sentinels import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from storage.topic_partition import TopicPartition

BUMPS_EPOCH_SINCE: Final = 2
"""The transaction version from which on the end of a transaction begins a new epoch (KIP-890, part 2)."""

NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

IdentityReply = Callable[[ErrorCode, ProducerIdAndEpoch], None]
"""Called once with NONE and the producer id and epoch to go on with, or with an error and `NO_PRODUCER`."""

PartitionsReply = Callable[[Sequence[ErrorCode]], None]
"""Called once with an error for each partition, in the order of the request."""


class InitProducer(NamedTuple):
    """InitProducerId with a transactional id: a producer begins, or goes on after an error."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    """The identity that a producer goes on with after an error (KIP-360); None for a producer that begins."""


class AddPartitions(NamedTuple):
    """AddPartitionsToTxn, and what adds partitions without that request (KIP-890, part 2)."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Sequence[TopicPartition]
    client_version: int = 0
    """The transaction version of the client, 0 or 2."""


class EndTransaction(NamedTuple):
    """EndTxn: the producer commits or aborts."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    is_commit: bool
    client_version: int = 0
    """The transaction version of the client, 0 or 2."""


class DescribedTransaction(NamedTuple):
    """A transactional id as DescribeTransactions shows it."""

    transactional_id: str
    state: str
    producer: ProducerIdAndEpoch
    timeout_ms: int
    started_ms: int
    """In milliseconds since 1970; -1 before the first transaction of this producer."""
    partitions: Sequence[TopicPartition]
