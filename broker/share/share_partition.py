"""SharePartition: a partition as one share group reads it: its window, and the persister that keeps that."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final, Protocol

from broker.coordinators.share.persister import (
    NO_START_OFFSET,
    SharePartitionKey,
    SharePersister,
    ShareState,
    StateBatch,
)
from broker.request.faults import (
    CoordinatorNotAvailable,
    Fault,
    GroupIdNotFound,
    InvalidRecordState,
    InvalidRequest,
    NotLeaderOrFollower,
    ShareStateFailure,
    UnknownTopicOrPartition,
)
from broker.runtime.timing_wheel import TimingWheel
from broker.share.fetched import Fetched
from broker.share.in_flight import AcquisitionLock
from broker.share.requests import Acknowledgement, AcquiredRecords, Acquisition, Change, WindowTerms
from broker.share.window import Window
from protocol.errors import ErrorCode
from storage.errors import StorageError

log = logging.getLogger(__name__)

Done = Callable[[Exception | None], None]
"""Called when a change is persisted, or with the reason why the change is taken back."""


Bury = Callable[[Change, Callable[[], None]], None]
"""Copies records to the dead letter queue of a group, and calls back afterwards, also if that fails."""


class Phase(Enum):
    """How far a share partition is."""

    EMPTY = "empty"
    INITIALIZING = "initializing"
    ACTIVE = "active"
    FAILED = "failed"
    FENCED = "fenced"
    """The share partition is in no cache any more."""


class SharePartitionOwner(Protocol):
    """Who is told what happens to a share partition."""

    def may_be_acquired(self, share_partition: SharePartition) -> None:
        """Records may be available now: fetches that wait are tried again."""

    def has_failed(self, share_partition: SharePartition, error: Exception) -> None:
        """The persister has refused. Some errors mean that this node is no longer the one to ask."""


class SharePartitionStats:
    """The counters of a share partition."""

    __slots__ = ("expired_locks",)

    def __init__(self) -> None:
        self.expired_locks = 0
        """Records whose acquisition lock has expired (Kafka: AcquisitionLockTimeoutPerSec)."""


class SharePartition:
    """The records of a partition that a share group has in flight, at the partition's leader."""

    def __init__(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        *,
        topic: str,
        persister: SharePersister,
        wheel: TimingWheel,
        now_ms: Callable[[], int],
        terms: Callable[[], WindowTerms],
        owner: SharePartitionOwner,
        bury: Bury,
    ) -> None:
        """``topic``: its name, for the log; ``now_ms``: the monotonic clock; ``terms``: the group's settings, which may
        change; ``bury``: copies records to the dead letter queue of the group."""
        self.key = key
        self._topic = topic
        self.leader_epoch = leader_epoch
        self.phase = Phase.EMPTY
        self.state_epoch = 0
        self.window = Window(wheel, now_ms, self._expired)
        self.stats = SharePartitionStats()
        self._persister = persister
        self._terms = terms
        self._owner = owner
        self._copy_to_queue = bury

    def __str__(self) -> str:
        return f"{self._topic}-{self.key.partition} of the share group {self.key.group_id}"

    @property
    def is_active(self) -> bool:
        """Whether the state has been read, and the share partition is in use."""
        return self.phase is Phase.ACTIVE

    def initialize(self, find_start: Callable[[], int], then: Done) -> None:
        """Read the state. ``find_start`` finds the start offset for a group that has none yet; it may raise a fault."""
        assert self.phase is Phase.EMPTY, f"{self} is {self.phase.value}"
        self.phase = Phase.INITIALIZING
        self._persister.read(self.key, self.leader_epoch, partial(self._initialize, find_start, then))

    def _initialize(self, find_start: Callable[[], int], then: Done, code: ErrorCode, state: ShareState | None) -> None:
        if self.phase is not Phase.INITIALIZING:
            then(NotLeaderOrFollower(f"{self} is fenced"))
            return
        archiving: list[Change] = []
        error: Exception | None = None
        if code is not ErrorCode.NONE or state is None:
            error = persister_fault(code)
        else:
            try:
                start = find_start() if state.start_offset == NO_START_OFFSET else state.start_offset
                archiving = self.window.restore(start, state.batches)
                self.state_epoch = state.state_epoch
            except (Fault, StorageError) as fault:
                error = fault
            except ValueError as wrong:
                log.error("%s has a state that cannot be: %s", self, wrong)
                error = ShareStateFailure(str(wrong))
        self.phase = Phase.ACTIVE if error is None else Phase.FAILED
        then(error)
        for change in archiving:
            self._bury(change)

    def fence(self) -> None:
        """This object is no longer used: none of its locks expires any more.

        Answers of the persister may still come. Who has waited for a read gets an error. Records whose rejection is
        persisted go to the dead letter queue.
        """
        self.phase = Phase.FENCED
        self.window.unlock_all()

    def can_acquire(self) -> bool:
        """Whether a fetch could give something to acquire."""
        return self.is_active and self.window.can_acquire(self._terms())

    def acquire(self, want: Acquisition, fetch_offset: int, fetched: Fetched) -> list[AcquiredRecords]:
        """Deliver records of what was read from ``fetch_offset`` (`Window.next_fetch_offset`)."""
        if not self.is_active:
            return []
        acquired = self.window.acquire(want, fetch_offset, fetched.headers, self._terms())
        if acquired and fetched.aborted:
            self.window.archive_aborted(fetched.aborted)
            acquired = without(acquired, fetched)
        # Nobody acknowledges records that were not delivered.
        self.window.advance()
        return acquired

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement], then: Done) -> None:
        """Take over what a member says of its records, once that is persisted."""
        try:
            changes = self.window.acknowledge(member_id, acknowledgements, self._terms())
        except (InvalidRecordState, InvalidRequest) as fault:
            then(fault)
            return
        self._persist(changes, then)

    def release(self, member_id: str, then: Done) -> None:
        """Take all records from a member, once that is persisted."""
        self._persist(self.window.release(member_id, self._terms()), then)

    def _persist(self, changes: Sequence[Change], then: Done) -> None:
        if not changes:
            then(None)
            return
        self._write([change.stored for change in changes], partial(self._persisted, changes, then))

    def _persisted(self, changes: Sequence[Change], then: Done, error: Exception | None) -> None:
        self.window.complete(changes, is_persisted=error is None)
        has_advanced = error is None and self.window.advance()
        then(error)
        if error is not None:
            log.warning("%s: what its members have acknowledged is not persisted: %s", self, error)
            self._owner.has_failed(self, error)
        if has_advanced or self.window.may_have_available:
            self._owner.may_be_acquired(self)
        if error is None:
            self._bury_all(changes)

    def _expired(self, lock: AcquisitionLock) -> None:
        changes = self.window.expire(lock, self._terms())
        if not changes:
            return
        self.stats.expired_locks += sum(one.stored.last_offset - one.stored.first_offset + 1 for one in changes)
        self._write([change.stored for change in changes], partial(self._expiry_persisted, changes))
        self._owner.may_be_acquired(self)

    def _expiry_persisted(self, changes: Sequence[Change], error: Exception | None) -> None:
        if error is not None:
            log.warning("%s: expired locks are not persisted: %s", self, error)
            self._owner.has_failed(self, error)
        if self.window.advance():
            self._owner.may_be_acquired(self)
        self._bury_all(changes)

    def _bury_all(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.cause is not None:
                self._bury(change)

    def _bury(self, change: Change) -> None:
        self._copy_to_queue(change, partial(self._buried, change))

    def _buried(self, change: Change) -> None:
        # Also behind the last session of the group, where nothing else is written any more: else the letters would be
        # written again when the group comes back. The persister refuses it where another node leads.
        self._write([self.window.archived(change)], self._burial_persisted)

    def _burial_persisted(self, error: Exception | None) -> None:
        if error is not None:
            log.warning("%s: the end of records in the dead letter queue is not persisted: %s", self, error)
            self._owner.has_failed(self, error)
        if self.window.advance():
            self._owner.may_be_acquired(self)

    def _write(self, batches: Sequence[StateBatch], then: Done) -> None:
        window = self.window
        state = ShareState(self.state_epoch, self.leader_epoch, window.start_offset, window.complete_count, batches)

        def written(code: ErrorCode) -> None:
            then(None if code is ErrorCode.NONE else persister_fault(code))

        self._persister.write(self.key, state, written)


def without(acquired: Sequence[AcquiredRecords], fetched: Fetched) -> list[AcquiredRecords]:
    """What is left of acquired records without those of aborted transactions."""
    left: list[AcquiredRecords] = list(acquired)
    for header in fetched.aborted:
        left = [part for one in left for part in _without(one, header.base_offset, header.last_offset)]
    return left


def _without(one: AcquiredRecords, first_offset: int, last_offset: int) -> list[AcquiredRecords]:
    if last_offset < one.first_offset or one.last_offset < first_offset:
        return [one]
    parts: list[AcquiredRecords] = []
    if one.first_offset < first_offset:
        parts.append(one._replace(last_offset=first_offset - 1))
    if last_offset < one.last_offset:
        parts.append(one._replace(first_offset=last_offset + 1))
    return parts


_UNAVAILABLE: Final = frozenset(
    (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
)
_FENCED: Final = frozenset((ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH))


def persister_fault(code: ErrorCode) -> Fault:
    """What a client is told for a code of the share coordinator."""
    said = f"the share coordinator answers {code.name}"
    if code in _UNAVAILABLE:
        return CoordinatorNotAvailable(said)
    if code in _FENCED:
        return NotLeaderOrFollower(said)
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupIdNotFound(said)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicOrPartition(said)
    return ShareStateFailure(said)
