"""Records of the states of share groups that are damaged or nonsense: the partition is loaded all the same, and every
request is answered. A share partition works or fails as one, and states that are in order stay so."""

import os
from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.coordinators.share.persister import SharePartitionKey, ShareState
from broker.coordinators.share.persister import StateBatch as Batch
from broker.coordinators.share.records import decode, encode
from broker.coordinators.share.requests import Delete, Initialize, Read, Summarize, Write
from broker.runtime.manual_clock import ManualClock
from broker.runtime.timing_wheel import TimingWheel
from broker.share.fetched import Fetched
from broker.share.in_flight import DeliveryLimit, RecordState
from broker.share.requests import AcquiredRecords, AcquireMode, Acquisition, Change, WindowTerms
from broker.share.share_partition import Phase, SharePartition
from protocol.errors import ErrorCode
from protocol.primitives import Malformed
from protocol.records.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareStateRecord,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from tests.support.share_groups import InMemoryPersister, batch_header
from tests.unit.broker.coordinators.share.harness import TOPIC, Exchange

EXAMPLES = int(os.environ.get("OTTLA_TEST_DAMAGED_RECORDS", "100"))
DAMAGED = [SharePartitionKey("damaged", TOPIC, 0), SharePartitionKey("damaged", TOPIC, -1)]
IN_ORDER = SharePartitionKey("in order", TOPIC, 0)

epochs = st.sampled_from([-(1 << 31), -1, 0, 1, 7, (1 << 31) - 1])
offsets = st.sampled_from([-(1 << 63), -2, -1, 0, 3, 5, 9, 20, (1 << 63) - 1])
state_batches = st.lists(
    st.builds(
        StateBatch,
        first_offset=offsets,
        last_offset=offsets,
        delivery_state=st.sampled_from([-128, -1, 0, 1, 2, 3, 4, 5, 127]),
        delivery_count=st.sampled_from([-(1 << 15), -1, 0, 1, 4, 5, (1 << 15) - 1]),
    ),
    max_size=4,
)
updates = st.builds(
    ShareUpdateValue,
    snapshot_epoch=epochs,
    leader_epoch=epochs,
    start_offset=offsets,
    delivery_complete_count=epochs,
    state_batches=state_batches,
)
snapshots = st.builds(
    ShareSnapshotValue,
    snapshot_epoch=epochs,
    state_epoch=epochs,
    leader_epoch=epochs,
    start_offset=offsets,
    delivery_complete_count=epochs,
    create_timestamp=offsets,
    write_timestamp=offsets,
    state_batches=state_batches,
)


@st.composite
def stored_records(draw: st.DrawFn) -> tuple[bytes, bytes | None]:
    """Key and value of a record, which may be damaged."""
    is_update = draw(st.booleans())
    key_type = ShareUpdateKey if is_update else ShareSnapshotKey
    value: Any = draw(st.none() | (updates if is_update else snapshots))
    of = draw(st.sampled_from(DAMAGED))
    key, stored = encode(ShareStateRecord(key_type(**of._asdict()), value, None if value is None else 0))
    how = draw(st.sampled_from(["whole", "whole", "cut", "changed", "of the other type", "of no type"]))
    if stored and how == "cut":
        stored = stored[: draw(st.integers(0, len(stored) - 1))]
    elif stored and how == "changed":
        place = draw(st.integers(0, len(stored) - 1))
        stored = stored[:place] + bytes([draw(st.integers(0, 255))]) + stored[place + 1 :]
    elif how == "of the other type":
        key = bytes((key[0], 1 - key[1])) + key[2:]
    elif how == "of no type":
        key = b"\x00\x07" + key[2:]
    return key, stored


def loaded(records: list[tuple[bytes, bytes | None]]) -> Exchange:
    """A shard that has loaded the records, as the loading of a partition does it, around a state that is in order."""
    exchange = Exchange()
    assert exchange.initialize(key=IN_ORDER) is ErrorCode.NONE
    for key, value in records:
        try:
            record = decode(key, value)
        except Malformed:
            continue
        exchange.shard.replay(record, offset=len(exchange.log))
        exchange.log.append((key, value))
    assert exchange.write(Batch(0, 4, RecordState.ACKNOWLEDGED, 1), key=IN_ORDER) is ErrorCode.NONE
    exchange.shard.loaded()
    return exchange


HIGHEST = (1 << 31) - 1
UNREADABLE_BATCH = StateBatch(first_offset=9, last_offset=20, delivery_state=77, delivery_count=1)
ENDLESS = StateBatch(first_offset=3, last_offset=(1 << 63) - 1, delivery_state=0, delivery_count=1)
FULL_COUNT = StateBatch(first_offset=0, last_offset=20, delivery_state=0, delivery_count=(1 << 15) - 1)


def of_snapshot(batch: StateBatch) -> list[tuple[bytes, bytes | None]]:
    value = ShareSnapshotValue(
        snapshot_epoch=HIGHEST,
        state_epoch=1,
        leader_epoch=0,
        start_offset=0,
        create_timestamp=0,
        write_timestamp=0,
        state_batches=[batch],
    )
    return [encode(ShareStateRecord(ShareSnapshotKey(**DAMAGED[0]._asdict()), value, 0))]


@settings(max_examples=EXAMPLES)
@example(of_snapshot(UNREADABLE_BATCH))
@example(of_snapshot(FULL_COUNT))
@example(of_snapshot(ENDLESS))
@given(st.lists(stored_records(), min_size=1, max_size=8))
def test_whatever_the_records_say_states_are_served(records: list[tuple[bytes, bytes | None]]) -> None:
    exchange = loaded(records)
    for key in DAMAGED:
        assert exchange.ask(Summarize(key, 0)) is not None
        answer = exchange.ask(Read(key, 3))
        assert answer is not None
        if answer.code is ErrorCode.NONE:
            assert answer.state is not None
            check_delivery(answer.state)
        written = ShareState(1, 3, 5, 2, (Batch(7, 8, RecordState.ACKNOWLEDGED, 2),))
        for _ in range(5):  # so that a snapshot is due
            assert exchange.ask(Write(key, written)) is not None
    exchange.clock.advance(600_000)
    for result in exchange.shard.snapshot_cold():
        assert result is None
    for key in DAMAGED:
        assert exchange.ask(Initialize(key, HIGHEST, 0)) is not None
        assert exchange.ask(Delete(key)) is not None
    for _ in exchange.shard.forget_topics([b"?" * 16]):
        pass
    assert exchange.read(key=IN_ORDER).batches == (Batch(0, 4, RecordState.ACKNOWLEDGED, 1),)
    assert exchange.replayed().by_key == exchange.shard.image.by_key


def restored(state: ShareState, clock: ManualClock) -> SharePartition:
    """A share partition that will read this state."""
    persister = OnlyRead()
    persister.states[DAMAGED[0]] = state
    return SharePartition(
        DAMAGED[0],
        3,
        topic="jobs",
        persister=persister,
        wheel=TimingWheel(clock),
        now_ms=clock.monotonic_ms,
        terms=lambda: WindowTerms(DeliveryLimit(5, RecordState.ARCHIVED), 1_000, 100, True),
        owner=Owner(),
        bury=bury,
    )


def test_more_available_records_than_there_can_be_are_delivered_as_new() -> None:
    """Each would get a state of its own: the memory of the machine was not enough."""
    done, endless = Batch(0, 2, RecordState.ACKNOWLEDGED, 1), Batch(3, (1 << 63) - 1, RecordState.AVAILABLE, 2)
    share = restored(ShareState(1, 3, 0, 0, (done, endless)), ManualClock())
    share.initialize(lambda: 0, lambda error: None)
    want = Acquisition("anna", AcquireMode.BATCH_OPTIMIZED, 500, 500)

    acquired = share.acquire(want, share.window.next_fetch_offset(), Fetched([batch_header(3, 30)], [0], ()))

    assert acquired == [AcquiredRecords(3, 30, 1)]


def check_delivery(state: ShareState) -> None:
    """A share partition with this state gives its records out, each with a count that the protocol can carry, or it
    fails."""
    clock = ManualClock()
    share = restored(state, clock)
    errors: list[Exception | None] = []
    share.initialize(lambda: 0, errors.append)
    assert (share.phase is Phase.ACTIVE) == (errors == [None])
    assert (share.phase is Phase.FAILED) == (errors != [None])
    header = batch_header(0, 30)
    for _ in range(6):
        offset = share.window.next_fetch_offset()
        want = Acquisition("anna", AcquireMode.BATCH_OPTIMIZED, 500, 500)
        if share.can_acquire():
            for one in share.acquire(want, offset, Fetched([header], [0], ())):
                assert 1 <= one.delivery_count < 1 << 15, one
        clock.advance(2_000)


class OnlyRead(InMemoryPersister):
    """Forgets what is written, since the other one looks at each offset of a state."""

    def write(self, key: SharePartitionKey, state: ShareState, then: Callable[[ErrorCode], None]) -> None:
        then(ErrorCode.NONE)


class Owner:
    def may_be_acquired(self, share_partition: SharePartition) -> None: ...

    def has_failed(self, share_partition: SharePartition, error: Exception) -> None: ...


def bury(change: Change, then: Any) -> None:
    then()
