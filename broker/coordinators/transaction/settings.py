"""What the operator decides about transactions."""

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """Settings of the transaction coordinator."""

    max_timeout_ms: int
    """`transaction.max.timeout.ms`"""
    settles_within_ms: int
    """`add.partitions.to.txn.retry.backoff.max.ms`: how long a partition that a Produce adds waits for the record or
    the markers before it."""
    id_expiration_ms: int
    """`transactional.id.expiration.ms`"""
