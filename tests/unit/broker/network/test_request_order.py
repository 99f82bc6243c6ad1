"""A connection whose requests are held until those before them are answered: limits, memory, and every way to end."""

import asyncio

from broker.network.buffer_pool import SMALLEST_BUFFER
from broker.network.pauses import Pause
from tests.unit.broker.network.harness import frame, network, on_both_loops

PRODUCE = b"\0\0"
FETCH = b"\0\1"


@on_both_loops
async def test_a_held_request_is_evaluated_when_the_one_before_it_is_answered() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(FETCH + b"waits") + frame(b"metadata"))
        assert await it.handle(b"metadata") == [FETCH + b"waits"]
        assert client.read() == b""
        it.slots[0].fill([frame(b"records")])
        assert await it.handle(b"metadata") == [FETCH + b"waits", b"metadata"]
        await it.until(lambda: client.read() == frame(b"records") + frame(b"metadata"))
        assert connection.unanswered == 0


@on_both_loops
async def test_an_answer_wakes_a_handler_for_the_request_behind_it() -> None:
    async with network() as it:
        _, client = it.connect()
        client.send(frame(b"first") + frame(b"second"))
        await it.handle()
        parked = asyncio.ensure_future(it.channel.take(16))
        await it.turns()
        it.slots[0].fill([frame(b"!")])
        assert [bytes(slot.frame) for slot in await parked] == [b"second"]


@on_both_loops
async def test_a_held_request_does_not_hold_up_another_connection() -> None:
    async with network() as it:
        (_, one), (_, other) = it.connect(), it.connect()
        one.send(frame(FETCH + b"waits") + frame(b"held"))
        await it.handle()
        other.send(frame(b"other"))
        assert await it.handle(b"other") == [FETCH + b"waits", b"other"]
        await it.until(lambda: other.read() == frame(b"other"))


@on_both_loops
async def test_held_requests_count_as_in_flight() -> None:
    async with network(max_in_flight=4) as it:
        connection, client = it.connect()
        client.send(frame(FETCH) + b"".join(frame(b"%d" % number) for number in range(6)))
        assert await it.handle() == [FETCH]
        assert connection.pauses == Pause.IN_FLIGHT
        assert connection.unanswered == 4
        everything = [b"%d" % number for number in range(6)]
        it.slots[0].fill([frame(b"!")])
        while len(it.evaluated) < 7:
            await it.handle(*everything)
        assert it.evaluated == [FETCH, *everything]
        await it.until(lambda: client.read() == frame(b"!") + b"".join(map(frame, everything)))
        assert connection.pauses == 0


@on_both_loops
async def test_the_memory_of_a_held_request_is_counted_until_it_is_answered() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(FETCH))
        await it.handle()
        it.slots[0].release_frame()
        large = PRODUCE + b"p" * 50_000
        client.send(frame(large))
        await it.until(lambda: connection.unanswered == 2)
        assert await it.handle() == [FETCH]
        assert it.memory.used_bytes == SMALLEST_BUFFER
        it.slots[0].fill([frame(b"!")])
        assert await it.handle() == [FETCH, large]
        it.slots[1].fill([frame(b"ok")])
        await it.until(lambda: client.read() == frame(b"!") + frame(b"ok"))
        assert it.memory.used_bytes == 0


@on_both_loops
async def test_a_producers_requests_are_evaluated_before_the_answers_to_those_before_them() -> None:
    async with network() as it:
        _, client = it.connect()
        produces = [PRODUCE + b"%d" % number for number in range(5)]
        client.send(b"".join(map(frame, produces)))
        assert await it.handle() == produces
        for slot in reversed(it.slots):
            slot.fill([frame(b"!")])
        await it.until(lambda: client.read() == frame(b"!") * 5)


@on_both_loops
async def test_at_a_stop_held_requests_are_still_answered() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(FETCH) + frame(b"1") + frame(b"2"))
        await it.handle()
        it.processor.stop_reading()
        it.slots[0].fill([frame(b"!")])
        while not connection.is_closed:
            await it.handle(b"1", b"2")
        assert client.read() == frame(b"!") + frame(b"1") + frame(b"2")


@on_both_loops
async def test_held_requests_of_a_connection_that_died_are_handled_and_their_answers_dropped() -> None:
    async with network() as it:
        connection, client = it.connect()
        large = PRODUCE + b"acks=0" * 10_000
        client.send(frame(FETCH) + frame(large) + frame(b"last"))
        await it.until(lambda: connection.unanswered == 3)
        await it.handle()
        it.slots[0].release_frame()
        connection.close()
        assert await it.handle() == [FETCH, large, b"last"], "though the fetch has no answer yet"
        for slot in it.slots[1:]:
            slot.fill([b"nobody reads this"])
        assert it.memory.used_bytes == 0
        it.slots[0].fill([b"nor this"])


@on_both_loops
async def test_requests_behind_one_that_is_answered_by_closing_are_not_evaluated_and_their_memory_is_free() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"before") + frame(b"bad") + frame(PRODUCE + b"x" * 50_000) + frame(b"last"))
        await it.until(lambda: connection.unanswered == 4)
        await it.handle()
        it.slots[0].fill([frame(b"!")])
        await it.handle()
        it.slots[1].close_connection("it could not be read")
        await it.until(lambda: connection.is_closed)
        assert await it.handle() == [b"before", b"bad"]
        assert client.read() == frame(b"!")
        assert it.memory.used_bytes == 0


@on_both_loops
async def test_a_produce_that_was_evaluated_early_keeps_its_memory_when_the_one_before_it_closes_the_connection() -> (
    None
):
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(PRODUCE + b"acks=0") + frame(PRODUCE + b"x" * 50_000))
        await it.until(lambda: connection.unanswered == 2)
        await it.handle()
        it.slots[0].close_connection("a batch sent with acks=0 was refused")
        await it.until(lambda: connection.is_closed)
        assert bytes(it.slots[1].frame[:3]) == PRODUCE + b"x", "it is still being written"
        assert it.memory.used_bytes == SMALLEST_BUFFER
        it.slots[1].fill([b"nobody reads this"])
        assert it.memory.used_bytes == 0


@on_both_loops
async def test_a_connection_whose_held_requests_wait_for_too_long_is_closed_as_idle() -> None:
    async with network(idle_ms=10_000) as it:
        connection, client = it.connect()
        client.send(frame(FETCH) + frame(b"held"))
        await it.handle()
        it.clock.advance(10_000)
        assert connection.is_closed
        assert await it.handle() == [FETCH, b"held"]
