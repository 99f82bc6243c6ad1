import asyncio

from broker.request.channel import RequestChannel
from broker.request.response import ResponseSlot
from tests.support.slots import slot_of


def request(number: int) -> ResponseSlot:
    return slot_of(b"%d" % number, received_us=number)


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_requests_come_out_in_order_at_most_so_many_at_once() -> None:
    async def scenario() -> None:
        channel = RequestChannel(100)
        for number in range(20):
            channel.put([request(number)])
        first = await channel.take(16)
        second = await channel.take(16)
        assert [slot.received_us for slot in first + second] == list(range(20))
        assert len(first) == 16

    asyncio.run(scenario())


def test_a_request_wakes_one_handler_however_many_are_parked() -> None:
    async def scenario() -> None:
        channel = RequestChannel(100)
        taken: list[int] = []

        async def handler(name: int) -> None:
            while True:
                await channel.take(16)
                taken.append(name)

        tasks = [asyncio.ensure_future(handler(name)) for name in range(4)]
        await turns()
        for number in range(10):
            channel.put([request(number)])
        await turns()
        assert channel.stats.wake_ups == 1
        assert len(taken) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())


def test_who_leaves_something_behind_wakes_the_next() -> None:
    async def scenario() -> None:
        channel = RequestChannel(100)
        taken: list[int] = []

        async def handler() -> None:
            taken.append(len(await channel.take(16)))

        tasks = [asyncio.ensure_future(handler()) for _ in range(4)]
        await turns()
        for number in range(40):
            channel.put([request(number)])
        await turns(6)
        assert taken == [16, 16, 8]
        tasks[0].cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())


def test_a_handler_that_is_cancelled_as_it_wakes_passes_the_wake_up_on() -> None:
    async def scenario() -> None:
        channel = RequestChannel(100)
        taken: list[ResponseSlot] = []

        async def handler() -> None:
            taken.extend(await channel.take(16))

        tasks = [asyncio.ensure_future(handler()) for _ in range(2)]
        await turns()
        channel.put([request(1)])
        tasks[1].cancel()
        await turns()
        assert len(taken) == 1
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())


def test_a_full_channel_calls_those_who_wait_first_come_first_served() -> None:
    async def scenario() -> None:
        channel = RequestChannel(4)
        order: list[str] = []
        for number in range(4):
            channel.put([request(number)])
        assert channel.remaining_capacity == 0

        def come_in(name: str) -> None:
            order.append(name)
            for number in range(3):
                if not channel.remaining_capacity:
                    channel.when_not_full(lambda: order.append(f"{name} again"))
                    return
                channel.put([request(number)])

        channel.when_not_full(lambda: come_in("a"))
        channel.when_not_full(lambda: come_in("b"))
        await channel.take(2)
        assert order == ["a"], "there was room for two requests, and both are its own"
        await channel.take(4)
        assert order == ["a", "b", "a again"]

    asyncio.run(scenario())
