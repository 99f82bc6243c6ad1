import asyncio
import logging

import pytest

from broker.network.buffer_pool import SMALLEST_BUFFER, TRIM_INTERVAL_MS
from broker.network.latencies import LatencyReport
from broker.network.send_turns import MOST_BYTES_ALONE, MOST_BYTES_WHILE_OTHERS_WAIT
from broker.request.response import RequestStream
from broker.request.session import Peer, Session
from broker.runtime.histogram import upper_bound
from tests.unit.broker.network.harness import frame, network, on_both_loops


@on_both_loops
async def test_a_connection_that_idles_is_closed_and_one_that_does_not_stays() -> None:
    async with network(idle_ms=10_000) as it:
        idle, idler = it.connect()
        busy, client = it.connect()
        it.clock.advance(6_000)
        client.send(frame(b"?"))
        await it.requests(1)
        it.clock.advance(4_000)
        assert idle.is_closed
        assert idler.is_closed_by_broker()
        assert not busy.is_closed
        it.clock.advance(5_999)
        assert not busy.is_closed
        it.clock.advance(101)
        assert busy.is_closed
        assert it.processor.stats_of("PLAINTEXT").connections_expired == 2


@on_both_loops
async def test_minus_one_never_closes_an_idle_connection() -> None:
    async with network(idle_ms=-1) as it:
        connection, _ = it.connect()
        it.clock.advance(10**9)
        assert not connection.is_closed
        assert it.clock.alarms == 0


@on_both_loops
async def test_a_processor_without_connections_sets_no_alarm() -> None:
    async with network() as it:
        connection, _ = it.connect()
        connection.close()
        it.clock.advance(600_000)
        assert it.clock.alarms == 0


@on_both_loops
async def test_free_buffers_are_freed_when_nobody_has_wanted_them_for_a_while() -> None:
    async with network() as it:
        _, client = it.connect()
        client.send(frame(b"x" * 50_000))
        await it.requests(1)
        it.slots[0].fill([frame(b"ok")])
        await it.until(lambda: it.processor.pool.free_bytes == SMALLEST_BUFFER)
        await it.turns()
        it.clock.advance(2 * TRIM_INTERVAL_MS)
        assert it.processor.pool.free_bytes == 0
        assert it.clock.alarms == 1, "only that of the idle connection"


@on_both_loops
async def test_a_connection_gets_one_turn_for_all_its_answers() -> None:
    async with network() as it:
        _, client = it.connect()
        client.send(frame(b"?") * 10)
        await it.requests(10)
        before = it.processor.stats.turns
        for slot in it.slots:
            slot.fill([frame(b"!")])
        assert it.processor.waiting_responses == 1
        await it.until(lambda: len(client.read()) == 50)
        assert it.processor.stats.turns == before + 1
        assert it.processor.stats_of("PLAINTEXT").responses_sent == 10


class NotingSender:
    """Stands for a connection: notes when its turn has come."""

    def __init__(self, name: str, sent: list[str]) -> None:
        self._name = name
        self._sent = sent

    def send_answers(self, most_bytes: int, now_us: int) -> None:
        self._sent.append(self._name)


@pytest.mark.sources_only
@on_both_loops
async def test_who_has_had_a_turn_and_has_more_comes_behind_those_who_have_not() -> None:
    async with network() as it:
        sent: list[str] = []

        it.processor.turns.touch_again(NotingSender("large", sent))  # type: ignore[arg-type]
        it.processor.turns.touch(NotingSender("small", sent))  # type: ignore[arg-type]
        assert it.processor.waiting_responses == 2
        await it.turns()
        assert sent == ["small", "large"]
        assert it.processor.waiting_responses == 0


@pytest.mark.sources_only
@on_both_loops
async def test_what_is_answered_in_a_handlers_turn_leaves_when_that_ends() -> None:
    async with network() as it:
        sent: list[str] = []

        it.channel.begin_turn()
        it.processor.turns.touch(NotingSender("one", sent))  # type: ignore[arg-type]
        it.processor.turns.touch(NotingSender("two", sent))  # type: ignore[arg-type]
        assert not sent
        it.channel.end_turn()
        assert sent == ["one", "two"]


@pytest.mark.sources_only
@on_both_loops
async def test_alone_it_may_send_more_unless_somebody_elses_request_waits() -> None:
    async with network() as it:
        allowed: list[int] = []
        connection, client = it.connect()

        class Sender:
            def __init__(self, stream: RequestStream) -> None:
                self.stream = stream

            def send_answers(self, most_bytes: int, now_us: int) -> None:
                allowed.append(most_bytes)

        session = Session(Peer(host="127.0.0.2", port=1, listener="PLAINTEXT"))
        somebody = Sender(RequestStream(session, it.channel.put_back))
        it.processor.turns.touch(somebody)  # type: ignore[arg-type]
        await it.turns()
        client.send(frame(b"?"))
        await it.until(lambda: len(it.channel))
        it.processor.turns.touch(somebody)  # type: ignore[arg-type]
        await it.turns()
        it.processor.turns.touch(Sender(connection.stream))  # type: ignore[arg-type]
        await it.turns()
        assert allowed == [MOST_BYTES_ALONE, MOST_BYTES_WHILE_OTHERS_WAIT, MOST_BYTES_ALONE]


@on_both_loops
async def test_how_long_requests_took_is_counted_for_each_listener_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with network() as it:
        report = LatencyReport([it.processor])
        _, client = it.connect()
        client.send(frame(b"1") + frame(b"2"))
        await it.requests(2)
        it.clock.advance(3)
        client.send(frame(b"3"))
        await it.requests(3)
        it.clock.advance(1)
        for slot in it.slots:
            slot.fill([frame(b"!")])
        await it.until(lambda: len(client.read()) == 15)
        counts = it.processor.stats_of("PLAINTEXT").latencies.counts
        assert [(upper_bound(bucket), count) for bucket, count in enumerate(counts) if count] == [(4_096, 3)], (
            "what goes out together counts as long as the oldest of it"
        )
        report.log()
        assert "PLAINTEXT answered 3 requests since the last such line: p50 4096 us, " in caplog.text
        report.log()
        assert "PLAINTEXT answered 0 requests since the last such line: p50 0 us, " in caplog.text


@on_both_loops
async def test_an_answer_counts_as_long_as_the_peer_leaves_it_unread() -> None:
    async with network() as it:
        _, client = it.connect()
        client.send(frame(b"?"))
        await it.requests(1)
        it.slots[0].fill([frame(b"!" * (8 << 20))])
        await it.turns()
        it.clock.advance(5_000)
        assert not any(it.processor.stats_of("PLAINTEXT").latencies.counts)
        await it.until(lambda: len(client.read()) == 4 + (8 << 20))
        counts = it.processor.stats_of("PLAINTEXT").latencies.counts
        assert [upper_bound(bucket) for bucket, count in enumerate(counts) if count] == [5_242_880]


@on_both_loops
async def test_at_a_stop_nothing_more_is_read_and_what_is_under_way_is_answered() -> None:
    async with network() as it:
        idle, _ = it.connect()
        asking, client = it.connect()
        client.send(frame(b"?"))
        await it.requests(1)
        it.processor.stop_reading()
        assert idle.is_closed
        assert not asking.is_closed
        client.send(frame(b"too late"))
        drained = asyncio.ensure_future(it.processor.drained())
        await it.turns()
        assert not drained.done()
        it.slots[0].fill([frame(b"!")])
        await drained
        assert client.read() == frame(b"!")
        assert len(it.slots) == 1


@pytest.mark.sources_only
@on_both_loops
async def test_what_goes_wrong_in_a_turn_comes_out_of_the_processor() -> None:
    async with network() as it:
        connection, _ = it.connect()

        def broken(most_bytes: int, now_us: int) -> None:
            raise ZeroDivisionError("a bug")

        class Broken:
            stream = connection.stream
            send_answers = staticmethod(broken)

        it.processor.turns.touch(Broken())  # type: ignore[arg-type]
        with pytest.raises(ZeroDivisionError):
            await it.task
        it.task = asyncio.ensure_future(asyncio.sleep(0))
        connection.close()
