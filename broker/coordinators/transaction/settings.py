"""What the operator decides about transactions."""

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """Settings of the transaction coordinator."""

    max_timeout_ms: int
    """`transaction.max.timeout.ms`"""
    id_expiration_ms: int
    """`transactional.id.expiration.ms`"""
