"""When the requests of one connection are evaluated: in their order, each when those before it are answered."""

from collections import deque
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.dispatch.handler_pool import evaluate
from broker.request.response import NOTHING, ResponseSlot
from broker.request.stats import HandlerTurn
from protocol.api_keys import ApiKey
from protocol.codec import Chunk
from tests.support.slots import Owner, stream

PRODUCE = bytes([0, ApiKey.PRODUCE])
FETCH = bytes([0, ApiKey.FETCH])
METADATA = bytes([0, ApiKey.METADATA])
COMMIT = bytes([0, ApiKey.OFFSET_COMMIT])

OVERLAPPING = (PRODUCE, COMMIT)
"""Requests of these APIs need not wait for one another."""


class Line:
    """A connection's requests on their way to a handler that answers only what it is told to."""

    def __init__(self, *answered_at_once: str) -> None:
        self.queue: deque[ResponseSlot] = deque()
        """The request channel."""
        self.evaluated: list[str] = []
        self.early: list[str] = []
        """Requests that were evaluated before their turn."""
        self.stream = stream(self._put_back)
        self.owner = Owner()
        self._answered_at_once = answered_at_once
        self._slots: dict[str, ResponseSlot] = {}
        self._names: dict[ResponseSlot, str] = {}
        self._apis: dict[str, bytes] = {}

    def _put_back(self, slots: Sequence[ResponseSlot]) -> None:
        self.queue.extendleft(reversed(slots))

    def asks(self, api: bytes, name: str) -> None:
        """A request arrives."""
        slot = ResponseSlot(self.owner, self.stream, memoryview(api + name.encode()), 0)
        self._slots[name] = slot
        self._names[slot] = name
        self._apis[name] = api
        self.queue.append(slot)

    def handlers_take(self, most: int = 100) -> list[str]:
        """Handlers take what is queued, up to ``most`` requests; return all that was evaluated so far."""
        while self.queue and most:
            most -= 1
            evaluate(self.queue.popleft(), HandlerTurn(0), self._handle)
        return self.evaluated

    def _handle(self, slot: ResponseSlot) -> None:
        name = self._names[slot]
        unanswered = [other for other in self.evaluated if not self._slots[other].is_filled]
        apis = {self._apis[other] for other in (name, *unanswered)}
        if unanswered and not (len(apis) == 1 and apis <= set(OVERLAPPING)):
            self.early.append(f"{name} before the answers to {unanswered}")
        self.evaluated.append(name)
        if name in self._answered_at_once:
            slot.fill([name.encode()])
        elif self._apis[name] != PRODUCE:
            slot.release_frame()

    def answer(self, name: str, answer: Sequence[Chunk] = (b"answer",)) -> None:
        """The answer that was waited for is there."""
        self._slots[name].fill(answer)

    def close_at(self, name: str) -> None:
        """The answer is that the connection closes."""
        self._slots[name].close_connection("it is no good")


def test_a_request_behind_one_that_waits_is_evaluated_when_that_one_is_answered() -> None:
    line = Line()
    line.asks(FETCH, "fetch")
    line.asks(METADATA, "metadata")
    assert line.handlers_take() == ["fetch"]
    assert line.stream.held == 1
    line.answer("fetch")
    assert line.handlers_take() == ["fetch", "metadata"]
    assert line.stream.held == 0


def test_requests_that_are_answered_at_once_are_evaluated_in_one_go() -> None:
    line = Line("1", "2", "3")
    for name in "123":
        line.asks(FETCH, name)
    assert line.handlers_take(3) == ["1", "2", "3"]
    assert line.stream.is_free


@pytest.mark.parametrize("api", OVERLAPPING)
def test_requests_whose_order_is_all_that_matters_are_evaluated_without_waiting_for_one_another(api: bytes) -> None:
    line = Line()
    for name in "123":
        line.asks(api, name)
    assert line.handlers_take() == ["1", "2", "3"]


def test_a_commit_waits_for_produces_and_a_produce_for_commits() -> None:
    line = Line()
    for api, name in ((PRODUCE, "produce"), (COMMIT, "commit"), (COMMIT, "next commit"), (PRODUCE, "next produce")):
        line.asks(api, name)
    assert line.handlers_take() == ["produce"]
    line.answer("produce")
    assert line.handlers_take() == ["produce", "commit", "next commit"]
    line.answer("commit")
    assert line.handlers_take() == ["produce", "commit", "next commit"]
    line.answer("next commit")
    assert line.handlers_take() == ["produce", "commit", "next commit", "next produce"]


def test_what_is_behind_several_produces_waits_for_the_answers_to_all_of_them() -> None:
    line = Line()
    line.asks(PRODUCE, "first")
    line.asks(PRODUCE, "second")
    line.asks(METADATA, "metadata")
    assert line.handlers_take() == ["first", "second"]
    line.answer("second")
    assert line.handlers_take() == ["first", "second"]
    line.answer("first")
    assert line.handlers_take() == ["first", "second", "metadata"]


def test_a_produce_does_not_overtake_a_request_that_is_held() -> None:
    line = Line()
    line.asks(PRODUCE, "first")
    line.asks(METADATA, "metadata")
    line.asks(PRODUCE, "second")
    assert line.handlers_take() == ["first"]
    line.answer("first")
    assert line.handlers_take() == ["first", "metadata"]
    line.answer("metadata")
    assert line.handlers_take() == ["first", "metadata", "second"]


def test_a_produce_behind_a_fetch_that_waits_is_held() -> None:
    line = Line()
    line.asks(FETCH, "fetch")
    line.asks(PRODUCE, "produce")
    assert line.handlers_take() == ["fetch"]


def test_produces_that_were_held_together_are_evaluated_without_waiting_for_one_another() -> None:
    line = Line()
    line.asks(FETCH, "fetch")
    for name in "123":
        line.asks(PRODUCE, name)
    line.asks(METADATA, "metadata")
    line.handlers_take()
    line.answer("fetch")
    assert line.handlers_take() == ["fetch", "1", "2", "3"]
    for name in "213":
        line.answer(name)
    assert line.handlers_take() == ["fetch", "1", "2", "3", "metadata"]


def test_a_produce_without_an_answer_lets_the_next_request_pass_when_it_is_appended() -> None:
    line = Line()
    line.asks(PRODUCE, "acks=0")
    line.asks(METADATA, "metadata")
    assert line.handlers_take() == ["acks=0"]
    line.answer("acks=0", NOTHING)
    assert line.handlers_take() == ["acks=0", "metadata"]


def test_a_request_without_a_whole_api_key_is_no_produce() -> None:
    line = Line()
    line.asks(PRODUCE, "produce")
    line.asks(b"", "")
    assert line.handlers_take() == ["produce"]


def test_requests_behind_one_that_is_answered_by_closing_are_never_evaluated() -> None:
    line = Line()
    line.asks(FETCH, "bad")
    line.asks(METADATA, "held")
    line.handlers_take()
    line.asks(PRODUCE, "queued")
    line.close_at("bad")
    line.asks(METADATA, "late")
    assert line.handlers_take() == ["bad"]
    assert all(slot.is_filled for slot in line._slots.values()), "their memory is free"


def test_a_held_request_that_has_been_called_is_dropped_by_a_close_too() -> None:
    line = Line()
    for name in ("first", "second"):
        line.asks(FETCH, name)
    line.handlers_take()
    line.answer("first")
    assert list(line.queue), "called"
    line.stream.cut()
    assert line.handlers_take() == ["first"]
    assert line._slots["second"].is_filled


def test_requests_of_a_closed_connection_are_evaluated_in_order_and_wait_for_nothing() -> None:
    line = Line()
    line.asks(FETCH, "fetch")
    line.asks(PRODUCE, "1")
    line.handlers_take()
    line.asks(METADATA, "2")
    line.asks(PRODUCE, "3")
    line.stream.close()
    assert line.handlers_take() == ["fetch", "1", "2", "3"]
    line.answer("fetch")
    assert line.handlers_take() == ["fetch", "1", "2", "3"]
    assert line.stream.held == 0


def test_a_throttled_client_has_nothing_evaluated_until_its_time_is_over() -> None:
    line = Line("1", "2", "3")
    line.asks(PRODUCE, "1")
    line.handlers_take()
    line.stream.throttle(500, until_ms=1500)
    line.asks(PRODUCE, "2")
    line.asks(FETCH, "3")
    assert line.handlers_take() == ["1"]
    assert (line.stream.session.throttle_time_ms, line.stream.session.throttled_until_ms) == (500, 1500)
    line.stream.end_throttle()
    assert line.handlers_take() == ["1", "2", "3"]
    assert line.stream.is_free
    assert (line.stream.session.throttle_time_ms, line.stream.session.throttled_until_ms) == (0, 0)


def test_an_answer_in_the_throttled_time_calls_nothing() -> None:
    line = Line("metadata")
    line.asks(FETCH, "fetch")
    line.asks(METADATA, "metadata")
    line.handlers_take()
    line.stream.throttle(500, until_ms=1500)
    line.answer("fetch")
    assert line.handlers_take() == ["fetch"]
    line.stream.end_throttle()
    assert line.handlers_take() == ["fetch", "metadata"]


def test_a_request_that_was_called_before_the_client_was_throttled_is_held_again() -> None:
    line = Line("metadata")
    line.asks(FETCH, "fetch")
    line.asks(METADATA, "metadata")
    line.handlers_take()
    line.answer("fetch")
    line.stream.throttle(500, until_ms=1500)
    assert line.handlers_take() == ["fetch"]
    line.stream.end_throttle()
    assert line.handlers_take() == ["fetch", "metadata"]


@settings(max_examples=300, deadline=None)
@given(
    apis=st.lists(st.sampled_from([PRODUCE, COMMIT, FETCH]), min_size=1, max_size=12),
    at_once=st.sets(st.integers(0, 11)),
    steps=st.lists(st.tuples(st.sampled_from(["arrive", "take", "answer"]), st.integers(0, 11)), max_size=60),
)
@pytest.mark.parametrize("closes", [False, True], ids=["open", "closes"])
def test_however_requests_and_answers_come_no_request_is_early_late_or_lost(
    closes: bool, apis: list[bytes], at_once: set[int], steps: list[tuple[str, int]]
) -> None:
    line = Line(*map(str, at_once))
    to_come = deque(enumerate(apis))

    def step(what: str, which: int) -> None:
        waiting = [name for name in line.evaluated if not line._slots[name].is_filled]
        if what == "arrive" and to_come:
            number, api = to_come.popleft()
            line.asks(api, str(number))
        elif what == "take":
            line.handlers_take(1 + which)
        elif what == "answer" and waiting:
            line.answer(waiting[which % len(waiting)])

    for what, which in steps:
        step(what, which)
    assert not line.early
    if closes:
        line.stream.close()
    for _ in range(3 * len(apis) + 3):
        for what in ("arrive", "take", "answer"):
            step(what, 0)
    assert line.evaluated == [str(number) for number in range(len(apis))]
    assert closes or not line.early
