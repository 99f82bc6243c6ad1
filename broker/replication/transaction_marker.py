"""TransactionMarker: what the coordinator writes into a partition to end a transaction there (KIP-98, KIP-890)."""

from typing import NamedTuple


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    """The leader epoch of the coordinator's partition: a marker of an older coordinator is refused."""
    transaction_version: int = 0
    """From 2 on the marker's epoch is above that of the transaction which it ends."""
