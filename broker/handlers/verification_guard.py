"""VerificationGuard: notices a marker that has ended a transaction since its coordinator was asked for a batch."""

from broker.replication.partition import Partition
from broker.request.faults import NotLeaderOrFollower
from storage.errors import InvalidTransactionState


class VerificationGuard:
    """What a partition knows of a producer when the coordinator of its transaction is asked.

    The answer of a coordinator on another broker may be overtaken by the marker that ends the transaction. A batch that
    is appended behind that marker would open a transaction which no coordinator ends (KIP-890). For producers of
    transaction version 2 no guard is needed, since the end of a transaction begins a new epoch.
    """

    __slots__ = ("_entry", "_led_since_epoch", "_partition", "_producer_epoch", "_producer_id")

    def __init__(self, partition: Partition, producer_id: int, producer_epoch: int) -> None:
        self._partition = partition
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._led_since_epoch = partition.led_since_epoch
        self._entry = partition.log.producers.entries.get(producer_id)

    def check(self) -> None:
        """Check that the coordinator's answer still holds. A batch of an epoch of the past is refused by the append.

        Raises:
            NotLeaderOrFollower: this broker has not led the partition without a break.
            InvalidTransactionState: a marker has ended the transaction meanwhile.
        """
        partition = self._partition
        if partition.led_since_epoch != self._led_since_epoch:
            raise NotLeaderOrFollower(f"{partition.topic_partition} has had another leader since it was verified")
        entry = partition.log.producers.entries.get(self._producer_id)
        # An entry is replaced with everything that its producer does in the partition, and with every marker.
        if entry is None or entry is self._entry or entry.producer_epoch != self._producer_epoch:
            return
        if entry.transaction_first_offset < 0:
            raise InvalidTransactionState(
                f"the transaction of producer {self._producer_id}, epoch {self._producer_epoch}, has ended in "
                f"{partition.topic_partition} since it was verified"
            )
