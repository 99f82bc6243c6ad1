"""A client that has exceeded a quota: its answers are sent, and nothing more of it is read until its time is over."""

import socket

from broker.network.pauses import Pause
from broker.network.transport import PlaintextTransport
from tests.unit.broker.network.harness import frame, network, on_both_loops

PRODUCE = b"\0\0"


@on_both_loops
async def test_the_answer_is_sent_at_once_and_the_next_request_read_when_the_time_is_over() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"dear"))
        await it.handle()
        it.slots[0].throttle(500)
        it.slots[0].fill([frame(b"!")])
        await it.until(lambda: client.read() == frame(b"!"))
        assert connection.pauses == Pause.THROTTLED
        assert connection.session.throttle_time_ms == 500
        client.send(frame(b"next"))
        await it.turns()
        it.clock.advance(499)
        assert await it.handle() == [b"dear"]
        assert connection.unanswered == 0, "not even read"
        it.clock.advance(1)
        assert await it.handle(b"next") == [b"dear", b"next"]
        await it.until(lambda: client.read() == frame(b"!") + frame(b"next"))
        assert (connection.pauses, connection.session.throttle_time_ms) == (0, 0)


@on_both_loops
async def test_requests_that_were_read_before_are_evaluated_when_the_time_is_over() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(PRODUCE + b"1") + frame(PRODUCE + b"2") + frame(b"3"))
        await it.turns()
        for slot in await it.channel.take(1):
            slot.throttle(500)
            slot.fill([frame(b"!")])
        assert await it.handle() == []
        assert connection.unanswered == 2
        await it.until(lambda: client.read() == frame(b"!"))
        it.clock.advance(500)
        assert await it.handle(PRODUCE + b"2", b"3") == [PRODUCE + b"2", b"3"]


@on_both_loops
async def test_of_two_throttles_the_one_that_lasts_longer_counts() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(PRODUCE + b"1") + frame(PRODUCE + b"2") + frame(PRODUCE + b"3"))
        await it.handle()
        for slot, throttle_time_ms in zip(it.slots, (500, 2_000, 700), strict=True):
            slot.throttle(throttle_time_ms)
            slot.fill([frame(b"!")])
        assert connection.session.throttle_time_ms == 2_000
        it.clock.advance(1_999)
        assert connection.pauses == Pause.THROTTLED
        it.clock.advance(1)
        assert connection.pauses == 0
        assert it.clock.alarms == 1, "only that of idle connections"


@on_both_loops
async def test_a_throttle_of_no_time_is_none() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"1"))
        await it.handle()
        it.slots[0].throttle(0)
        assert (connection.pauses, connection.session.throttle_time_ms) == (0, 0)
        assert it.clock.alarms == 1, "only that of idle connections"


@on_both_loops
async def test_a_throttled_client_that_does_not_take_its_answers_is_not_read_when_the_time_is_over() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"?"))
        await it.handle()
        it.slots[0].throttle(500)
        it.slots[0].fill([frame(b"!" * 8_000_000)])
        await it.until(lambda: connection.pauses == Pause.THROTTLED | Pause.ANSWERS)
        it.clock.advance(500)
        assert connection.pauses == Pause.ANSWERS
        await it.until(lambda: len(client.read()) == 8_000_004)
        await it.until(lambda: connection.pauses == 0)


@on_both_loops
async def test_closing_in_the_throttled_time_is_clean() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"1") + frame(b"2"))
        await it.turns()
        (first,) = await it.channel.take(1)
        first.throttle(500)
        assert await it.handle() == []
        connection.close()
        assert it.clock.alarms == 1, "only that of idle connections"
        first.fill([frame(b"!")])
        assert await it.handle() == [b"2"], "as of any connection that is closed"
        it.clock.advance(500)
        assert (len(it.processor), it.limits.total, it.memory.used_bytes) == (0, 0, 0)


@on_both_loops
async def test_a_request_of_a_closed_connection_throttles_nobody() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"1"))
        await it.handle()
        connection.close()
        it.slots[0].throttle(500)
        assert it.clock.alarms == 1, "only that of idle connections"


@on_both_loops
async def test_a_peer_that_hangs_up_in_the_throttled_time_is_noticed_when_it_is_over() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"1"))
        await it.handle()
        it.slots[0].throttle(500)
        it.slots[0].fill([frame(b"!")])
        await it.until(lambda: client.read())
        client.close()
        await it.turns()
        assert not connection.is_closed
        it.clock.advance(500)
        await it.until(lambda: connection.is_closed)


@on_both_loops
async def test_at_a_stop_a_throttled_client_gets_its_answers_and_does_not_hold_up_the_broker() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"1") + frame(b"2"))
        await it.turns()
        (first,) = await it.channel.take(1)
        first.throttle(60_000)
        first.fill([frame(b"!")])
        await it.handle()
        it.processor.stop_reading()
        await it.handle(b"2")
        await it.until(lambda: connection.is_closed)
        assert client.read() == frame(b"!") + frame(b"2")
        assert it.clock.alarms == 1, "only that of idle connections"


@on_both_loops
async def test_a_client_whose_time_is_limited_is_charged_for_receiving_and_sending() -> None:
    async with network() as it:

        def slow(connected: socket.socket) -> PlaintextTransport:
            transport = PlaintextTransport(connected)
            receive_into, send = transport.receive_into, transport.send

            def receive_slowly(memory: memoryview) -> int:
                it.clock.advance(3)
                return receive_into(memory)

            def send_slowly(data: bytes | bytearray | memoryview, flags: int) -> int:
                it.clock.advance(5)
                return send(data, flags)

            transport.receive_into, transport.send = receive_slowly, send_slowly
            return transport

        connection, client = it.connect(slow)
        client.send(frame(b"free"))
        await it.handle(b"free")
        await it.until(lambda: client.read() == frame(b"free"))
        charged: list[int] = []
        connection.session.charge_network = charged.append
        client.send(frame(b"dear"))
        await it.handle(b"dear")
        await it.until(lambda: client.read() == frame(b"free") + frame(b"dear"))
        assert charged == [3_000, 5_000]
