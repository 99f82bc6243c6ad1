"""Checks that every open transaction of a data directory has a coordinator that will end it (KIP-664)."""

from typing import Final, NamedTuple

from broker.coordinators.transaction.records import decode, transaction_of
from broker.coordinators.transaction.transaction import ENDING, STATE_NAMES, Transaction
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.topic_rules import TRANSACTION_STATE
from protocol.primitives import Malformed
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.transaction_state import TransactionStatus
from storage.batch.records import iterate_records
from storage.batch.walk import StoredBatch
from storage.check.findings import Findings
from storage.check.producer_check import OpenTransaction
from storage.topic_partition import TopicPartition

_UNDECIDED: Final = frozenset({TransactionStatus.ONGOING, *ENDING})
"""The states in which markers are still to be written."""


class _Found(NamedTuple):
    """An open transaction in a partition's log."""

    place: TopicPartition
    directory: str
    transaction: OpenTransaction


class TransactionCheck:
    """Compares the open transactions of all logs with the records of ``__transaction_state``.

    A transaction hangs if its coordinator does not know that the partition is in it: no marker will ever end it, and
    read_committed consumers wait in front of it for good.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._by_id: dict[str, Transaction] = {}
        self._states: set[int] = set()
        """The partitions of ``__transaction_state`` that have been read completely."""
        self._found: list[_Found] = []

    def replay(self, batch: StoredBatch) -> None:
        """Replay a whole batch of ``__transaction_state``. Records that cannot be read are skipped, as a coordinator
        skips them when it loads the partition."""
        if batch.header.is_control:
            return
        for record in iterate_records(batch.data):
            try:
                decoded = decode(record.key or b"", record.value)
            except Malformed:
                continue
            if isinstance(decoded, UnknownRecord):
                continue
            transactional_id = decoded.key.transactional_id
            if decoded.value is None:
                self._by_id.pop(transactional_id, None)
            else:
                self._by_id[transactional_id] = transaction_of(transactional_id, decoded.value)

    def log_read(self, place: TopicPartition, directory: str, open_transactions: tuple[OpenTransaction, ...]) -> None:
        """Note an undamaged log and its open transactions."""
        if place.topic == TRANSACTION_STATE:
            self._states.add(place.partition)
        self._found += [_Found(place, directory, transaction) for transaction in open_transactions]

    def finish(self, image: MetadataImage, node_id: int) -> None:
        """Report the transactions that hang; all logs have been read.

        A transaction is only judged where nothing is missing: this node is the only replica of its partition and of
        every partition of ``__transaction_state``, and all of these are undamaged and in the given directories.
        """
        state = image.topics.by_name.get(TRANSACTION_STATE)
        if state is not None and not all(
            partition.replicas == (node_id,) and partition.index in self._states for partition in state.partitions
        ):
            return
        by_producer = {transaction.producer_id: transaction for transaction in self._by_id.values()}
        for found in self._found:
            partition = image.topics.partition(*found.place)
            if partition is None or partition.replicas != (node_id,):
                continue
            known = by_producer.get(found.transaction.producer_id)
            if not _will_be_ended(found, known):
                self._report(found, known)

    def _report(self, found: _Found, known: Transaction | None) -> None:
        producer_id, epoch, first_offset = found.transaction
        has = (
            "no such producer" if known is None
            else f"transactional id {known.transactional_id!r} in state {STATE_NAMES[known.status]} with epoch "
            f"{known.producer_epoch}"
        )  # fmt: skip
        self._findings.damage(
            found.directory,
            f"a hanging transaction of producer {producer_id} with epoch {epoch} from offset {first_offset}",
            f"a marker, or an ongoing transaction with {found.place} in {TRANSACTION_STATE}, which has {has}",
            offset=first_offset,
        )


def _will_be_ended(found: _Found, known: Transaction | None) -> bool:
    """Whether the transaction that the coordinator has in hand ends this one: it writes a marker of its epoch, which
    may be later, to all of its partitions."""
    return (
        known is not None
        and known.status in _UNDECIDED
        and found.place in known.partitions
        and known.producer_epoch >= found.transaction.producer_epoch
    )
