import asyncio
from itertools import pairwise

import pytest

from broker.dispatch.handler_pool import MOST_A_TURN, MOST_NS_A_TURN, HandlerPool
from broker.request.channel import RequestChannel
from broker.request.response import ResponseSlot
from tests.support.slots import slot_of


def put(channel: RequestChannel, count: int) -> None:
    for number in range(count):
        channel.put([slot_of(b"", received_us=number)])


async def until_empty(channel: RequestChannel) -> None:
    for _ in range(1000):
        await asyncio.sleep(0)
        if not len(channel):
            return
    raise AssertionError(f"{len(channel)} requests are left")


def test_every_turn_ends_with_the_hook_and_has_a_bounded_number_of_requests() -> None:
    async def scenario() -> None:
        channel = RequestChannel(500)
        events: list[str] = []
        order: list[int] = []

        def handle(slot: ResponseSlot) -> None:
            events.append("handled")
            order.append(slot.received_us)

        pool = HandlerPool(channel, handle, size=8, end_of_turn=lambda: events.append("end"))
        task = asyncio.ensure_future(pool.run())
        await asyncio.sleep(0)
        put(channel, 100)
        await until_empty(channel)
        turns = "".join("." if event == "handled" else "|" for event in events).split("|")
        assert max(map(len, turns)) == MOST_A_TURN
        assert turns[-1] == "", "the last turn has ended too"
        assert order == list(range(100))
        assert 0 <= pool.idle_ratio() <= 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_between_turns_the_loop_turns() -> None:
    async def scenario() -> None:
        channel = RequestChannel(500)
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        handled = 0

        def handle(slot: ResponseSlot) -> None:
            nonlocal handled
            handled += 1

        def tick() -> None:
            seen.append(handled)
            if handled < 100:
                loop.call_soon(tick)

        task = asyncio.ensure_future(HandlerPool(channel, handle, size=2, end_of_turn=lambda: None).run())
        await asyncio.sleep(0)
        put(channel, 100)
        loop.call_soon(tick)
        await until_empty(channel)
        steps = [after - before for before, after in pairwise(seen)]
        assert max(steps) <= 2 * MOST_A_TURN
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


def test_a_turn_of_dear_requests_ends_early_and_nobody_is_overtaken() -> None:
    async def scenario() -> None:
        channel = RequestChannel(40)
        events: list[str] = []
        order: list[int] = []
        now_ns = 0

        def handle(slot: ResponseSlot) -> None:
            nonlocal now_ns
            now_ns += MOST_NS_A_TURN // 2 - 1
            events.append("handled")
            order.append(slot.received_us)

        pool = HandlerPool(channel, handle, size=2, end_of_turn=lambda: events.append("end"), now_ns=lambda: now_ns)
        task = asyncio.ensure_future(pool.run())
        await asyncio.sleep(0)
        put(channel, 40)
        await until_empty(channel)
        turns = "".join("." if event == "handled" else "|" for event in events).split("|")
        assert max(map(len, turns)) == 3
        assert order == list(range(40))
        assert channel.stats.taken == 40
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


def test_what_a_turn_has_answered_is_sent_at_its_end() -> None:
    async def scenario() -> None:
        channel = RequestChannel(500)
        events: list[str] = []

        def handle(slot: ResponseSlot) -> None:
            assert channel.is_in_turn
            events.append(f"handled {slot.received_us}")
            if not slot.received_us:
                channel.after_turn(lambda: events.append("sent"))

        pool = HandlerPool(channel, handle, size=2, end_of_turn=lambda: events.append("end"))
        task = asyncio.ensure_future(pool.run())
        await asyncio.sleep(0)
        put(channel, 2)
        await until_empty(channel)
        assert events == ["handled 0", "handled 1", "end", "sent"]
        assert not channel.is_in_turn
        put(channel, 1)
        await until_empty(channel)
        assert events[4:] == ["handled 0", "end", "sent"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


def test_what_was_answered_before_a_bug_is_sent_all_the_same() -> None:
    async def scenario() -> None:
        channel = RequestChannel(500)
        sent: list[int] = []

        def handle(slot: ResponseSlot) -> None:
            if slot.received_us:
                raise ZeroDivisionError("a bug")
            channel.after_turn(lambda: sent.append(slot.received_us))

        task = asyncio.ensure_future(HandlerPool(channel, handle, size=1, end_of_turn=lambda: None).run())
        await asyncio.sleep(0)
        put(channel, 2)
        with pytest.raises(ExceptionGroup):
            await task
        assert sent == [0]
        assert not channel.is_in_turn, "who answers later has somebody to send it"

    asyncio.run(scenario())


def test_what_escapes_a_handler_ends_the_pool_and_comes_out() -> None:
    async def scenario() -> None:
        channel = RequestChannel(500)

        def handle(slot: ResponseSlot) -> None:
            raise ZeroDivisionError("a bug")

        task = asyncio.ensure_future(HandlerPool(channel, handle, size=4, end_of_turn=lambda: None).run())
        await asyncio.sleep(0)
        put(channel, 1)
        with pytest.raises(ExceptionGroup) as raised:
            await task
        assert raised.group_contains(ZeroDivisionError)

    asyncio.run(scenario())


def test_handlers_come_and_go_and_no_request_is_lost() -> None:
    async def scenario() -> None:
        channel = RequestChannel(500)
        handled: list[int] = []
        pool = HandlerPool(channel, lambda slot: handled.append(slot.received_us), size=1, end_of_turn=lambda: None)
        task = asyncio.ensure_future(pool.run())
        await asyncio.sleep(0)
        for size in (4, 2, 8, 1):
            put(channel, 100)
            await asyncio.sleep(0)
            pool.resize(size)
            await until_empty(channel)
            assert pool.size == size
        assert handled == list(range(100)) * 4
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
