"""Producers, zombies, crashes and clocks in any order, against what transactions promise.

a reader of committed records sees each committed transaction whole and once, and nothing of any other
the last stable offset never passes an open transaction, and never stays behind one that has ended
an older epoch never writes after a newer one was given out
what the log gives back after a crash is the state that was acknowledged before it
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.coordinators.result import ProducerIdAndEpoch
from broker.coordinators.transaction.requests import AddPartitions
from broker.coordinators.transaction.transaction import Transaction
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode
from protocol.records.transaction_state import TransactionStatus
from storage.batch.markers import Marker
from storage.batch.record_batch import MAGIC, TRANSACTIONAL_BIT, BatchHeader
from storage.errors import StorageError
from storage.producer_state import Producers, after_batch, after_marker, check_sequence
from storage.topic_partition import TopicPartition
from tests.unit.broker.coordinators.transaction.harness import TIMEOUT_MS, Coordinator

IDS = ("a", "b")
PARTITIONS = tuple(TopicPartition("orders", index) for index in range(3))

numbers = st.sampled_from((0, 0, 0, 0, 1, 2, 3))
"""How many places before the last one: mostly none."""


@dataclass(eq=False)
class Instance:
    """A process that produces with a transactional id, perhaps still after another one has begun."""

    transactional_id: str
    version: int
    producer: ProducerIdAndEpoch
    transaction: int = 0
    """The number of its transaction, which is what it writes; a new one with every end."""
    added: set[TopicPartition] = field(default_factory=set)
    """The partitions that an old client has added to its transaction: it writes to no others."""
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    is_ending: bool = False


@dataclass
class Stored:
    """A record of a partition, or a marker."""

    offset: int
    producer_id: int
    transaction: int | None
    """None for a marker."""
    is_commit: bool = False


class PartitionLog:
    """A partition with the rules of `storage`: producers, sequences, markers, last stable offset."""

    def __init__(self) -> None:
        self.entries: list[Stored] = []
        self.producers = Producers()

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.first_unstable_offset
        return len(self.entries) if unstable is None else unstable

    def has_open(self, producer: ProducerIdAndEpoch) -> bool:
        entry = self.producers.entries.get(producer.producer_id)
        return (
            entry is not None
            and entry.transaction_first_offset >= 0
            and entry.producer_epoch == producer.producer_epoch
        )

    def append(self, instance: Instance, partition: TopicPartition) -> None:
        """Append a record. Raises StorageError."""
        sequence = instance.sequences.get(partition, 0)
        header = BatchHeader(0, 61, 0, MAGIC, 0, TRANSACTIONAL_BIT, 0, 0, 0, *instance.producer, sequence, 1)
        entry = self.producers.entries.get(header.producer_id)
        assert check_sequence(entry, header) is None
        offset = len(self.entries)
        updated = self.producers.entries[header.producer_id] = after_batch(entry, header, offset)
        self.producers.transaction_may_begin(entry, updated)
        self.entries.append(Stored(offset, header.producer_id, instance.transaction))
        instance.sequences[partition] = sequence + 1

    def append_marker(self, transaction: Transaction) -> None:
        entry = self.producers.entries.get(transaction.producer_id)
        offset = len(self.entries)
        marker = Marker(transaction.producer_id, transaction.producer_epoch, 0, transaction.is_commit, offset, 0)
        updated, completed = after_marker(entry, marker)
        self.producers.entries[transaction.producer_id] = updated
        self.entries.append(Stored(offset, transaction.producer_id, None, transaction.is_commit))
        if completed is not None:
            self.producers.transaction_ended(completed)
        self.producers.replicated_to(len(self.entries))

    def committed(self) -> list[int]:
        """The transactions whose records a reader of committed records sees, once for each record."""
        seen = []
        for entry in self.entries[: self.last_stable_offset]:
            if entry.transaction is not None:
                end = next(
                    other
                    for other in self.entries[entry.offset :]
                    if other.transaction is None and other.producer_id == entry.producer_id
                )
                if end.is_commit:
                    seen.append(entry.transaction)
        return seen


class TransactionsWalk(RuleBasedStateMachine):
    """Each rule is a step of a producer, of the coordinator, of its log, or of time."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(clock=ManualClock())
        self.partitions = {partition: PartitionLog() for partition in PARTITIONS}
        self.instances: list[Instance] = []
        self.newest: dict[str, ProducerIdAndEpoch] = {}
        """The last identity that was given out for each id."""
        self.written: dict[int, list[TopicPartition]] = {}
        """Where each transaction has written, a partition for each record."""
        self.decided: dict[int, bool] = {}
        """Which transactions were committed, or aborted, as their producers were answered."""
        self.transactions = 0
        self.to_mark: dict[str, set[TopicPartition]] = {}
        """The partitions that still need a marker, by the id of the transaction."""

    # Producers

    @initialize(version=st.sampled_from((0, 2)))
    def processes_begin(self, version: int) -> None:
        for transactional_id in IDS:
            self.a_process_begins(transactional_id, version)

    @rule(transactional_id=st.sampled_from(IDS), version=st.sampled_from((0, 2)))
    def a_process_begins(self, transactional_id: str, version: int) -> None:
        answers = self.coordinator.init(transactional_id)
        self.coordinator.write()
        [(error, producer)] = answers
        if error is ErrorCode.NONE:
            self.instances.append(Instance(transactional_id, version, producer, self._number()))
            self.newest[transactional_id] = producer

    @precondition(lambda self: self.instances)
    @rule(which=numbers, partition=st.sampled_from(PARTITIONS))
    def a_process_writes(self, which: int, partition: TopicPartition) -> None:
        instance = self._instance(which)
        if instance.is_ending:
            return  # a producer waits for the answer to its end
        log = self.partitions[partition]
        shard = self.coordinator.shard
        request = AddPartitions(instance.transactional_id, instance.producer, [partition], instance.version)

        def added(codes: Sequence[ErrorCode]) -> None:
            if codes == [ErrorCode.NONE]:
                instance.added.add(partition)
                self._append(instance, partition)

        if instance.version == 2:
            if log.has_open(instance.producer):
                self._append(instance, partition)
            else:
                shard.add_when_settled(request, added)
        elif partition not in instance.added:
            result = shard.add_partitions(request, added)
            if result is not None:
                self.coordinator.staged.append(result)
        elif log.has_open(instance.producer) or shard.verify_partitions(request) == [ErrorCode.NONE]:
            self._append(instance, partition)

    def _append(self, instance: Instance, partition: TopicPartition) -> None:
        try:
            self.partitions[partition].append(instance, partition)
        except StorageError:
            return
        assert instance.producer >= self.newest[instance.transactional_id], "an older epoch has written"
        self.written.setdefault(instance.transaction, []).append(partition)

    @precondition(lambda self: self.instances)
    @rule(which=numbers, commit=st.booleans())
    def a_process_ends_its_transaction(self, which: int, commit: bool) -> None:
        instance = self._instance(which)
        if instance.is_ending:
            return
        instance.is_ending = True
        number = instance.transaction
        coordinator = self.coordinator

        answers = coordinator.end(
            instance.producer,
            commit=commit,
            transactional_id=instance.transactional_id,
            client_version=instance.version,
        )

        def settle() -> None:
            [(error, following)] = answers
            instance.is_ending = False
            if error is ErrorCode.NONE:
                self.decided[number] = commit
                instance.added.clear()
                instance.transaction = self._number()
                if following != instance.producer:
                    instance.producer = following
                    instance.sequences.clear()
                    self.newest[instance.transactional_id] = following

        if answers:
            settle()
        else:
            self._then(settle, answers, instance)

    def _then(self, settle: Callable[[], None], answers: list[Any], instance: Instance) -> None:
        """Settle when the last staged result is written; a crash before that leaves the producer without an answer,
        and the next process with its id begins."""
        result = self.coordinator.staged[-1]

        def then(error: ErrorCode) -> None:
            result.then(error)
            if answers:
                settle()

        self.coordinator.staged[-1] = result._replace(then=then)

    @precondition(lambda self: self.instances)
    @rule(which=numbers, partitions=st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=4), commit=st.booleans())
    def a_process_has_a_transaction(self, which: int, partitions: list[TopicPartition], commit: bool) -> None:
        """Often enough nothing comes in between."""
        for partition in partitions:
            self.a_process_writes(which, partition)
            self.everything_under_way_is_written()
        self.a_process_ends_its_transaction(which, commit)

    # The coordinator's log, and markers

    @precondition(lambda self: self.coordinator.staged)
    @rule()
    def a_record_is_written(self) -> None:
        self.coordinator.write_next()

    @precondition(lambda self: self.coordinator.markers.sent)
    @rule(which=numbers)
    def a_marker_is_written(self, which: int) -> None:
        sent = self.coordinator.markers.sent
        transactional_id = sorted(sent)[which % len(sent)]
        transaction, _ = sent[transactional_id]
        left = self.to_mark.setdefault(transactional_id, set(transaction.partitions))
        if left:
            self.partitions[left.pop()].append_marker(transaction)
        if not left:
            del self.to_mark[transactional_id]
            self.coordinator.markers.write(transactional_id)

    @rule()
    def everything_under_way_is_written(self) -> None:
        while self.coordinator.staged or self.coordinator.markers.sent:
            self.coordinator.write()
            if self.coordinator.markers.sent:
                self.a_marker_is_written(0)

    @rule()
    def the_coordinator_crashes(self) -> None:
        self.coordinator = self.coordinator.restarted()
        self.to_mark.clear()
        # Whoever waits for an answer never gets one; such a process ends.
        self.instances = [instance for instance in self.instances if not instance.is_ending]

    # Time

    @rule()
    def a_timeout_passes(self) -> None:
        self.coordinator.clock.advance(TIMEOUT_MS + 1)
        self.coordinator.sweep()

    # Promises

    @invariant()
    def readers_see_committed_transactions_whole_and_once(self) -> None:
        seen: dict[int, list[TopicPartition]] = {}
        for partition, log in self.partitions.items():
            for number in log.committed():
                seen.setdefault(number, []).append(partition)
        for number, partitions in seen.items():
            assert self.decided.get(number, True), f"transaction {number} was aborted, and is seen"
            written = self.written[number]
            for partition in partitions:
                # Fewer while another transaction is open between its records.
                assert partitions.count(partition) <= written.count(partition)
        is_settled = all(log.last_stable_offset == len(log.entries) for log in self.partitions.values())
        if is_settled and not self.coordinator.markers.sent:
            for number, is_commit in self.decided.items():
                expected = sorted(self.written.get(number, ())) if is_commit else []
                assert sorted(seen.get(number, ())) == expected

    @invariant()
    def nothing_hangs_behind_an_end(self) -> None:
        by_producer = {
            transaction.producer_id: transaction for transaction in self.coordinator.shard.image.by_id.values()
        }
        for partition, log in self.partitions.items():
            for entry in log.producers:
                if entry.transaction_first_offset < 0:
                    continue
                transaction = by_producer[entry.producer_id]
                assert transaction.status not in (TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT)
                assert transaction.status is not TransactionStatus.COMPLETE_ABORT
                assert partition in transaction.partitions
                assert log.last_stable_offset <= entry.transaction_first_offset

    @invariant()
    def every_end_that_is_decided_is_under_way(self) -> None:
        if not self.coordinator.staged and not self.coordinator.markers.sent:
            assert self.coordinator.shard.image.ending() == []

    @invariant()
    def the_log_gives_the_state_back(self) -> None:
        assert self.coordinator.restarted().shard.image.by_id == self.coordinator.shard.image.by_id

    # Parts

    def _instance(self, which: int) -> Instance:
        return self.instances[-1 - which % len(self.instances)]

    def _number(self) -> int:
        self.transactions += 1
        return self.transactions


TransactionsWalk.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestTransactionsAsAWalk = TransactionsWalk.TestCase
