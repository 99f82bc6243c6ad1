"""Members of a share group fetch, acknowledge, stall and die at random, while time passes and writes fail: every record
is delivered until a member accepts or rejects it or its deliveries are used up, and to one member at a time."""

import os
from itertools import pairwise
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.request.faults import InvalidRecordState, InvalidRequest
from broker.runtime.manual_clock import ManualClock
from broker.runtime.timing_wheel import TimingWheel
from broker.share.fetched import Fetched
from broker.share.in_flight import DeliveryLimit, RecordState
from broker.share.requests import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredRecords,
    AcquireMode,
    Acquisition,
    Change,
    WindowTerms,
)
from broker.share.share_partition import SharePartition
from protocol.errors import ErrorCode
from storage.batch.record_batch import BatchHeader
from tests.support.share_groups import KEY, InMemoryPersister, batch_header

LOCK_MS = 30_000
MEMBERS = ("anna", "bert", "carl")
WINDOW = 60

SAID = st.sampled_from(
    (
        AcknowledgeType.ACCEPT,
        AcknowledgeType.RELEASE,
        AcknowledgeType.REJECT,
        AcknowledgeType.GAP,
        AcknowledgeType.RENEW,
    )
)


class Owner:
    """Buries nothing: the group has no dead letter queue."""

    def may_be_acquired(self, share_partition: SharePartition) -> None: ...

    def has_failed(self, share_partition: SharePartition, error: Exception) -> None: ...


def bury(change: Change, then: Any) -> None:
    raise AssertionError("there is no dead letter queue")


class ShareGroupWalk(RuleBasedStateMachine):
    """What members of a group see, and what may not happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.persister = InMemoryPersister()
        self.log: list[BatchHeader] = []
        self.held: dict[int, tuple[str, int]] = {}
        """Offset -> member and deadline, as members know it."""
        self.fetches = 0
        self.acquired_by: dict[int, int] = {}
        """Offset -> the number of the fetch that has acquired it last."""
        self.unanswered: list[tuple[str, int, list[AcquiredRecords]]] = []
        """Fetches whose answers wait: member, number, and what was acquired."""
        self.counts: dict[int, int] = {}
        """How often an offset was delivered, in this run of the broker."""
        self.delivered: set[int] = set()
        self.settled: set[int] = set()
        """Offsets whose accept, reject or gap was confirmed."""
        self.limit = 2
        """How often an offset is delivered at most."""

    @initialize(
        limit=st.integers(2, 4), sizes=st.lists(st.integers(1, 12), min_size=1, max_size=20), gap=st.integers(0, 25)
    )
    def begin(self, limit: int, sizes: list[int], gap: int) -> None:
        self.limit = limit
        offset = 0
        for number, size in enumerate(sizes):
            if number == gap:
                offset += 3  # compaction has removed a batch
            self.log.append(batch_header(offset, offset + size - 1))
            offset += size
        self.open()

    def open(self) -> None:
        self.share = SharePartition(
            KEY,
            0,
            topic="jobs",
            persister=self.persister,
            wheel=TimingWheel(self.clock),
            now_ms=self.clock.monotonic_ms,
            terms=lambda: WindowTerms(DeliveryLimit(self.limit, RecordState.ARCHIVED), LOCK_MS, WINDOW, True),
            owner=Owner(),
            bury=bury,
        )
        errors: list[Exception | None] = []
        self.share.initialize(lambda: 0, errors.append)
        assert errors == [None]
        self.counts.clear()
        self.held.clear()
        self.unanswered.clear()

    @property
    def offsets(self) -> set[int]:
        return {offset for header in self.log for offset in range(header.base_offset, header.last_offset + 1)}

    @rule(
        member=st.sampled_from(MEMBERS),
        most=st.integers(1, 30),
        size=st.integers(1, 30),
        mode=st.sampled_from(AcquireMode),
        batches=st.integers(1, 8),
    )
    def fetch(self, member: str, most: int, size: int, mode: AcquireMode, batches: int) -> None:
        """Records are delivered that nobody holds, which are not settled, and each with a higher count than before."""
        self.deliver(member, most, size, mode, batches)

    @rule(member=st.sampled_from(MEMBERS), most=st.integers(1, 30), mode=st.sampled_from(AcquireMode))
    def fetch_and_wait(self, member: str, most: int, mode: AcquireMode) -> None:
        """A fetch acquires records, and its answer waits."""
        acquired = self.deliver(member, most, most, mode, 8)
        self.unanswered.append((member, self.fetches, acquired))

    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        """An answer is not sent: what its member still holds of it is free, as if it had not been acquired."""
        if not self.unanswered:
            return
        member, number, acquired = self.unanswered.pop(data.draw(st.integers(0, len(self.unanswered) - 1)))
        self.share.window.take_back(member, acquired)
        for offset in (one for run in acquired for one in range(run.first_offset, run.last_offset + 1)):
            if offset in self.held and self.acquired_by[offset] == number:
                del self.held[offset]
                self.counts[offset] -= 1

    def deliver(self, member: str, most: int, size: int, mode: AcquireMode, batches: int) -> list[AcquiredRecords]:
        self.fetches += 1
        if not self.share.can_acquire():
            return []
        offset = self.share.window.next_fetch_offset()
        headers = [header for header in self.log if header.last_offset >= offset][:batches]
        fetched = Fetched(headers, [0] * len(headers), ())
        acquired = self.share.acquire(Acquisition(member, mode, size, most), offset, fetched)
        now = self.clock.monotonic_ms()
        total = 0
        for run in acquired:
            assert run.first_offset <= run.last_offset
            for one in range(run.first_offset, run.last_offset + 1):
                total += 1
                assert one not in self.held, f"{one} is {self.held[one][0]}'s"
                assert one not in self.settled, f"{one} was settled"
                assert self.counts.get(one, 0) < run.delivery_count <= self.limit
                self.counts[one] = run.delivery_count
                self.held[one] = member, now + LOCK_MS
                self.acquired_by[one] = self.fetches
                self.delivered.add(one)
        if mode is AcquireMode.RECORD_LIMIT:
            assert total <= most
        return acquired

    @rule(data=st.data(), member=st.sampled_from(MEMBERS), fails=st.booleans())
    def acknowledge(self, data: st.DataObject, member: str, fails: bool) -> None:
        """What a member says of some records that it holds is done, or, if it is not persisted, as if not said."""
        own = sorted(offset for offset, (whose, _) in self.held.items() if whose == member)
        if not own:
            return
        first = data.draw(st.sampled_from(own))
        last = first
        while last + 1 in own and data.draw(st.booleans()):
            last += 1
        size = last - first + 1
        said = data.draw(st.lists(SAID, min_size=size, max_size=size) | st.lists(SAID, min_size=1, max_size=1))
        self.persister.answers_with = ErrorCode.NETWORK_EXCEPTION if fails else ErrorCode.NONE
        errors: list[Exception | None] = []
        self.share.acknowledge(member, [Acknowledgement(first, last, said)], errors.append)
        (error,) = errors
        self.persister.answers_with = ErrorCode.NONE
        types = said if len(said) == size else said * size
        for offset, of_it in zip(range(first, last + 1), types, strict=True):
            if of_it is AcknowledgeType.RENEW:
                # A renewal is in memory only, so that it holds even if the rest cannot be persisted.
                self.held[offset] = member, self.clock.monotonic_ms() + LOCK_MS
            elif error is None:
                del self.held[offset]
                if of_it is not AcknowledgeType.RELEASE or self.counts[offset] >= self.limit:
                    self.settled.add(offset)

    @rule(data=st.data(), member=st.sampled_from(MEMBERS))
    def say_something_of_what_is_not_held(self, data: st.DataObject, member: str) -> None:
        """Nothing changes by an acknowledgement of records that are another's, nobody's or nowhere."""
        first = data.draw(st.integers(0, 150))
        last = data.draw(st.integers(first, first + 5))
        if all(self.held.get(offset, ("", 0))[0] == member for offset in range(first, last + 1)):
            return
        if first < self.share.window.start_offset:
            return
        before, writes = self.states(), len(self.persister.writes)
        errors: list[Exception | None] = []
        self.share.acknowledge(member, [Acknowledgement(first, last, [AcknowledgeType.ACCEPT])], errors.append)
        assert isinstance(errors[0], InvalidRecordState | InvalidRequest)
        assert (self.states(), len(self.persister.writes)) == (before, writes)

    def states(self) -> dict[int, tuple[Any, ...]]:
        return {
            offset: (state.state, state.delivery_count, state.member_id, state.is_changing)
            for batch in self.share.window.batches
            for first, last, state in batch.states()
            for offset in range(first, last + 1)
        }

    @rule(member=st.sampled_from(MEMBERS), fails=st.booleans())
    def leave(self, member: str, fails: bool) -> None:
        """A member's session ends: its records are free, unless that could not be persisted."""
        self.persister.answers_with = ErrorCode.NETWORK_EXCEPTION if fails else ErrorCode.NONE
        errors: list[Exception | None] = []
        self.share.release(member, errors.append)
        self.persister.answers_with = ErrorCode.NONE
        if errors == [None]:
            self.let_go(lambda whose, _: whose == member)

    def let_go(self, is_gone: Any) -> None:
        for offset in [offset for offset, (whose, deadline) in self.held.items() if is_gone(whose, deadline)]:
            del self.held[offset]
            if self.counts[offset] >= self.limit:
                self.settled.add(offset)

    @rule(by_ms=st.integers(1, 2 * LOCK_MS))
    def time_passes(self, by_ms: int) -> None:
        """Records whose time is over are free."""
        self.clock.advance(by_ms)
        self.let_go(lambda _, deadline: deadline <= self.clock.monotonic_ms())

    @rule(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3))
    def append(self, sizes: list[int]) -> None:
        for size in sizes:
            end = self.log[-1].last_offset + 1
            self.log.append(batch_header(end, end + size - 1))

    @rule()
    def restart(self) -> None:
        """What was persisted is there again; what was acquired is available."""
        self.share.fence()
        self.open()

    @invariant()
    def the_window_is_in_order(self) -> None:
        if not self.log:
            return
        window = self.share.window
        offsets = [(batch.first_offset, batch.last_offset) for batch in window.batches]
        assert all(before[1] < after[0] for before, after in pairwise(offsets)), offsets
        done = sum(
            last - max(first, window.start_offset) + 1
            for batch in window.batches
            for first, last, state in batch.states()
            if state.state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED) and last >= window.start_offset
        )
        assert window.complete_count == done
        held = {
            offset: state.member_id
            for batch in window.batches
            for first, last, state in batch.states()
            if state.state is RecordState.ACQUIRED
            for offset in range(first, last + 1)
        }
        assert held == {offset: member for offset, (member, _) in self.held.items()}

    def teardown(self) -> None:
        """Everything that is left is delivered and accepted, and nothing was passed over."""
        if not self.log:
            return
        for _ in range(1000):
            self.time_passes(LOCK_MS)
            if not self.deliver("last", 500, 500, AcquireMode.BATCH_OPTIMIZED, 100):
                break
            for offset in list(self.held):
                self.share.acknowledge(
                    "last", [Acknowledgement(offset, offset, [AcknowledgeType.ACCEPT])], lambda _: None
                )
                del self.held[offset]
                self.settled.add(offset)
        assert self.offsets <= self.delivered
        assert self.offsets <= self.settled
        assert self.share.window.start_offset == self.log[-1].last_offset + 1
        assert not self.share.window.batches


ShareGroupWalk.TestCase.settings = settings(
    max_examples=int(os.environ.get("OTTLA_TEST_SHARE_WALKS", "60")), stateful_step_count=40, deadline=None
)
TestShareGroupWalk = ShareGroupWalk.TestCase


def test_the_start_moves_over_offsets_that_a_restart_left_out_and_that_are_not_in_the_log() -> None:
    walk = ShareGroupWalk()
    walk.begin(limit=2, sizes=[1, 1, 8, 12, 11], gap=4)  # compaction has removed 22 to 24
    walk.deliver("anna", 11, 1, AcquireMode.BATCH_OPTIMIZED, 4)
    walk.deliver("bert", 1, 1, AcquireMode.BATCH_OPTIMIZED, 1)
    walk.leave("bert", fails=False)  # so that only 25 to 35 are stored
    walk.restart()

    walk.teardown()

    assert walk.share.window.start_offset == 36
