"""Transactions as the cleaner meets them."""

from storage.batch.record_batch import read_header
from storage.cleaning.transactions import CleanedTransactions
from storage.index.transaction_index import AbortedTransaction
from tests.support.batches import end_marker, stored


def data(offset: int, producer_id: int = 7, *, is_transactional: bool = True) -> bytes:
    return stored(1, offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=0,
                  is_transactional=is_transactional)  # fmt: skip


def marker(offset: int, producer_id: int = 7, *, commit: bool) -> bytes:
    batch = end_marker(commit=commit, producer_id=producer_id, producer_epoch=0)
    batch[0:8] = offset.to_bytes(8, "big")
    return bytes(batch)


def is_aborted(transactions: CleanedTransactions, batch: bytes) -> bool:
    return transactions.is_aborted(read_header(batch))


def is_superfluous(transactions: CleanedTransactions, batch: bytes) -> bool:
    return transactions.is_marker_superfluous(read_header(batch), batch)


def test_batches_of_an_aborted_transaction_are_told_from_those_of_the_next_one() -> None:
    transactions = CleanedTransactions([AbortedTransaction(7, 10, 12, 13)])
    assert not is_aborted(transactions, data(9))
    assert not is_superfluous(transactions, marker(9, commit=True))
    assert is_aborted(transactions, data(10))
    assert is_aborted(transactions, data(11))
    assert not is_superfluous(transactions, marker(12, commit=False))
    assert not is_aborted(transactions, data(13))


def test_of_other_producers_and_outside_of_transactions_nothing_is_aborted() -> None:
    transactions = CleanedTransactions([AbortedTransaction(7, 10, 20, 21)])
    assert is_aborted(transactions, data(10))
    assert not is_aborted(transactions, data(11, producer_id=8))
    assert not is_aborted(transactions, data(12, is_transactional=False))


def test_an_abort_marker_stays_as_long_as_batches_of_its_transaction_are_met_and_the_index_names_it() -> None:
    aborted = AbortedTransaction(7, 10, 12, 13)
    with_batches = CleanedTransactions([aborted])
    is_aborted(with_batches, data(11))
    assert not is_superfluous(with_batches, marker(12, commit=False))
    assert with_batches.kept == [aborted]

    without = CleanedTransactions([aborted])
    assert is_superfluous(without, marker(12, commit=False))
    assert without.kept == []


def test_a_commit_marker_is_superfluous_once_no_batch_of_its_transaction_is_met() -> None:
    transactions = CleanedTransactions([])
    is_aborted(transactions, data(3))
    assert not is_superfluous(transactions, marker(4, commit=True))
    assert is_superfluous(transactions, marker(6, commit=True)), "the transaction before it has ended already"
    assert is_superfluous(transactions, marker(7, producer_id=8, commit=True))


def test_two_aborted_transactions_of_one_producer_are_ended_each_by_its_own_marker() -> None:
    first, second = AbortedTransaction(7, 10, 12, 13), AbortedTransaction(7, 15, 18, 19)
    transactions = CleanedTransactions([second, first])
    assert is_aborted(transactions, data(10))
    assert not is_superfluous(transactions, marker(12, commit=False))
    assert not is_aborted(transactions, data(13))
    assert not is_superfluous(transactions, marker(14, commit=True))
    assert is_superfluous(transactions, marker(18, commit=False)), "all its batches have gone in an earlier round"
    assert transactions.kept == [first]


def test_a_control_batch_that_a_round_has_emptied_is_superfluous() -> None:
    emptied = stored([], offset=5, last_offset_delta=0, producer_id=7, producer_epoch=0, is_transactional=True,
                     is_control=True)  # fmt: skip
    assert is_superfluous(CleanedTransactions([]), emptied)


def test_a_control_batch_of_another_kind_stays() -> None:
    leader_change = stored(1, offset=5, producer_id=-1, is_control=True)
    assert not is_superfluous(CleanedTransactions([]), leader_change)
