"""The window of a share partition: which records of a partition are in flight in a share group, and in what state.

    done with │ start offset                                   end offset │ not delivered yet
              │ ACKNOWLEDGED  ACQUIRED  AVAILABLE  ARCHIVED  ACQUIRED ... │

Records are delivered in the batches of the log, and keep one state for a batch until members treat its records
differently. The start offset follows the first record that is not done with (KIP-932).

The window is changed in memory first. What it returns as `Change` must be persisted; then `complete` ends the change,
or takes it back. What was only acquired is not persisted: after a restart it is available again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from broker.coordinators.share.persister import StateBatch
from broker.request.faults import InvalidRecordState, InvalidRequest
from broker.runtime.histogram import CountedHistogram
from broker.runtime.timing_wheel import TimingWheel
from broker.share.acquiring import (
    LEAST_THROTTLE_LIMIT,
    Acquiring,
    cut,
    end_of_batch_with,
    has_throttled,
    throttle_limit_of,
)
from broker.share.in_flight import TERMINAL, AcquisitionLock, InFlight, InFlightBatch, RecordState
from broker.share.requests import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredRecords,
    AcquireMode,
    Acquisition,
    Change,
    DeadLetterCause,
    WindowTerms,
)
from storage.batch.record_batch import BatchHeader

MOST_DELIVERIES: Final = (1 << 15) - 1
"""The protocol has no higher count."""

MOST_AVAILABLE: Final = 1 << 20
"""A longer run of available records is not restored: each may need a state of its own, and a window has 10,000 records
at most (`group.share.partition.max.record.locks`) and what is left of a batch of the log."""

NONE_IN_FLIGHT: Final = -1


class Window:
    """The records in flight of one share group in one partition."""

    def __init__(
        self, wheel: TimingWheel, now_ms: Callable[[], int], on_expired: Callable[[AcquisitionLock], None]
    ) -> None:
        """``now_ms``: the monotonic clock; ``on_expired``: calls `expire` and has the changes persisted."""
        self._wheel = wheel
        self._now_ms = now_ms
        self._on_expired = on_expired
        self._batches: list[InFlightBatch] = []
        self._first_offsets: list[int] = []
        """Of each batch: the keys to search by."""
        self.start_offset = 0
        """Everything below is done with."""
        self.end_offset = 0
        """The last offset in flight; the next to fetch, where nothing is in flight."""
        self.complete_count = 0
        """Records at and behind the start offset that are done with."""
        self._may_have_available = False
        """Whether records in flight may be available; else what is behind the window is fetched next."""
        self.batch_sizes = CountedHistogram()
        """How many records each batch had that was put in flight (Kafka: InFlightBatchMessageCount)."""
        self._gap: tuple[int, int] | None = None
        """After a restart, where the stored batches leave offsets out, which were in flight and not stored: the end
        offset then, and the first offset that is missing."""

    def restore(self, start_offset: int, stored: Sequence[StateBatch]) -> list[Change]:
        """Begin with a stored state, whose batches are sorted; return what was on its way to the dead letter queue.

        Available records of a run longer than `MOST_AVAILABLE` are delivered as if for the first time.

        Raises ValueError for batches that no share group can have stored.
        """
        archiving: list[Change] = []
        self.start_offset = self.end_offset = next_offset = start_offset
        gap_start = NONE_IN_FLIGHT
        for one in stored:
            if one.first_offset < next_offset or one.last_offset < one.first_offset:
                raise ValueError(f"{one.first_offset} to {one.last_offset} is stored, behind {next_offset - 1}")
            if not 0 <= one.delivery_count < MOST_DELIVERIES:
                raise ValueError(f"{one.first_offset} to {one.last_offset} has {one.delivery_count} deliveries")
            state = RecordState(one.delivery_state)
            if state is RecordState.ACQUIRED:
                state = RecordState.AVAILABLE
            if state is RecordState.AVAILABLE and one.last_offset - one.first_offset >= MOST_AVAILABLE:
                continue
            if one.first_offset > next_offset and gap_start == NONE_IN_FLIGHT:
                gap_start = next_offset
            next_offset = one.last_offset + 1
            batch = InFlightBatch(one.first_offset, one.last_offset, InFlight(state, one.delivery_count))
            self._add(batch)
            if state in TERMINAL:
                self.complete_count += batch.size
            elif state is RecordState.ARCHIVING:
                archiving.append(Change(batch, one))
        if self._batches:
            self._may_have_available = True
            self.end_offset = next_offset - 1
            if gap_start != NONE_IN_FLIGHT:
                self._gap = self.end_offset, gap_start
            self.advance()
        return archiving

    # What is in flight ------------------------------------------------------------------------------------------------

    @property
    def batches(self) -> Sequence[InFlightBatch]:
        """What is in flight, by offset."""
        return self._batches

    @property
    def size(self) -> int:
        """How many offsets are in flight, those done with included."""
        return self.end_offset - self.start_offset + 1 if self._batches else 0

    @property
    def is_at_end(self) -> bool:
        """Whether nothing in flight is to be fetched again."""
        return self.next_fetch_offset() == self.end_offset + 1

    @property
    def may_have_available(self) -> bool:
        """Whether records in flight may be available; False only where none is."""
        return self._may_have_available

    def can_acquire(self, terms: WindowTerms) -> bool:
        """Whether a fetch could give something to acquire."""
        return not self.is_at_end or self.size < terms.max_records_in_flight

    def next_fetch_offset(self) -> int:
        """The first offset that can be acquired: of released records, of what a restart left out, or behind the
        window."""
        if not self._batches or self.start_offset > self._batches[-1].last_offset:
            self._may_have_available = False
            return self.end_offset
        if self._may_have_available:
            found = self._first_available()
            if found is not None:
                return found
            self._may_have_available = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        gap_start = self._gap_start()
        for batch in self._batches:
            if gap_start is not None:
                if batch.first_offset > gap_start:
                    return gap_start
                gap_start = max(batch.last_offset + 1, gap_start)
            if batch.records is None:
                if batch.whole.is_available:
                    return batch.first_offset
                continue
            for offset, record in enumerate(batch.records, batch.first_offset):
                if record.is_available:
                    return offset
        return None

    def _gap_start(self) -> int | None:
        """The first offset that a restart has left out, as long as nothing behind the window of then was fetched."""
        if self._gap is None or self._gap[0] != self.end_offset:
            return None
        return self._gap[1]

    def _add(self, batch: InFlightBatch) -> None:
        place = bisect_left(self._first_offsets, batch.first_offset)
        self._first_offsets.insert(place, batch.first_offset)
        self._batches.insert(place, batch)
        self.batch_sizes.record(batch.size)

    def _floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at ``offset`` or before."""
        place = bisect_right(self._first_offsets, offset)
        return self._batches[place - 1] if place else None

    def _between(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """The batches that begin in the range, whose ends count."""
        begin = bisect_left(self._first_offsets, first_offset)
        return self._batches[begin : max(bisect_right(self._first_offsets, last_offset), begin)]

    def _overlapping(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        floor = self._floor(first_offset)
        begin = floor.first_offset if floor is not None and floor.last_offset >= first_offset else first_offset
        return self._between(begin, last_offset)

    def unlock_all(self) -> None:
        """No lock shall expire any more: the window is no longer used."""
        for batch in self._batches:
            for _, _, state in batch.states():
                state.unlock()

    def _lock(self, terms: WindowTerms, first_offset: int, last_offset: int) -> AcquisitionLock:
        deadline_ms = self._now_ms() + terms.lock_duration_ms
        return AcquisitionLock(self._wheel, deadline_ms, first_offset, last_offset, self._on_expired)

    # Acquiring --------------------------------------------------------------------------------------------------------

    def acquire(
        self, want: Acquisition, fetch_offset: int, fetched: Sequence[BatchHeader], terms: WindowTerms
    ) -> list[AcquiredRecords]:
        """Deliver records of the batches ``fetched``, which were read from ``fetch_offset`` (`next_fetch_offset`)."""
        if not fetched or want.max_records <= 0 or fetched[-1].last_offset < self.start_offset:
            return []
        last_offset = fetched[-1].last_offset
        room = min(want.max_records, terms.max_records_in_flight - self.size)
        if room <= 0:
            # Full: only what is in flight already can be delivered again.
            if fetch_offset > self.end_offset:
                return []
            room = min(want.max_records, self.end_offset - fetch_offset + 1)
            last_offset = min(last_offset, self.end_offset)
        base_offset = fetched[0].base_offset
        self._archive_missing(fetch_offset, base_offset)
        first_offset = base_offset
        floor = self._floor(base_offset)
        if floor is None:
            first_offset = max(base_offset, self.start_offset)
        elif floor.last_offset >= base_offset:
            first_offset = floor.first_offset
        acquiring = Acquiring(want, room, fetched, terms)
        known = self._between(min(base_offset, first_offset), last_offset)
        if known:
            self._acquire_again(acquiring, known, first_offset, base_offset, last_offset)
            if acquiring.acquired:
                self._move_gap(acquiring.acquired[-1].last_offset + 1)
        else:
            self._acquire_new(acquiring, first_offset, last_offset)
        return acquiring.acquired

    def _acquire_again(
        self,
        acquiring: Acquiring,
        known: Sequence[InFlightBatch],
        first_offset: int,
        base_offset: int,
        last_offset: int,
    ) -> None:
        """Acquire what is available of batches in flight, what is missing between them, and what comes behind them."""
        is_limit = acquiring.want.mode is AcquireMode.RECORD_LIMIT
        gap_start = first_offset
        for batch in known:
            if acquiring.room <= 0:
                return
            if self._gap_start() is not None:
                if gap_start < batch.first_offset:
                    self._acquire_new(acquiring, gap_start, batch.first_offset - 1)
                gap_start = batch.last_offset + 1
                if acquiring.room <= 0:
                    return
            is_throttled = has_throttled(batch, base_offset, last_offset, acquiring.terms)
            if is_throttled and acquiring.acquired:
                return  # what has failed so often is delivered on its own
            if (
                batch.records is not None
                or is_throttled
                or not batch.lies_within(base_offset, last_offset)
                or (is_limit and batch.size > acquiring.room)
            ):
                if batch.records is None and not batch.whole.is_available:
                    continue
                if self._acquire_records(acquiring, batch, base_offset, last_offset) and is_throttled:
                    return
            elif batch.whole.is_available:
                lock = self._lock(acquiring.terms, batch.first_offset, batch.last_offset)
                batch.whole.acquire(acquiring.want.member_id, lock)
                acquiring.add(batch.first_offset, batch.last_offset, batch.whole.delivery_count)
        if acquiring.room > 0 and known[-1].last_offset < last_offset:
            self._acquire_new(acquiring, known[-1].last_offset + 1, last_offset)

    def _acquire_records(self, acquiring: Acquiring, batch: InFlightBatch, base_offset: int, last_offset: int) -> int:
        """Acquire available records of a batch one by one, and return how many.

        Records that were delivered often are thrown out of ever smaller groups, so that a record which makes its
        consumers fail does not take others with it: a half of the batch, a quarter; before the last delivery, alone.
        """
        terms, want = acquiring.terms, acquiring.want
        count_limit = terms.limit.deliveries
        throttle_limit = throttle_limit_of(count_limit)
        most = acquiring.room if want.mode is AcquireMode.RECORD_LIMIT else 0
        throttled_most = 0
        acquired: list[AcquiredRecords] = []
        size = len(batch.split())
        for offset, record in batch.within(base_offset, last_offset):
            if not record.is_available:
                continue
            is_last_delivery = count_limit > LEAST_THROTTLE_LIMIT and record.delivery_count == count_limit - 1
            if is_last_delivery and acquired:
                break
            if record.delivery_count >= throttle_limit and not throttled_most:
                throttled_most = max(1, size >> record.delivery_count - throttle_limit + 1)
            record.acquire(want.member_id, self._lock(terms, offset, offset))
            acquired.append(AcquiredRecords(offset, offset, record.delivery_count))
            if is_last_delivery or len(acquired) in (most, throttled_most):
                break
        acquiring.add_together(acquired)
        return len(acquired)

    def _acquire_new(self, acquiring: Acquiring, first_offset: int, last_offset: int) -> None:
        """Acquire offsets of which none is in flight, in the batches that they have in the log."""
        if not self._batches:
            first_offset = max(first_offset, self.end_offset)
        room = acquiring.room
        if room < last_offset - first_offset + 1:
            end_of_batch = end_of_batch_with(acquiring.fetched, first_offset + room - 1)
            last_offset = end_of_batch if self._gap_start() is None else min(end_of_batch, last_offset)
        if acquiring.want.mode is AcquireMode.RECORD_LIMIT:
            acquired_to = min(last_offset, first_offset + room - 1)
            self._put_in_flight(acquiring, first_offset, last_offset, acquired_to)
        else:
            acquired_to = last_offset
            for first, last in cut(acquiring.fetched, first_offset, last_offset, acquiring.want.batch_size):
                self._put_in_flight(acquiring, first, last, last)
        if self._first_offsets[0] == first_offset:
            self.start_offset = first_offset
        self.end_offset = max(self.end_offset, last_offset)
        self._move_gap(acquired_to + 1)

    def _put_in_flight(self, acquiring: Acquiring, first_offset: int, last_offset: int, acquired_to: int) -> None:
        """Put a new batch in flight: acquired up to ``acquired_to``, and available behind that."""
        terms, member_id = acquiring.terms, acquiring.want.member_id
        batch = InFlightBatch(first_offset, last_offset, InFlight(RecordState.AVAILABLE, 0))
        if acquired_to < last_offset:
            records = batch.split()[: acquired_to - first_offset + 1]
            lock = self._lock(terms, first_offset, acquired_to)
            lock.holders = len(records)
            for record in records:
                record.acquire(member_id, lock)
            self._may_have_available = True
        else:
            batch.whole.acquire(member_id, self._lock(terms, first_offset, last_offset))
        self._add(batch)
        acquiring.add(first_offset, acquired_to, 1)

    def _move_gap(self, offset: int) -> None:
        """Everything below ``offset`` was fetched since the restart."""
        if self._gap is None:
            return
        end_offset = self._gap[0]
        while (floor := self._floor(offset)) is not None and floor.last_offset >= offset:
            offset = floor.last_offset + 1
        self._gap = (end_offset, offset) if end_offset == self.end_offset and offset <= end_offset else None

    def take_back(self, member_id: str, acquired: Sequence[AcquiredRecords]) -> None:
        """What the member has acquired is not delivered.

        Records that it does not hold any more are passed over: their lock has expired, or its session has ended. They
        may be another member's by now.
        """
        for run in acquired:
            for batch in self._overlapping(run.first_offset, run.last_offset):
                for _, _, state in batch.states_within(run.first_offset, run.last_offset):
                    if state.is_held_since(member_id, run.delivery_count):
                        state.take_back()
                        self._may_have_available = True

    # Acknowledging ----------------------------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], terms: WindowTerms
    ) -> list[Change]:
        """Begin what a member says of its records, all or nothing.

        Raises:
            InvalidRecordState: Records are not acquired, or not by this member.
            InvalidRequest: Offsets are behind the window.
        """
        changes: list[Change] = []
        try:
            for one in acknowledgements:
                if one.last_offset >= self.start_offset:
                    self._acknowledge(member_id, one, terms, changes)
        except (InvalidRecordState, InvalidRequest):
            self.complete(changes, is_persisted=False)
            raise
        return changes

    def _acknowledge(self, member_id: str, said: Acknowledgement, terms: WindowTerms, changes: list[Change]) -> None:
        for batch in self._acknowledged(said):
            if batch.last_offset < self.start_offset:
                continue
            if batch.records is None:
                _check_held(batch.whole, member_id, batch)
                if (
                    len(said.types) == 1
                    and batch.lies_within(said.first_offset, said.last_offset)
                    and batch.first_offset >= self.start_offset
                ):
                    self._say(batch.whole, batch, batch.first_offset, batch.last_offset, said.types[0], terms, changes)
                    continue
                batch.split()
            for offset, record in batch.within(max(said.first_offset, self.start_offset), said.last_offset):
                _check_held(record, member_id, batch)
                said_of_it = said.types[0] if len(said.types) == 1 else said.types[offset - said.first_offset]
                self._say(record, batch, offset, offset, said_of_it, terms, changes)

    def _acknowledged(self, said: Acknowledgement) -> Sequence[InFlightBatch]:
        floor = self._floor(said.first_offset)
        if floor is None and said.first_offset < self.start_offset:
            floor = self._floor(self.start_offset)
        if floor is None:
            raise InvalidRecordState(f"the records from {said.first_offset} to {said.last_offset} are not in flight")
        batches = self._between(floor.first_offset, said.last_offset)
        if not batches or batches[-1].last_offset < said.last_offset:
            raise InvalidRequest(f"offset {said.last_offset} is behind the records in flight")
        return batches

    def _say(
        self,
        state: InFlight,
        batch: InFlightBatch,
        first_offset: int,
        last_offset: int,
        said: int,
        terms: WindowTerms,
        changes: list[Change],
    ) -> None:
        if said == AcknowledgeType.RENEW:
            if not terms.may_renew:
                raise InvalidRecordState("the group does not renew acquisition locks")
            state.renew(self._lock(terms, first_offset, last_offset))
            return
        if said == AcknowledgeType.ACCEPT:
            to = RecordState.ACKNOWLEDGED
        elif said == AcknowledgeType.RELEASE:
            to = RecordState.AVAILABLE
        else:
            to = terms.limit.beyond if said == AcknowledgeType.REJECT else RecordState.ARCHIVED
        cause = DeadLetterCause.REJECTED if to is RecordState.ARCHIVING else None
        changes.append(self._begin(state, batch, first_offset, last_offset, to, terms, cause))

    def _begin(
        self,
        state: InFlight,
        batch: InFlightBatch,
        first_offset: int,
        last_offset: int,
        to: RecordState,
        terms: WindowTerms,
        cause: DeadLetterCause | None = None,
    ) -> Change:
        state.begin(to, terms.limit)
        return self._changed(state, batch, first_offset, last_offset, cause)

    def _changed(
        self,
        state: InFlight,
        batch: InFlightBatch,
        first_offset: int,
        last_offset: int,
        cause: DeadLetterCause | None = None,
    ) -> Change:
        if state.state is RecordState.ARCHIVING and cause is None:
            cause = DeadLetterCause.DELIVERED_TOO_OFTEN
        if state.state in TERMINAL:
            self.complete_count += self._in_window(first_offset, last_offset)
        return Change(batch, StateBatch(first_offset, last_offset, int(state.state), state.delivery_count), cause)

    def _in_window(self, first_offset: int, last_offset: int) -> int:
        return max(last_offset - max(first_offset, self.start_offset) + 1, 0)

    def release(self, member_id: str, terms: WindowTerms) -> list[Change]:
        """Begin to take from a member all that it holds: its session has ended."""
        changes: list[Change] = []
        for batch in self._batches:
            if batch.records is None and batch.first_offset < self.start_offset <= batch.last_offset:
                if batch.whole.state is not RecordState.ACQUIRED or batch.whole.member_id != member_id:
                    continue
                batch.split()
            for first, last, state in batch.states():
                if state.state is RecordState.ACQUIRED and state.member_id == member_id:
                    changes.append(self._begin(state, batch, first, last, self._released_to(last), terms))
        return changes

    def expire(self, lock: AcquisitionLock, terms: WindowTerms) -> list[Change]:
        """Take the records of a lock from their member: its time is over. This is not taken back if it cannot be
        persisted."""
        changes: list[Change] = []
        for batch in self._overlapping(lock.first_offset, lock.last_offset):
            if batch.records is None:
                if batch.whole.lock is not lock or batch.whole.state is not RecordState.ACQUIRED:
                    continue
                if batch.first_offset < self.start_offset <= batch.last_offset:
                    batch.split()
            for first, last, state in batch.states_within(lock.first_offset, lock.last_offset):
                if state.lock is lock and state.state is RecordState.ACQUIRED:
                    state.expire(self._released_to(last), terms.limit)
                    change = self._changed(state, batch, first, last)
                    changes.append(change)
                    if change.stored.delivery_state == RecordState.AVAILABLE:
                        self._may_have_available = True
        return changes

    def _released_to(self, last_offset: int) -> RecordState:
        """What becomes of released records: those below the start of the log are never delivered again."""
        return RecordState.ARCHIVED if last_offset < self.start_offset else RecordState.AVAILABLE

    def complete(self, changes: Sequence[Change], *, is_persisted: bool) -> None:
        """End changes that were begun: they are persisted, or taken back."""
        for change in changes:
            first, last = change.stored.first_offset, change.stored.last_offset
            for state_first, state_last, state in self._states(change):
                state.complete(is_persisted=is_persisted)
                if state.state is RecordState.AVAILABLE:
                    self._may_have_available = True
                if change.stored.delivery_state in TERMINAL and state.state not in TERMINAL:
                    self.complete_count -= self._in_window(max(first, state_first), min(last, state_last))

    @staticmethod
    def _states(change: Change) -> list[tuple[int, int, InFlight]]:
        found = change.batch.states_within(change.stored.first_offset, change.stored.last_offset)
        return [one for one in found if one[2].is_changing]

    def archived(self, change: Change) -> StateBatch:
        """Records have gone to the dead letter queue, or could not: they are archived. Return what is to be stored."""
        first, last = change.stored.first_offset, change.stored.last_offset
        for state_first, state_last, state in change.batch.states_within(first, last):
            if state.state is RecordState.ARCHIVING:
                state.archive()
                self.complete_count += self._in_window(state_first, state_last)
        return StateBatch(first, last, int(RecordState.ARCHIVED), change.stored.delivery_count)

    # Records that are no longer delivered -----------------------------------------------------------------------------

    def _archive_missing(self, first_offset: int, next_offset: int) -> None:
        """The log has nothing from ``first_offset`` to ``next_offset``, which compaction has removed."""
        if first_offset >= next_offset:
            return
        batches = self._overlapping(first_offset, next_offset - 1)
        self.complete_count += self._archive(batches, first_offset, next_offset - 1, RecordState.AVAILABLE)
        floor = self._floor(self.start_offset)
        is_missing = self._batches and (floor is None or floor.last_offset < self.start_offset)
        if is_missing and first_offset <= self.start_offset < next_offset:
            # A restart has left out what comes first, and it is not in the log any more either.
            place = bisect_right(self._first_offsets, self.start_offset)
            self.start_offset = min([next_offset, *self._first_offsets[place : place + 1]])

    def archive_aborted(self, aborted: Sequence[BatchHeader]) -> None:
        """Batches that were just acquired are of aborted transactions, which the group does not see."""
        for header in aborted:
            first, last = header.base_offset, header.last_offset
            self.complete_count += self._archive(self._overlapping(first, last), first, last, RecordState.ACQUIRED)

    def log_start_moved(self, log_start_offset: int) -> None:
        """The log begins behind the start offset now: what is below is not delivered any more."""
        if log_start_offset <= self.start_offset:
            return
        if not self._batches:
            self.start_offset = self.end_offset = log_start_offset
            self.complete_count = 0
            return
        last_removed = log_start_offset - 1
        self.complete_count -= sum(
            min(last, last_removed) - max(first, self.start_offset) + 1
            for batch in self._between(0, last_removed)
            if batch.last_offset >= self.start_offset
            for first, last, state in batch.states()
            if state.state in TERMINAL and last >= self.start_offset and first <= last_removed
        )
        batches = self._between(0, last_removed)
        if self._archive(batches, self.start_offset, last_removed, RecordState.AVAILABLE):
            self._may_have_available = True
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)

    @staticmethod
    def _archive(batches: Sequence[InFlightBatch], first_offset: int, last_offset: int, of: RecordState) -> int:
        """Archive the records in the range that are in the state ``of``; return how many."""
        archived = 0
        for batch in batches:
            if batch.records is None:
                if batch.whole.state is not of:
                    continue
                if batch.lies_within(first_offset, last_offset):
                    batch.whole.archive()
                    archived += batch.size
                    continue
                batch.split()
            for _, record in batch.within(first_offset, last_offset):
                if record.state is of:
                    record.archive()
                    archived += 1
        return archived

    def advance(self) -> bool:
        """Move the start offset over what is done with, and forget that. False if the start offset stays."""
        done = self._done_at_start()
        if done is None:
            return False
        last_done, count = done
        last_in_flight = self._batches[-1].last_offset
        if last_done == last_in_flight:
            self.start_offset = self.end_offset = max(last_in_flight + 1, self.start_offset)
            self._batches.clear()
            self._first_offsets.clear()
            self.complete_count = 0
            return True
        place = bisect_right(self._first_offsets, last_done) - 1
        is_whole = self._batches[place].last_offset == last_done
        forgotten = place + 1 if is_whole else place
        start = self._first_offsets[place + 1] if is_whole else last_done + 1
        gap_start = self._gap_start()
        if is_whole and gap_start is not None:
            start = min(start, gap_start)
        self.start_offset = max(start, self.start_offset)
        del self._batches[:forgotten], self._first_offsets[:forgotten]
        self.complete_count -= count
        return True

    def _done_at_start(self) -> tuple[int, int] | None:
        """The last offset up to which everything is done with, and how many records of the window that is."""
        floor = self._floor(self.start_offset)
        if floor is None:
            return None  # nothing is in flight, or a restart has left out what comes first
        gap_start = self._gap_start()
        last_done, count = NONE_IN_FLIGHT, 0
        for batch in self._batches:
            if gap_start is not None and batch.last_offset >= gap_start:
                break
            for first, last, state in batch.states():
                if not state.is_done:
                    return None if last_done < self.start_offset else (last_done, count)
                last_done = last
                count += self._in_window(first, last)
        if last_done < self.start_offset and last_done != self._batches[-1].last_offset:
            return None
        return last_done, count


def _check_held(state: InFlight, member_id: str, batch: InFlightBatch) -> None:
    if state.state is not RecordState.ACQUIRED:
        raise InvalidRecordState(f"records of {batch.first_offset} to {batch.last_offset} are not acquired")
    if state.member_id != member_id:
        raise InvalidRecordState(f"records of {batch.first_offset} to {batch.last_offset} are another member's")
