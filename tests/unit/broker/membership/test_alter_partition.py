"""Leaders' wishes for other ISRs, on their way to the controllers and back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from broker.membership.alter_partition import AlterPartitionSender
from broker.membership.controller_channel import ControllerChannel
from broker.replication.isr_alteration import IsrCommitted, IsrOutdated, IsrRefused, Outcome, WantedIsr
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

ORDERS, PAYMENTS = bytes([1] * 16), bytes([2] * 16)
OfPartition = AlterPartitionResponse.Topic.Partition


class Controllers:
    """The controllers, which do as they are asked until a partition has an error."""

    def __init__(self) -> None:
        self.asked: list[AlterPartitionRequest] = []
        self.errors: dict[tuple[bytes, int], int] = {}
        self.is_silent = False
        self.error_code = 0
        self.before_answer: Callable[[], None] = lambda: None
        self.is_closed = False

    async def ask(self, request: AlterPartitionRequest, answer: type) -> AlterPartitionResponse | None:
        self.asked.append(request)
        await asyncio.sleep(0)
        self.before_answer()
        if self.is_silent:
            return None
        topics = [
            AlterPartitionResponse.Topic(
                topic_id=topic.topic_id,
                partitions=[self._answer(topic.topic_id, each) for each in topic.partitions],
            )
            for topic in request.topics
        ]
        return AlterPartitionResponse(error_code=self.error_code, topics=[] if self.error_code else topics)

    def _answer(self, topic_id: bytes, wanted: Any) -> OfPartition:
        if code := self.errors.get((topic_id, wanted.partition_index)):
            return OfPartition(partition_index=wanted.partition_index, error_code=code)
        return OfPartition(
            partition_index=wanted.partition_index,
            leader_epoch=wanted.leader_epoch,
            isr=[each.broker_id for each in wanted.new_isr_with_epochs],
            partition_epoch=wanted.partition_epoch + 1,
        )

    def close(self) -> None:
        self.is_closed = True


class Sending:
    """A sender on a clock that the test moves, and the outcomes by topic id and partition."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.controllers = Controllers()
        self.broker_epoch = 50
        self.outcomes: dict[tuple[bytes, int], Outcome] = {}
        self.sender = AlterPartitionSender(
            cast(ControllerChannel, self.controllers), node_id=7, broker_epoch=lambda: self.broker_epoch,
            clock=self.clock,
        )  # fmt: skip

    def want(self, topic_id: bytes, partition: int, isr: dict[int, int], *, partition_epoch: int = 4) -> bool:
        place = topic_id, partition

        def then(outcome: Outcome) -> None:
            assert place not in self.outcomes, "there is one outcome"
            self.outcomes[place] = outcome

        return self.sender.submit(WantedIsr(topic_id, partition, 3, partition_epoch, isr), then)

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(20_000):
            if condition():
                return
            for _ in range(3):
                await asyncio.sleep(0)
            self.clock.advance(1)
        raise AssertionError("it has not come to pass")


def sending(test: Callable[[Sending], Awaitable[None]]) -> None:
    async def run() -> None:
        one = Sending()
        task = asyncio.get_running_loop().create_task(one.sender.run())
        try:
            await test(one)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert one.controllers.is_closed

    asyncio.run(run())


def test_all_wishes_that_wait_go_in_one_request() -> None:
    async def test(one: Sending) -> None:
        one.want(ORDERS, 0, {7: 50, 8: 61})
        one.want(ORDERS, 2, {7: 50})
        one.want(PAYMENTS, 0, {7: 50})
        await one.until(lambda: len(one.outcomes) == 3)
        (request,) = one.controllers.asked
        assert (request.broker_id, request.broker_epoch) == (7, 50)
        assert {topic.topic_id: [each.partition_index for each in topic.partitions] for topic in request.topics} == {
            ORDERS: [0, 2],
            PAYMENTS: [0],
        }
        wanted = request.topics[0].partitions[0]
        assert (wanted.leader_epoch, wanted.partition_epoch, wanted.new_isr) == (3, 4, [7, 8])
        assert [(each.broker_id, each.broker_epoch) for each in wanted.new_isr_with_epochs] == [(7, 50), (8, 61)]
        assert one.outcomes[ORDERS, 0] == IsrCommitted((7, 8), 3, 5)

    sending(test)


def test_a_partition_has_one_change_under_way() -> None:
    async def test(one: Sending) -> None:
        assert one.want(ORDERS, 0, {7: 50})
        assert not one.want(ORDERS, 0, {7: 50, 8: 61})
        await one.until(lambda: len(one.outcomes) == 1)
        one.outcomes.clear()
        assert one.want(ORDERS, 0, {7: 50, 8: 61}, partition_epoch=5)
        await one.until(lambda: one.outcomes == {(ORDERS, 0): IsrCommitted((7, 8), 3, 6)})

    sending(test)


@pytest.mark.parametrize("problem", ["no answer", "another registration"])
def test_what_is_not_answered_is_sent_again_with_what_came_meanwhile(problem: str) -> None:
    async def test(one: Sending) -> None:
        one.controllers.is_silent = problem == "no answer"
        one.controllers.error_code = 0 if one.controllers.is_silent else ErrorCode.STALE_BROKER_EPOCH
        one.want(ORDERS, 0, {7: 50})
        await one.until(lambda: len(one.controllers.asked) == 2)
        one.broker_epoch = 90
        one.want(PAYMENTS, 0, {7: 50})
        one.controllers.is_silent, one.controllers.error_code = False, 0
        await one.until(lambda: len(one.outcomes) == 2)
        assert one.controllers.asked[-1].broker_epoch == 90
        assert len(one.controllers.asked[-1].topics) == 2

    sending(test)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, IsrRefused()),
        (ErrorCode.FENCED_LEADER_EPOCH, IsrOutdated()),
        (ErrorCode.INVALID_UPDATE_VERSION, IsrOutdated()),
        (ErrorCode.NEW_LEADER_ELECTED, IsrOutdated()),
        (ErrorCode.UNKNOWN_TOPIC_ID, IsrOutdated()),
    ],
)
def test_an_error_is_the_end_of_a_wish(code: ErrorCode, outcome: Outcome) -> None:
    async def test(one: Sending) -> None:
        one.controllers.errors[ORDERS, 0] = code
        one.want(ORDERS, 0, {7: 50, 8: 61})
        await one.until(lambda: one.outcomes == {(ORDERS, 0): outcome})

    sending(test)


def test_an_error_that_passes_does_not_hold_up_the_others() -> None:
    async def test(one: Sending) -> None:
        one.controllers.errors[ORDERS, 0] = ErrorCode.UNKNOWN_SERVER_ERROR
        one.want(ORDERS, 0, {7: 50})
        one.want(ORDERS, 1, {7: 50})
        await one.until(lambda: one.outcomes == {(ORDERS, 1): IsrCommitted((7,), 3, 5)})
        await one.until(lambda: len(one.controllers.asked) >= 3)
        one.controllers.errors.clear()
        await one.until(lambda: len(one.outcomes) == 2)

    sending(test)


def test_a_partition_that_is_led_no_more_has_no_outcome() -> None:
    async def test(one: Sending) -> None:
        one.want(ORDERS, 0, {7: 50})
        one.controllers.before_answer = lambda: one.sender.withdraw(ORDERS, 0)
        await one.until(lambda: len(one.controllers.asked) == 1)
        one.controllers.before_answer = lambda: None
        one.want(PAYMENTS, 0, {7: 50})
        await one.until(lambda: len(one.outcomes) == 1)
        assert list(one.outcomes) == [(PAYMENTS, 0)]

    sending(test)
