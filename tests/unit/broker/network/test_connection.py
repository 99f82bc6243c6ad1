import asyncio
import errno
import logging
import os
import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.network.buffer_pool import FAVOUR_MS, SMALLEST_BUFFER
from broker.network.connection import MOST_ANSWERS_BYTES, MOST_REQUESTS_A_TURN
from broker.network.pauses import Pause
from broker.request.response import NOTHING
from storage.files import FileRegion, FileSystem
from tests.unit.broker.network.harness import frame, network, on_both_loops

FILES = FileSystem()

SIZES = st.one_of(
    st.integers(1, 60), st.integers(2040, 2060), st.integers(60_000, 70_000), st.integers(150_000, 300_000)
)


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(SIZES, min_size=1, max_size=12), cuts=st.lists(st.integers(1, 400_000), max_size=12))
def test_frames_survive_any_fragmentation(sizes: list[int], cuts: list[int]) -> None:
    payloads = [bytes([number % 251]) * size for number, size in enumerate(sizes, 1)]
    stream = b"".join(map(frame, payloads))

    async def exchange() -> None:
        async with network() as it:
            _, client = it.connect()
            bounds = sorted({min(cut, len(stream)) for cut in cuts} | {len(stream)})
            position = 0
            for bound in bounds:
                while position < bound:
                    position += client.send_some(stream[position:bound])
                    await it.turns(2)
                    await it.take()
            assert await it.requests(len(payloads)) == payloads

    asyncio.run(exchange())
    uvloop.run(exchange())


@on_both_loops
async def test_answers_go_out_in_the_order_of_the_requests_whoever_is_filled_first() -> None:
    async with network() as it:
        _, client = it.connect()
        client.send(frame(b"first") + frame(b"second") + frame(b"third"))
        await it.requests(3)
        first, second, third = it.slots
        third.fill([frame(b"3")])
        second.fill([frame(b"2")])
        await it.turns()
        assert client.read() == b""
        first.fill([frame(b"1")])
        await it.until(lambda: client.read() == frame(b"1") + frame(b"2") + frame(b"3"))


@on_both_loops
async def test_a_request_without_an_answer_lets_the_next_one_pass() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"acks=0") + frame(b"acks=1"))
        await it.requests(2)
        it.slots[0].fill(NOTHING)
        it.slots[1].fill([frame(b"done")])
        await it.until(lambda: client.read() == frame(b"done"))
        assert connection.unanswered == 0


@on_both_loops
async def test_an_answer_of_many_chunks_arrives_whole() -> None:
    async with network() as it:
        _, client = it.connect()
        client.send(frame(b"?"))
        await it.requests(1)
        chunks = [b"head", bytearray(b"-"), memoryview(b"body"), b"", b"x" * 300_000]
        it.slots[0].fill(chunks)
        await it.until(lambda: client.read() == b"".join(chunks))


@on_both_loops
async def test_an_idle_connection_holds_no_buffer_and_one_that_received_a_large_request_neither() -> None:
    async with network() as it:
        connection, client = it.connect()
        assert not connection.holds_buffer
        request = frame(b"r" * 50_000)
        client.send(request)
        await it.requests(1)
        assert connection.holds_buffer
        assert it.memory.used_bytes == SMALLEST_BUFFER
        it.slots[0].fill([frame(b"ok")])
        await it.until(lambda: client.read() == frame(b"ok"))
        assert not connection.holds_buffer
        assert it.memory.used_bytes == 0


@on_both_loops
async def test_a_request_that_waits_without_its_frame_holds_no_buffer() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"fetch" * 10_000))
        await it.requests(1)
        it.slots[0].release_frame()
        assert not connection.holds_buffer
        client.send(frame(b"metadata"))
        await it.requests(2)
        it.slots[1].fill([frame(b"2")])
        it.slots[0].fill([frame(b"1")])
        await it.until(lambda: client.read() == frame(b"1") + frame(b"2"))
        assert it.memory.used_bytes == 0


@on_both_loops
async def test_memory_grows_with_the_bytes_that_arrive_not_with_the_size_announced() -> None:
    async with network() as it:
        _, client = it.connect()
        client.send((100_000_000).to_bytes(4, "big") + b"only this")
        await it.until(lambda: it.memory.used_bytes)
        assert it.memory.used_bytes == SMALLEST_BUFFER
        sent = 0
        while sent < 200_000:
            sent += client.send_some(b"x" * (200_000 - sent))
            await it.turns(1)
        await it.until(lambda: it.memory.used_bytes >= 200_000)
        assert it.memory.used_bytes <= 4 * 200_000


@on_both_loops
async def test_the_second_large_request_is_received_where_the_first_one_has_shown_the_size() -> None:
    async with network() as it:
        connection, client = it.connect()
        for number in (1, 2, 3):
            request = frame(bytes([number]) * 900_000)
            sent = 0
            borrowed = set()
            while sent < len(request):
                sent += client.send_some(request[sent:])
                await it.turns(1)
                borrowed.add(it.memory.used_bytes)
            assert (await it.requests(number))[-1] == bytes([number]) * 900_000
            if number > 1:
                assert borrowed - {0} == {1 << 20}, "it has grown although the size was known"
            it.slots[-1].fill([frame(b"ok")])
            await it.until(lambda: not connection.holds_buffer)
        assert it.memory.used_bytes == 0


@on_both_loops
async def test_a_large_request_is_received_to_its_end_and_nothing_of_the_next_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received: list[int] = []

    class Watched(socket.socket):
        def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
            received.append(super().recv_into(buffer, nbytes, flags))
            return received[-1]

    async with network() as it:
        monkeypatch.setattr(socket, "socket", Watched)
        _, client = it.connect()
        request = frame(b"r" * 40_000)
        client.send(request)
        await it.requests(1)
        received.clear()
        client.send(request * 3)
        await it.requests(4)
        assert received == [len(request)] * 3


@on_both_loops
async def test_a_large_request_between_small_ones_is_not_grown_into_step_by_step() -> None:
    async with network() as it:
        connection, client = it.connect()
        borrowed = []
        for number, size in enumerate((900_000, 10, 900_000), 1):
            borrowed.clear()
            request = frame(b"r" * size)
            sent = 0
            while sent < len(request):
                sent += client.send_some(request[sent : sent + 100_000])
                await it.turns(2)
                borrowed.append(it.memory.used_bytes)
            assert len((await it.requests(number))[-1]) == size
            it.slots[-1].fill([frame(b"ok")])
            await it.until(lambda: not connection.holds_buffer and not connection.unanswered)
        assert set(borrowed) == {1 << 20}


@on_both_loops
async def test_the_memory_of_each_large_request_is_given_back_with_its_answer() -> None:
    async with network() as it:
        _, client = it.connect()
        for number in range(3):
            client.send(frame(b"%d" % number * 50_000))
            await it.requests(number + 1)
        assert it.memory.used_bytes == 3 * SMALLEST_BUFFER
        for left in (2, 1, 0):
            it.slots[2 - left].fill([frame(b"ok")])
            await it.turns()
            assert it.memory.used_bytes == left * SMALLEST_BUFFER


@on_both_loops
async def test_a_connection_that_stopped_at_the_end_of_its_buffer_reads_on_in_another() -> None:
    async with network(max_in_flight=2) as it:
        connection, client = it.connect()
        request = frame(b"x" * 40_000)
        for number in (1, 2):
            client.send(request[:20_000])
            await it.turns()
            client.send(request[20_000:])
            await it.requests(number)
        assert connection.pauses == Pause.IN_FLIGHT
        it.slots[0].fill([frame(b"ok")])
        await it.until(lambda: not connection.pauses)
        client.send(request)
        assert len((await it.requests(3))[2]) == 40_000
        assert not connection.is_closed


@pytest.mark.parametrize(
    "announced", [0, -1, -(2**31), 1001, int.from_bytes(b"GET ", "big"), 2**31 - 1], ids=lambda size: f"size {size}"
)
@on_both_loops
async def test_a_size_that_no_request_has_closes_the_connection_with_one_line(
    announced: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with network(request_max_bytes=1000) as it:
        connection, client = it.connect()
        client.send(announced.to_bytes(4, "big", signed=True) + b"/ HTTP/1.1\r\n\r\n")
        await it.until(client.is_closed_by_broker)
        assert connection.is_closed
        assert it.memory.used_bytes == 0
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"{announced} bytes" in line
    assert "10.0.0.1:4711" in line


@on_both_loops
async def test_a_request_of_exactly_the_largest_size_is_read() -> None:
    async with network(request_max_bytes=1000) as it:
        _, client = it.connect()
        client.send(frame(b"x" * 1000))
        assert await it.requests(1) == [b"x" * 1000]


@on_both_loops
async def test_what_was_asked_before_garbage_is_still_answered() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"good") + frame(b""))
        assert await it.requests(1) == [b"good"]
        it.slots[0].fill([frame(b"yes")])
        await it.until(lambda: connection.is_closed)
        assert client.read() == frame(b"yes")


@on_both_loops
async def test_a_connection_with_too_many_unanswered_requests_is_not_read_until_half_are_answered() -> None:
    async with network(max_in_flight=4) as it:
        connection, client = it.connect()
        client.send(b"".join(frame(b"%d" % number) for number in range(10)))
        await it.requests(4)
        await it.turns()
        assert connection.unanswered == 4
        assert connection.pauses == Pause.IN_FLIGHT
        it.slots[0].fill([frame(b"a")])
        await it.turns()
        assert connection.pauses == Pause.IN_FLIGHT
        assert len(it.channel) == 0
        it.slots[1].fill([frame(b"b")])
        await it.requests(6)
        assert connection.unanswered == 4
        for slot in it.slots[2:]:
            slot.fill([frame(b"c")])
        assert await it.requests(10)
        for slot in it.slots[6:]:
            if not slot.is_filled:
                slot.fill([frame(b"d")])
        await it.until(lambda: len(client.read()) == 50)
        assert connection.pauses == 0


@on_both_loops
async def test_a_full_channel_stops_reading_and_serves_the_waiting_in_their_order() -> None:
    async with network(queued_max_requests=3) as it:
        one, first = it.connect()
        first.send(b"".join(frame(b"a%d" % number) for number in range(5)))
        await it.until(lambda: len(it.channel) == 3)
        two, second = it.connect()
        second.send(frame(b"b0"))
        await it.until(lambda: two.pauses == Pause.CHANNEL)
        assert one.pauses == Pause.CHANNEL
        assert len(it.channel) == 3
        assert await it.requests(6) == [b"a0", b"a1", b"a2", b"a3", b"a4", b"b0"]
        await it.turns()
        assert one.pauses == two.pauses == 0
        assert it.channel.stats.times_full >= 2


@on_both_loops
async def test_who_pipelines_many_has_a_few_before_everybody_elses_and_not_all() -> None:
    async with network() as it:
        (_, pipeliner), (_, other) = it.connect(), it.connect()
        pipeliner.send(frame(b"p") * 60)
        other.send(frame(b"o"))
        requests = await it.requests(61)
        assert requests.index(b"o") <= 2 * MOST_REQUESTS_A_TURN
        assert requests.count(b"p") == 60


@on_both_loops
async def test_who_asks_while_the_channel_is_full_holds_no_memory() -> None:
    async with network(queued_max_requests=1) as it:
        connected = [it.connect() for _ in range(20)]
        for number, (_, client) in enumerate(connected):
            client.send(frame(bytes([number])))
        await it.until(lambda: all(one.pauses & Pause.CHANNEL for one, _ in connected[1:]))
        assert it.memory.used_bytes == 0
        assert len(await it.requests(20)) == 20
        assert it.channel.stats.times_full < 2 * 20, "each is let in when there is room, and not to find none"


@on_both_loops
async def test_without_memory_one_connection_at_a_time_goes_on_and_all_come_through() -> None:
    async with network(memory_bytes=4 * SMALLEST_BUFFER) as it:
        request = frame(b"m" * 700_000)
        clients = [it.connect()[1] for _ in range(6)]
        sent = [0] * len(clients)
        most_used = 0
        answered = 0
        for _ in range(20_000):
            for number, client in enumerate(clients):
                if sent[number] < len(request):
                    sent[number] += client.send_some(request[sent[number] : sent[number] + 90_000])
            await it.turns(1)
            most_used = max(most_used, it.memory.used_bytes)
            await it.take()
            for slot in it.slots[answered:]:
                assert len(slot.frame) == 700_000
                slot.fill([frame(b"ok")])
                answered += 1
            if answered == len(clients):
                break
        assert answered == len(clients)
        assert it.memory.times_exhausted
        # One request beyond the limit, with the buffer that it grows out of.
        assert most_used <= 4 * SMALLEST_BUFFER + (1 << 20) + (1 << 19)
        await it.until(lambda: all(client.read() == frame(b"ok") for client in clients))
        assert it.memory.used_bytes == 0


@on_both_loops
async def test_the_death_of_the_one_that_may_go_on_lets_the_next_one_go_on() -> None:
    async with network(memory_bytes=SMALLEST_BUFFER) as it:
        large = frame(b"l" * 100_000)
        (_, favoured), (_, other) = it.connect(), it.connect()
        favoured.send(large[:-1])
        await it.until(lambda: it.memory.used_bytes > SMALLEST_BUFFER)
        other.send(large)
        await it.until(lambda: it.memory.times_exhausted)
        assert not len(it.channel)
        favoured.close()
        assert [len(request) for request in await it.requests(1)] == [100_000]


@on_both_loops
async def test_who_stalls_beyond_the_limit_is_closed_after_a_while_if_others_wait() -> None:
    async with network(memory_bytes=SMALLEST_BUFFER) as it:
        large = frame(b"l" * 100_000)
        (stalled, staller), (_, other) = it.connect(), it.connect()
        staller.send(large[:-1])
        await it.until(lambda: it.memory.favoured is stalled)
        it.clock.advance(2 * FAVOUR_MS)
        assert not stalled.is_closed, "it does no harm"
        other.send(large)
        await it.until(lambda: it.memory.times_exhausted)
        it.clock.advance(FAVOUR_MS)
        assert stalled.is_closed
        assert [len(request) for request in await it.requests(1)] == [100_000]


@on_both_loops
async def test_who_waits_for_answers_beyond_the_limit_is_not_closed_for_it() -> None:
    async with network(memory_bytes=SMALLEST_BUFFER) as it:
        large = frame(b"l" * 100_000)
        (waiting, client), (_, other) = it.connect(), it.connect()
        client.send(large)
        await it.requests(1)
        other.send(large)
        await it.until(lambda: it.memory.times_exhausted)
        it.clock.advance(3 * FAVOUR_MS)
        assert not waiting.is_closed
        it.slots[0].fill([frame(b"ok")])
        await it.requests(2)


@on_both_loops
async def test_who_had_no_memory_for_his_next_request_reads_on_when_the_one_before_is_answered() -> None:
    async with network(memory_bytes=2 * SMALLEST_BUFFER) as it:
        (_, holder), (connection, client) = it.connect(), it.connect()
        holder.send(frame(b"h" * 40_000)[:-1])
        await it.until(lambda: it.memory.used_bytes == SMALLEST_BUFFER)
        client.send(frame(b"1" * 40_000))
        await it.requests(1)
        client.send(frame(b"2" * 40_000))
        await it.until(lambda: connection.pauses & Pause.MEMORY)
        it.slots[0].fill([frame(b"ok")])
        assert [request[:1] for request in await it.requests(2)] == [b"", b"2"]


@on_both_loops
async def test_who_does_not_take_his_answers_is_not_read() -> None:
    async with network() as it:
        connection, client = it.connect()
        answer = frame(b"a" * MOST_ANSWERS_BYTES)
        client.send(frame(b"?") * 8)
        await it.requests(8)
        for slot in it.slots:
            slot.fill([answer])
        await it.until(lambda: connection.pauses & Pause.ANSWERS)
        client.send(frame(b"more"))
        await it.turns()
        assert len(it.slots) == 8
        await it.until(lambda: len(client.read()) == 8 * len(answer))
        assert client.received == answer * 8
        assert (await it.requests(9))[-1] == b"more"


@on_both_loops
async def test_who_asks_on_and_takes_nothing_has_a_bounded_number_of_answers_waiting() -> None:
    async with network(max_in_flight=8) as it:
        connection, client = it.connect()
        client.send(frame(b"?"))
        await it.requests(1)
        it.slots[0].fill([frame(b"!" * 600_000)])
        answered = asked = 1
        for _ in range(50):
            client.send(frame(b"?"))
            asked += 1
            await it.turns(3)
            await it.take()
            for slot in it.slots[answered:]:
                slot.fill([frame(b"small")])
                answered += 1
        assert answered == 1 + 8
        assert connection.unanswered == 8
        while answered < asked:
            await it.until(lambda: client.read() and len(it.channel))
            await it.take()
            for slot in it.slots[answered:]:
                slot.fill([frame(b"small")])
                answered += 1
        await it.until(lambda: client.read() == frame(b"!" * 600_000) + 50 * frame(b"small"))


@on_both_loops
async def test_answers_held_behind_one_that_waits_are_bounded_too() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"long poll") + frame(b"metadata") * 3)
        await it.requests(4)
        for slot in it.slots[1:]:
            slot.fill([frame(b"m" * 600_000)])
        assert connection.pauses == Pause.ANSWERS
        it.slots[0].fill([frame(b"0")])
        await it.until(lambda: len(client.read()) == 5 + 3 * 600_004)
        await it.until(lambda: connection.pauses == 0)


@on_both_loops
async def test_records_are_sent_from_their_file_between_the_bytes_around_them(tmp_path: Path) -> None:
    records = bytes(range(256)) * 8000
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"before" + records + b"behind")
    async with network() as it:
        _, client = it.connect()
        client.send(frame(b"fetch"))
        await it.requests(1)
        log = FILES.open_read(str(path))
        it.slots[0].fill([b"head", FileRegion(log, 6, len(records)), b"-", FileRegion(log, 6, 100), b"tail"])
        whole = b"head" + records + b"-" + records[:100] + b"tail"
        await it.until(lambda: len(client.read()) == len(whole))
        assert client.received == whole


@on_both_loops
async def test_a_region_whose_file_got_shorter_closes_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "short.log"
    path.write_bytes(b"12345")
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"fetch"))
        await it.requests(1)
        it.slots[0].fill([b"head", FileRegion(FILES.open_read(str(path)), 0, 10)])
        await it.until(lambda: connection.is_closed)
        assert client.read() == b"head12345"
    assert "5 bytes at 5" in caplog.text


@on_both_loops
async def test_a_region_that_cannot_be_read_closes_the_connection_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "broken.log"
    path.write_bytes(b"1234567890")
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"fetch"))
        await it.requests(1)
        monkeypatch.setattr(os, "sendfile", broken)
        monkeypatch.setattr(os, "pread", broken)
        it.slots[0].fill([b"head", FileRegion(FILES.open_read(str(path)), 0, 10)])
        await it.until(lambda: connection.is_closed)
        assert client.read() == b"head"
    assert f"inside an answer: reading {path}: Input/output error" in caplog.text


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EOVERFLOW, errno.EACCES, 0])
@on_both_loops
async def test_what_sendfile_refuses_in_the_middle_of_an_answer_is_read_and_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    sendfile = os.sendfile
    asked = 0

    def refusing(out: int, source: int, position: int, size: int) -> int:
        nonlocal asked
        asked += 1
        if asked < 3:
            return sendfile(out, source, position, min(size, 100_000))
        if number:
            raise OSError(number, os.strerror(number))
        return 0

    records = os.urandom(3_000_000)
    path = tmp_path / "data" / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(records)
    monkeypatch.setattr(os, "sendfile", refusing)
    async with network() as it:
        connection, client = it.connect()
        for _ in range(2):
            client.send(frame(b"fetch"))
        await it.requests(2)
        log = FILES.open_read(str(path))
        for slot in it.slots:
            slot.fill([b"head", FileRegion(log, 0, len(records)), b"tail"])
        whole = (b"head" + records + b"tail") * 2
        await it.until(lambda: len(client.read()) == len(whole))
        assert client.received == whole
        assert not connection.is_closed
    assert caplog.text.count(f"files in {tmp_path / 'data'} cannot be sent by sendfile") == 1


@on_both_loops
async def test_large_answers_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    path.write_bytes(b"r" * 5_000_000)
    async with network() as it:
        pairs = [it.connect() for _ in range(3)]
        for _, client in pairs:
            client.send(frame(b"fetch"))
        await it.requests(3)
        log = FILES.open_read(str(path))
        for slot in it.slots:
            slot.fill([FileRegion(log, 0, 5_000_000)])
        await it.until(lambda: all(len(client.read()) == 5_000_000 for _, client in pairs))
        assert it.processor.stats_of("PLAINTEXT").bytes_sent == 15_000_000


@on_both_loops
async def test_requests_of_a_connection_that_died_are_handled_and_their_answers_dropped() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"acks=0 " + b"x" * 50_000))
        await it.until(lambda: len(it.channel) == 1)
        connection.close()
        (request,) = await it.requests(1)
        assert request.startswith(b"acks=0")
        (slot,) = it.slots
        assert slot.peer.host == "10.0.0.1"
        assert it.memory.used_bytes, "somebody still looks into it"
        slot.fill([b"nobody reads this"])
        assert slot.chunks == NOTHING
        assert it.memory.used_bytes == 0


@on_both_loops
async def test_who_has_sent_his_last_request_still_gets_his_answers() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"one") + frame(b"two") + b"\0\0")
        client.wire.shutdown(1)
        assert await it.requests(2) == [b"one", b"two"]
        await it.turns()
        for slot in it.slots:
            slot.fill([frame(b"yes")])
        await it.until(lambda: connection.is_closed)
        assert client.read() == frame(b"yes") * 2


@on_both_loops
async def test_closing_as_an_answer_comes_behind_the_answers_before_it_and_drops_those_behind() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"1") + frame(b"bad") + frame(b"3"))
        await it.requests(3)
        before, bad, behind = it.slots
        bad.close_connection("it could not be read")
        behind.fill([frame(b"never")])
        await it.turns()
        assert not connection.is_closed
        before.fill([frame(b"one")])
        await it.until(lambda: connection.is_closed)
        assert client.read() == frame(b"one")


@on_both_loops
async def test_a_peer_that_resets_is_forgotten() -> None:
    async with network() as it:
        connection, client = it.connect()
        client.send(frame(b"?"))
        await it.requests(1)
        client.close()
        it.slots[0].fill([frame(b"x" * 100)])
        await it.until(lambda: connection.is_closed)
        assert len(it.processor) == 0
        assert it.limits.total == 0
