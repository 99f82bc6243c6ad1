import pytest

from broker.request.response import NO_FRAME, Peer, ResponseSlot


class Owner:
    def __init__(self) -> None:
        self.peer = Peer(host="10.0.0.1", port=4711, listener="PLAINTEXT")
        self.calls: list[str] = []

    def slot_filled(self, slot: ResponseSlot) -> None:
        self.calls.append("filled")

    def close_at(self, slot: ResponseSlot, reason: str) -> None:
        self.calls.append(f"close: {reason}")

    def frame_released(self) -> None:
        self.calls.append("released")


def test_a_slot_is_filled_once() -> None:
    owner = Owner()
    slot = ResponseSlot(owner, memoryview(b"?"), 0)
    slot.fill([b"!"])
    assert (slot.chunks, slot.is_filled, owner.calls) == ([b"!"], True, ["filled"])
    with pytest.raises(AssertionError, match="filled once"):
        slot.fill([b"again"])
    with pytest.raises(AssertionError, match="filled once"):
        slot.close_connection("no")


def test_the_frame_is_gone_when_it_is_answered_or_released() -> None:
    owner = Owner()
    answered, waiting = ResponseSlot(owner, memoryview(b"?"), 0), ResponseSlot(owner, memoryview(b"?"), 0)
    answered.fill([])
    waiting.release_frame()
    assert answered.frame is waiting.frame is NO_FRAME
    assert owner.calls == ["filled", "released"]


def test_an_heir_takes_the_answer_and_the_peer_stays_known() -> None:
    owner, heir = Owner(), Owner()
    slot = ResponseSlot(owner, memoryview(b"?"), 0)
    slot.bequeath(heir)
    slot.fill([b"!"])
    assert (owner.calls, heir.calls) == ([], ["filled"])
    assert str(slot.peer) == "10.0.0.1:4711"
