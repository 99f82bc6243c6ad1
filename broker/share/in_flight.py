"""Records in flight: the state of delivered records, and the lock that keeps them with their consumer for a time."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from broker.runtime.timing_wheel import TimingWheel

NOBODY: Final = ""
"""The member id of records that no member holds."""


class RecordState(IntEnum):
    """What became of a record, as ``__share_group_state`` has it (KIP-932; ARCHIVING: KIP-1191)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """On its way to the dead letter queue; then archived."""
    ARCHIVED = 4


TERMINAL: Final = frozenset((RecordState.ACKNOWLEDGED, RecordState.ARCHIVED))
"""The states of records that are done with."""


class DeliveryLimit(NamedTuple):
    """How often a record is delivered at most."""

    deliveries: int
    beyond: RecordState
    """The state of a record that is released after its last delivery: ARCHIVED, or ARCHIVING where the group has a dead
    letter queue."""


class AcquisitionLock:
    """The time for which records that were acquired together stay with their consumer."""

    __slots__ = ("_timer", "deadline_ms", "first_offset", "has_expired", "holders", "last_offset")

    def __init__(
        self,
        wheel: TimingWheel,
        deadline_ms: int,
        first_offset: int,
        last_offset: int,
        on_expired: Callable[[AcquisitionLock], None],
    ) -> None:
        """``on_expired`` is called at ``deadline_ms`` of the monotonic clock, unless all holders have released the lock
        before."""
        self.deadline_ms = deadline_ms
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.holders = 1
        """States that this lock protects: 1 for a batch, or its records one by one."""
        self.has_expired = False
        self._timer = wheel.add(deadline_ms, lambda: self._expire(on_expired))

    def _expire(self, on_expired: Callable[[AcquisitionLock], None]) -> None:
        self.has_expired = True
        on_expired(self)

    def release(self) -> None:
        """A holder needs the lock no longer."""
        self.holders -= 1
        if not self.holders:
            self._timer.cancel()


class InFlight:
    """The state of a record, or of all records of a batch that are in the same state.

    A change that must be persisted first is begun, and then either completed or taken back. In between, the state is
    the new state, and nothing else may change it but the end of its record (`archive`).
    """

    __slots__ = ("_before", "_is_final", "delivery_count", "lock", "member_id", "state")

    def __init__(
        self,
        state: RecordState,
        delivery_count: int,
        member_id: str = NOBODY,
        lock: AcquisitionLock | None = None,
    ) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock = lock
        self._before: tuple[str, DeliveryLimit] | None = None
        """The member that held the records before a change that is not persisted yet."""
        self._is_final = False

    def __repr__(self) -> str:
        return f"InFlight({self.state.name}, {self.delivery_count}, {self.member_id!r})"

    @property
    def is_changing(self) -> bool:
        """Whether a change is begun and not persisted yet."""
        return self._before is not None

    @property
    def is_available(self) -> bool:
        """Whether a member may acquire the records."""
        return self.state is RecordState.AVAILABLE and self._before is None

    @property
    def is_done(self) -> bool:
        """Whether the records are done with, and that is persisted."""
        return self.state in TERMINAL and self._before is None

    def acquire(self, member_id: str, lock: AcquisitionLock) -> None:
        """Deliver available records to a member."""
        assert self.is_available, f"{self} cannot be acquired"
        self.state = RecordState.ACQUIRED
        self.delivery_count += 1
        self.member_id = member_id
        self.lock = lock

    def is_held_since(self, member_id: str, delivery_count: int) -> bool:
        """Whether the member still holds the records as it acquired them for the ``delivery_count``th time.

        The count tells one acquisition from the next: it rises with each of them, and falls only in `take_back`."""
        is_held = self.state is RecordState.ACQUIRED and self.member_id == member_id
        return is_held and self.delivery_count == delivery_count

    def take_back(self) -> None:
        """The records were acquired and could not be delivered: as if they had not been acquired."""
        assert self.state is RecordState.ACQUIRED, f"{self} is not acquired"
        self.state = RecordState.AVAILABLE
        self.delivery_count -= 1
        self.member_id = NOBODY
        self.unlock()

    def renew(self, lock: AcquisitionLock) -> None:
        """Hold acquired records under another lock."""
        self.unlock()
        self.lock = lock

    def change(self, to: RecordState, limit: DeliveryLimit) -> None:
        """Take acquired records from their member. Records that would be available, and have been delivered as often as
        ``limit`` allows, are past it."""
        assert self.state is RecordState.ACQUIRED, f"{self} is not acquired"
        if to is RecordState.AVAILABLE and self.delivery_count >= limit.deliveries:
            to = limit.beyond
        self.state = to
        self.member_id = NOBODY

    def begin(self, to: RecordState, limit: DeliveryLimit) -> None:
        """`change` that must be persisted; the lock goes on until then."""
        before = self.member_id
        self.change(to, limit)
        self._before = before, limit

    def complete(self, *, is_persisted: bool) -> None:
        """The change that was begun is persisted, or could not be: then the records are their member's again, or, if
        the lock has expired since, available."""
        assert self._before is not None, f"{self} is not changing"
        member_id, limit = self._before
        self._before = None
        if is_persisted or self._is_final:
            self.unlock()
            return
        self.state = RecordState.ACQUIRED
        if self.lock is not None and self.lock.has_expired:
            self.change(RecordState.AVAILABLE, DeliveryLimit(limit.deliveries, RecordState.ARCHIVED))
            self.unlock()
        else:
            self.member_id = member_id

    def expire(self, to: RecordState, limit: DeliveryLimit) -> None:
        """The time of a member that holds the records is over."""
        self.change(to, limit)
        self.unlock()

    def archive(self) -> None:
        """The records are no longer to be delivered, whatever is under way."""
        self._is_final = True
        self.state = RecordState.ARCHIVED
        self.member_id = NOBODY
        self.unlock()

    def copy(self) -> InFlight:
        """Another state like this. Both hold the lock."""
        copy = InFlight(self.state, self.delivery_count, self.member_id, self.lock)
        copy._before = self._before
        copy._is_final = self._is_final
        return copy

    def unlock(self) -> None:
        """The lock protects these records no longer."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None


class InFlightBatch:
    """Consecutive records that were delivered together: one state for all, or, once they differ, one for each."""

    __slots__ = ("first_offset", "last_offset", "records", "whole")

    def __init__(self, first_offset: int, last_offset: int, whole: InFlight) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        """Inclusive."""
        self.whole = whole
        """The state of all records, as long as ``records`` is None."""
        self.records: list[InFlight] | None = None
        """The state of each record, in the order of their offsets."""

    def __repr__(self) -> str:
        return f"InFlightBatch({self.first_offset}-{self.last_offset}, {self.records or self.whole})"

    @property
    def size(self) -> int:
        """How many offsets the batch covers."""
        return self.last_offset - self.first_offset + 1

    def split(self) -> list[InFlight]:
        """From now on each record has its own state. They share the lock."""
        if self.records is None:
            if self.whole.lock is not None:
                self.whole.lock.holders += self.size - 1
            self.records = [self.whole.copy() for _ in range(self.size)]
        return self.records

    def within(self, first_offset: int, last_offset: int) -> list[tuple[int, InFlight]]:
        """The records from ``first_offset`` to ``last_offset``, of a batch that is split, with their offsets."""
        assert self.records is not None, f"{self} is not split"
        first = max(first_offset, self.first_offset)
        last = min(last_offset, self.last_offset)
        begin = first - self.first_offset
        return list(enumerate(self.records[begin : max(last - self.first_offset + 1, begin)], first))

    def lies_within(self, first_offset: int, last_offset: int) -> bool:
        """Whether all of the batch is in the range, whose ends count."""
        return first_offset <= self.first_offset and self.last_offset <= last_offset

    def states_within(self, first_offset: int, last_offset: int) -> list[tuple[int, int, InFlight]]:
        """`states` of what lies in the range, whose ends count."""
        if self.records is None:
            return self.states() if self.lies_within(first_offset, last_offset) else []
        return [(offset, offset, record) for offset, record in self.within(first_offset, last_offset)]

    def states(self) -> list[tuple[int, int, InFlight]]:
        """First offset, last offset and state, for the whole batch or for each record."""
        if self.records is None:
            return [(self.first_offset, self.last_offset, self.whole)]
        return [(offset, offset, record) for offset, record in enumerate(self.records, self.first_offset)]
