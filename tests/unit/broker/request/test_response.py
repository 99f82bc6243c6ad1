import pytest

from broker.request.response import NO_FRAME
from tests.support.slots import Owner, slot_of


def test_a_slot_is_filled_once() -> None:
    owner = Owner()
    slot = slot_of(b"?", owner)
    slot.fill([b"!"])
    assert (slot.chunks, slot.is_filled, owner.calls) == ([b"!"], True, ["filled"])
    with pytest.raises(AssertionError, match="filled once"):
        slot.fill([b"again"])
    with pytest.raises(AssertionError, match="filled once"):
        slot.close_connection("no")


def test_the_frame_is_gone_when_it_is_answered_or_released() -> None:
    owner = Owner()
    answered, waiting = slot_of(b"?", owner), slot_of(b"?", owner)
    answered.fill([])
    waiting.release_frame()
    assert answered.frame is waiting.frame is NO_FRAME
    assert owner.calls == ["filled", "released"]


def test_an_heir_takes_the_answer_and_the_peer_stays_known() -> None:
    owner, heir = Owner(), Owner()
    slot = slot_of(b"?", owner)
    slot.bequeath(heir)
    slot.fill([b"!"])
    assert (owner.calls, heir.calls) == ([], ["filled"])
    assert str(slot.peer) == "10.0.0.1:4711"
