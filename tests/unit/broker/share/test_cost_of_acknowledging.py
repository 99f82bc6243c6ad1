"""What it costs to acknowledge records one by one does not depend on how many were acquired together."""

from itertools import count

import pytest

from broker.runtime.manual_clock import ManualClock
from broker.runtime.timing_wheel import TimingWheel
from broker.share.in_flight import DeliveryLimit, InFlight, RecordState
from broker.share.requests import Acknowledgement, AcknowledgeType, AcquireMode, Acquisition, WindowTerms
from broker.share.window import Window
from tests.support.share_groups import batch_header

TERMS = WindowTerms(DeliveryLimit(5, RecordState.ARCHIVED), 30_000, 10_000, True)


def looks_for_each(records: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """How often the state of a record is looked at until all are acknowledged one by one, for each of them."""
    clock = ManualClock()
    window = Window(TimingWheel(clock), clock.monotonic_ms, lambda lock: None)
    want = Acquisition("anna", AcquireMode.BATCH_OPTIMIZED, records, records)
    assert len(window.acquire(want, 0, [batch_header(0, records - 1)], TERMS)) == 1
    looks = count()
    monkeypatch.setattr(InFlight, "is_changing", property(lambda state: next(looks) >= 0 and state._before is not None))
    said = [Acknowledgement(offset, offset, [AcknowledgeType.ACCEPT]) for offset in range(records)]
    window.complete(window.acknowledge("anna", said, TERMS), is_persisted=True)
    assert window.advance()
    assert window.start_offset == records
    return next(looks) / records


def test_a_record_is_looked_at_as_often_in_a_large_batch_as_in_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks_for_each(1_000, monkeypatch) == looks_for_each(10, monkeypatch)
