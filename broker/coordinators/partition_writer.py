"""PartitionWriter: appends the records of one shard to its partition, and replays them once they are acknowledged.

append          a CoordinatorResult is staged as one batch; it is written with all that the turn stages in the partition
written         the batch is in the file; where `flush.messages` asks for a flush, the flush is waited for too
acknowledged    the records are replayed, in the order of the log, and then the caller is answered
failed          no record of the batch is in the log or in the state; the caller gets the error code

Markers of transactions go the same way, so that a marker is replayed behind the records that it commits or aborts.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic

from broker.coordinators.result import Completion, CoordinatorResult, Record
from broker.coordinators.shard import Encode, Shard
from broker.replication.append import Publication
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_marker import TransactionMarker
from broker.request.faults import Fault, error_code_of
from broker.runtime.clock import Clock
from broker.runtime.counted import counted
from protocol.errors import ErrorCode
from protocol.primitives import Unencodable
from storage.appending import StagedAppend
from storage.batch.pairs import encode_pairs
from storage.batch.record_batch import Codec
from storage.errors import BatchTooLarge, InvalidProducerEpoch, StorageError
from storage.sentinels import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

log = logging.getLogger(__name__)


class _Entry:
    """A CoordinatorResult or a marker that is being written."""

    __slots__ = ("_late", "first_offset", "is_completed", "outcome", "replay", "then")

    def __init__(self, replay: Callable[[int], None], then: Completion, late: Callable[[], None] | None = None) -> None:
        """``replay`` is given the first offset of the batch; ``late``: see `CoordinatorResult.late`."""
        self.replay = replay
        """Applies what is written to the shard."""
        self.then = then
        self._late = late
        self.outcome: ErrorCode | None = None
        """None while the entry is being written."""
        self.first_offset = -1
        """Of the batch; -1 without a batch."""
        self.is_completed = False
        """Whether the caller has its error code."""

    def complete(self, code: ErrorCode) -> None:
        if not self.is_completed:
            self.is_completed = True
            self.then(code)

    def tell_late(self) -> None:
        """The caller's time is over."""
        if self._late is None:
            self.complete(ErrorCode.REQUEST_TIMED_OUT)
        else:
            self._late()


class PartitionWriter(Generic[Record]):
    """Writes the results of one shard to its partition of a coordinators' topic. Clients should not write there."""

    def __init__(
        self,
        partition: Partition,
        *,
        replicas: ReplicaManager,
        clock: Clock,
        encode: Encode[Record],
        codec: Codec,
        base_sequence: int,
        timeout_ms: int,
        end_offset: int,
        shard: Shard,
        other_writer_found: Callable[[], None],
    ) -> None:
        """``end_offset``: up to where the log has been replayed. ``other_writer_found`` is called when the log has a
        batch of another writer: then the shard's state is no longer that of the log."""
        self._partition = partition
        self._replicas = replicas
        self._clock = clock
        self._encode = encode
        self._codec = codec
        self._base_sequence = base_sequence
        self._timeout_ms = timeout_ms
        self._next_offset = end_offset
        """The offset that the next batch gets, unless there is another writer."""
        self._shard = shard
        self._other_writer_found = other_writer_found
        self._entries: deque[_Entry] = deque()
        """Results and markers that are being written, in the order of the log."""
        self._is_closed = False
        self._await_what_was_loaded()

    def __len__(self) -> int:
        """How many results and markers are being written."""
        return len(self._entries)

    def _await_what_was_loaded(self) -> None:
        """Let the first answers wait until what was loaded is acknowledged, as they wait for results before them.

        The broker may have been killed before a flush that `flush.messages` asks for. What an answer without records
        rests on would be lost with the power.
        """
        publication = Publication(self._partition)
        if not publication.is_complete:
            entry = _Entry(_nothing_to_replay, _nobody_to_answer)
            self._entries.append(entry)
            self._wait(entry, publication)
            self._replicas.flush_if_due(self._partition)

    def append(self, result: CoordinatorResult[Record]) -> None:
        """Write a result. A result without records is answered once all results before it are answered."""
        entry = _Entry(partial(self._replay, result), result.then, result.late)
        if not result.records and not self._is_closed:
            entry.outcome = ErrorCode.NONE
            self._entries.append(entry)
            self._settle()
            return
        error = self._append(entry, partial(self._stage, entry, result))
        if error is not None:
            log.warning("%s not written: %s", counted(len(result.records), "record"), error)
            self._settle()

    def append_marker(self, marker: TransactionMarker, then: Completion) -> None:
        """Write the marker that ends a producer's transaction in this partition."""
        entry = _Entry(partial(self._replay_marker, marker), then)
        stage = partial(self._replicas.appender.append_marker, self._partition, marker, partial(self._written, entry))
        if self._append(entry, stage) is not None:
            self._settle()

    def _append(self, entry: _Entry, stage: Callable[[], None]) -> Fault | StorageError | Unencodable | None:
        """Stage an entry's batch behind all entries before it. Returns the error of a batch that cannot be written;
        then nothing is staged, and the entry has its outcome."""
        if self._is_closed:
            entry.complete(ErrorCode.NOT_COORDINATOR)
            return None
        self._entries.append(entry)
        found = self._partition.log.next_offset
        if found != self._next_offset:
            log.error(
                "the next offset of %s is %d instead of %d: another writer has appended to it, and it is loaded again",
                self._partition.topic_partition,
                found,
                self._next_offset,
            )
            self._other_writer_found()
            return None
        try:
            self._partition.check_append(by_all=True)
            stage()
        except (Fault, StorageError) as error:
            entry.outcome = error_code_of(error)
            return error
        except Unencodable as error:  # from nonsense that was loaded, such as the highest epoch
            entry.outcome = ErrorCode.UNKNOWN_SERVER_ERROR
            return error
        entry.first_offset = found
        self._next_offset = self._partition.log.next_offset
        return None

    def close(self, code: ErrorCode) -> None:
        """The shard is unloaded: waiting callers are answered with ``code``, whatever becomes of the records."""
        self._is_closed = True
        entries, self._entries = self._entries, deque()
        for entry in entries:
            entry.complete(code)

    def _stage(self, entry: _Entry, result: CoordinatorResult[Record]) -> None:
        """Stage the result's batch. Raises the error of a batch that cannot be written; then nothing is staged."""
        partition = self._partition
        producer_id, producer_epoch = result.transaction or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        if result.transaction is not None:
            self._check_epoch(producer_id, producer_epoch)
        batch = encode_pairs(
            map(self._encode, result.records),
            timestamp=self._clock.now_ms(),
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=self._base_sequence,
            is_transactional=result.transaction is not None,
        )
        most_bytes = partition.log.config.max_message_bytes
        if len(batch) > most_bytes:
            raise BatchTooLarge(f"{partition.topic_partition}: a batch of {len(batch)} bytes, {most_bytes} are allowed")
        self._replicas.appender.append_own(partition, batch, partial(self._written, entry))

    def _check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        known = self._partition.log.producers.entries.get(producer_id)
        if known is not None and producer_epoch < known.producer_epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {producer_epoch}, and epoch {known.producer_epoch} has been seen"
            )

    def _written(self, entry: _Entry, staged: StagedAppend, outcome: Publication | StorageError | Fault) -> None:
        if not isinstance(outcome, Publication):
            # The batch is no longer in the log, nor is anything behind it.
            self._next_offset = min(self._next_offset, staged.first_offset)
            entry.outcome = error_code_of(outcome)
        elif outcome.is_complete:
            entry.outcome = ErrorCode.NONE
        else:
            self._wait(entry, outcome)
            return
        self._settle()

    def _wait(self, entry: _Entry, publication: Publication) -> None:
        self._replicas.acknowledge(
            (publication,),
            by_all=True,
            timeout_ms=self._timeout_ms,
            then=lambda late: self._waited(entry, publication, is_late=bool(late)),
        )

    def _waited(self, entry: _Entry, publication: Publication, *, is_late: bool) -> None:
        if self._is_closed:
            return
        if publication.is_lost:
            entry.outcome = error_code_of(publication.why_lost())
            self._settle()
            return
        if is_late:
            # The records are in the log and will be acknowledged at some time; only the caller's time is over.
            entry.tell_late()
            if not self._replicas.produce_purgatory.is_closed:
                self._wait(entry, publication)
            return
        entry.outcome = ErrorCode.NONE
        self._settle()

    def _settle(self) -> None:
        """Replay and answer the entries with an outcome, in the order of the log."""
        while self._entries and (outcome := self._entries[0].outcome) is not None:
            entry = self._entries.popleft()
            if outcome is ErrorCode.NONE:
                entry.replay(entry.first_offset)
            entry.complete(outcome)

    def _replay(self, result: CoordinatorResult[Record], first_offset: int) -> None:
        producer_id = NO_PRODUCER_ID if result.transaction is None else result.transaction.producer_id
        for offset, record in enumerate(result.records, first_offset):
            self._shard.replay(record, producer_id=producer_id, offset=offset)

    def _replay_marker(self, marker: TransactionMarker, _: int) -> None:
        self._shard.replay_marker(marker.producer_id, commits=marker.is_commit)


def _nothing_to_replay(_: int) -> None:
    """What was loaded is replayed already."""


def _nobody_to_answer(_: ErrorCode) -> None:
    """Nobody has asked for what was loaded."""
