"""How a node is asked: the connection, the order of answers, time-outs, back-off, and requests that are cancelled."""

import logging

import pytest

from broker.peers.errors import PeerTimedOut, PeerUnreachable
from protocol.codec import Unencodable
from protocol.messages.fetch import FetchRequest, FetchResponse
from tests.unit.broker.peers.harness import NODE, REQUEST_TIMEOUT_MS, by_hand, fetched, peer, versions

# The connection


@by_hand
async def test_a_connection_is_made_by_the_first_request_and_serves_the_next() -> None:
    async with peer() as it:
        await it.settle()
        assert it.attempts_ms == []

        first = await it.fetch()
        it.wire.answer(0, fetched(1))
        second = await it.fetch()
        it.wire.answer(1, fetched(2))

        assert (await first).session_id == 1
        assert (await second).session_id == 2
        assert len(it.wires) == 1
        header, request = it.wire.requests[0]
        assert (header.api_key, header.api_version, header.client_id) == (1, 18, "broker-2-fetcher-0")
        assert isinstance(request, FetchRequest)
        assert request.max_wait_ms == 500


@by_hand
async def test_all_who_ask_while_it_is_made_share_one_connection_and_keep_their_order() -> None:
    async with peer() as it:
        it.holds = True
        asked = [await it.fetch(max_wait_ms=number) for number in (1, 2, 3)]
        assert len(it.attempts_ms) == 1
        it.release()
        await it.settle()
        assert [request.max_wait_ms for _, request in it.wire.requests] == [1, 2, 3]
        for index in range(3):
            it.wire.answer(index, fetched(index))
        assert [(await one).session_id for one in asked] == [0, 1, 2]


@by_hand
async def test_a_connection_that_the_node_closes_while_it_is_idle_is_made_again_by_the_next_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with peer() as it:
        first = await it.fetch()
        it.wire.answer(0, fetched())
        await first
        it.wire.lose()
        await it.advance(600_000)
        assert len(it.wires) == 1, "nobody needs a connection"

        second = await it.fetch()
        it.wire.answer(0, fetched(2))

        assert (await second).session_id == 2
        assert len(it.wires) == 2
        assert caplog.text == ""


@by_hand
async def test_a_node_that_closes_before_it_answers_is_unreachable_for_all_who_wait() -> None:
    async with peer() as it:
        asked = [await it.fetch(), await it.fetch()]
        it.wire.lose()
        for one in asked:
            with pytest.raises(PeerUnreachable) as problem:
                await one
            assert str(problem.value) == (
                "node 3 at kafka-3:9092 closed the connection; Fetch version 18 has no answer"
            )
        assert it.wire.is_closed


@by_hand
async def test_a_connection_that_breaks_says_how() -> None:
    async with peer() as it:
        asked = await it.fetch()
        it.wire.lose(ConnectionResetError(104, "Connection reset by peer"))
        with pytest.raises(PeerUnreachable, match=r"is connected no more: \[Errno 104\] Connection reset by peer"):
            await asked


@by_hand
async def test_a_node_that_closes_each_connection_at_once_is_unreachable(caplog: pytest.LogCaptureFixture) -> None:
    async with peer() as it:
        it.on_connect = lambda wire: wire.lose()
        asked = await it.fetch()
        with pytest.raises(PeerUnreachable, match="was not asked: node 3 at kafka-3:9092 closed the connection"):
            await asked
        assert "closed the connection; it counts as unreachable" in caplog.text

        it.on_connect = lambda wire: None
        later = await it.fetch()
        await it.advance(50)
        it.wire.answer(0, fetched(1))
        assert (await later).session_id == 1


# Requests under way at the same time


@by_hand
async def test_requests_do_not_wait_for_the_answers_to_earlier_ones() -> None:
    async with peer() as it:
        asked = [await it.fetch(max_wait_ms=number) for number in range(5)]
        assert len(it.wire.requests) == 5
        assert it.stats.requests_in_flight == 5
        it.wire.send(b"".join(it.wire.answer_bytes(index, fetched(index)) for index in range(5)))
        assert [(await one).session_id for one in asked] == [0, 1, 2, 3, 4]
        assert it.stats.requests_in_flight == 0


@by_hand
async def test_correlation_ids_begin_again_before_they_would_be_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.peers.connection._LARGEST_CORRELATION_ID", 2)
    async with peer() as it:
        for index in range(5):
            asked = await it.fetch()
            it.wire.answer(index, fetched(index))
            assert (await asked).session_id == index
        assert [header.correlation_id for header, _ in it.wire.requests] == [0, 1, 2, 0, 1]


@by_hand
async def test_answers_may_come_in_pieces_of_any_size() -> None:
    for piece in (1, 2, 3, 5, 7, 4096):
        async with peer() as it:
            asked = [await it.fetch() for _ in range(3)]
            it.wire.send(b"".join(it.wire.answer_bytes(index, fetched(index)) for index in range(3)), piece=piece)
            assert [(await one).session_id for one in asked] == [0, 1, 2]


@by_hand
async def test_records_are_views_of_memory_that_is_not_used_again() -> None:
    async with peer() as it:
        first = await it.fetch()
        it.wire.answer(0, fetched(1, b"a" * 100, b"b" * 200_000))
        small, large = (partition.records for partition in (await first).responses[0].partitions)
        second = await it.fetch()
        it.wire.answer(1, fetched(2, b"c" * 100, b"d" * 200_000))
        await second
        assert isinstance(small, memoryview)
        assert isinstance(large, memoryview)
        assert (bytes(small), bytes(large)) == (b"a" * 100, b"b" * 200_000)


@by_hand
async def test_a_request_that_cannot_be_encoded_is_its_askers_mistake_only() -> None:
    async with peer() as it:
        waiting = await it.fetch()
        wrong = await it.begin(
            it.peer.ask(FetchRequest(max_wait_ms=1 << 40, min_bytes=0, topics=[]), FetchResponse, version=18)
        )
        with pytest.raises(Unencodable):
            await wrong
        it.wire.answer(0, fetched(1))
        assert (await waiting).session_id == 1
        assert it.stats.requests_sent == 1


# Time


@by_hand
async def test_a_request_that_is_not_answered_in_time_closes_the_connection() -> None:
    async with peer() as it:
        asked = await it.fetch()
        await it.advance(REQUEST_TIMEOUT_MS - 1)
        assert not asked.done()
        await it.advance(1)
        with pytest.raises(PeerTimedOut) as problem:
            await asked
        assert str(problem.value) == "node 3 at kafka-3:9092 did not answer Fetch version 18 within 30000 ms"
        assert it.wire.is_closed
        assert it.stats.requests_timed_out == 1


@by_hand
async def test_a_requests_time_begins_when_it_is_sent_whatever_the_versions_took() -> None:
    async with peer() as it:
        asked = await it.find_coordinator()
        await it.advance(REQUEST_TIMEOUT_MS - 1)
        it.wire.answer(0, versions(find_coordinator=(0, 6)))
        await it.settle()
        await it.advance(REQUEST_TIMEOUT_MS - 1)
        assert not asked.done()
        await it.advance(1)
        with pytest.raises(PeerTimedOut, match="did not answer FindCoordinator version 6 within 30000 ms"):
            await asked


@by_hand
async def test_each_request_has_its_own_time_and_the_others_lose_the_connection_with_it() -> None:
    async with peer() as it:
        patient = await it.fetch()
        hasty = await it.fetch(timeout_ms=2_000)
        await it.advance(2_000)
        with pytest.raises(PeerTimedOut, match="within 2000 ms"):
            await hasty
        with pytest.raises(PeerUnreachable) as problem:
            await patient
        assert str(problem.value) == (
            "node 3 at kafka-3:9092 did not answer Fetch version 18 within 2000 ms; Fetch version 18 has no answer"
        )


@by_hand
async def test_an_answer_that_drips_for_ever_is_over_with_the_requests_time() -> None:
    async with peer() as it:
        asked = await it.fetch()
        answer = it.wire.answer_bytes(0, fetched(1, bytes(1000)))
        for second in range(30):
            assert not asked.done()
            it.wire.send(answer[second : second + 1])
            await it.advance(1_000)
        with pytest.raises(PeerTimedOut):
            await asked
        assert it.wire.is_closed


@by_hand
async def test_bytes_that_come_after_the_connection_was_closed_are_dropped() -> None:
    async with peer() as it:
        asked = await it.fetch()
        answer = it.wire.answer_bytes(0, fetched(1))
        await it.advance(REQUEST_TIMEOUT_MS)
        with pytest.raises(PeerTimedOut):
            await asked
        received = it.stats.bytes_in
        it.wire.send(answer)
        it.wire.lose()
        assert it.stats.bytes_in == received
        assert it.stats.connections_closed == 1


# Back-off


@by_hand
async def test_a_request_that_no_connection_can_be_made_for_fails_with_the_reason() -> None:
    async with peer() as it:
        it.refusal = ConnectionRefusedError(111, "Connection refused")
        asked = await it.fetch()
        with pytest.raises(PeerUnreachable) as problem:
            await asked
        assert str(problem.value) == "node 3 at kafka-3:9092 cannot be reached: [Errno 111] Connection refused"


@by_hand
async def test_attempts_to_connect_are_made_after_pauses_that_double_up_to_a_second() -> None:
    async with peer() as it:
        it.refusal = ConnectionRefusedError(111, "Connection refused")
        pauses = []
        for _ in range(7):
            asked = await it.fetch()
            paused_ms = 0
            while not asked.done():
                await it.advance(1)
                paused_ms += 1
            assert isinstance(asked.exception(), PeerUnreachable)
            pauses.append(paused_ms)
        assert pauses == [0, 50, 100, 200, 400, 800, 1000]


@by_hand
async def test_a_request_within_the_back_off_waits_for_its_end_and_is_asked_then() -> None:
    async with peer() as it:
        it.refusal = ConnectionRefusedError(111, "Connection refused")
        with pytest.raises(PeerUnreachable):
            await (await it.fetch())
        it.refusal = None
        asked = await it.fetch()
        await it.advance(49)
        assert not asked.done()
        assert it.wires == []
        await it.advance(1)
        it.wire.answer(0, fetched(1))
        assert (await asked).session_id == 1


@by_hand
async def test_a_request_whose_time_ends_within_the_back_off_says_why_there_is_no_connection() -> None:
    async with peer() as it:
        it.refusal = ConnectionRefusedError(111, "Connection refused")
        with pytest.raises(PeerUnreachable):
            await (await it.fetch())
        asked = await it.fetch(timeout_ms=20)
        await it.advance(20)
        with pytest.raises(PeerUnreachable) as problem:
            await asked
        assert str(problem.value) == (
            "there was no connection within 20 ms; "
            "node 3 at kafka-3:9092 cannot be reached: [Errno 111] Connection refused"
        )


@by_hand
async def test_a_request_whose_time_ends_while_the_connection_is_made_leaves_the_attempt_to_the_next() -> None:
    async with peer() as it:
        it.holds = True
        asked = await it.fetch(timeout_ms=100)
        await it.advance(100)
        with pytest.raises(PeerUnreachable, match="there was no connection within 100 ms"):
            await asked
        it.release()
        await it.settle()
        next_one = await it.fetch()
        it.wire.answer(0, fetched(1))
        assert (await next_one).session_id == 1
        assert len(it.attempts_ms) == 1


@by_hand
async def test_an_answer_ends_the_back_off_and_a_mere_connection_does_not() -> None:
    async with peer() as it:

        async def pause_ms() -> int:
            """The connection is lost; how long until the next is made for the request that waits?"""
            it.wire.lose()
            lost_ms, made = it.now_ms, len(it.wires)
            await it.fetch()
            while len(it.wires) == made:
                await it.advance(1)
            return it.now_ms - lost_ms

        await it.fetch()
        assert [await pause_ms() for _ in range(3)] == [50, 100, 200]
        it.wire.answer(0, fetched())
        assert [await pause_ms() for _ in range(2)] == [50, 100]


@by_hand
async def test_a_node_is_said_to_be_unreachable_once_and_reachable_again_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="broker.peers")
    async with peer() as it:
        it.refusal = ConnectionRefusedError(111, "Connection refused")
        for _ in range(5):
            asked = await it.fetch()
            await it.advance(1_000)
            assert isinstance(asked.exception(), PeerUnreachable)
        it.refusal = None
        for number in range(3):
            asked = await it.fetch()
            await it.advance(1_000)
            it.wire.answer(number, fetched())
            await asked
        assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
            (
                "WARNING",
                f"{NODE} cannot be reached: [Errno 111] Connection refused; it counts as unreachable until it answers",
            ),
            ("INFO", f"{NODE} answers again, after 6000 ms"),
        ]


# Requests that nobody waits for any more


@by_hand
async def test_the_answer_to_a_cancelled_request_is_dropped_and_the_connection_stays() -> None:
    async with peer() as it:
        cancelled = await it.fetch()
        kept = await it.fetch()
        cancelled.cancel()
        await it.settle()
        it.wire.answer(0, fetched(1))
        it.wire.answer(1, fetched(2))
        assert (await kept).session_id == 2
        assert cancelled.cancelled()
        assert not it.wire.is_closed
        assert it.stats.requests_answered == 2


@by_hand
async def test_a_cancelled_request_that_is_never_answered_closes_the_connection_when_its_time_is_over() -> None:
    async with peer() as it:
        cancelled = await it.fetch(timeout_ms=500)
        kept = await it.fetch()
        cancelled.cancel()
        await it.advance(500)
        with pytest.raises(PeerUnreachable):
            await kept
        assert it.wire.is_closed


@by_hand
async def test_a_request_that_is_cancelled_before_there_is_a_connection_is_never_sent() -> None:
    async with peer() as it:
        it.holds = True
        cancelled = await it.fetch(max_wait_ms=1)
        kept = await it.fetch(max_wait_ms=2)
        cancelled.cancel()
        it.release()
        await it.settle()
        assert [request.max_wait_ms for _, request in it.wire.requests] == [2]
        it.wire.answer(0, fetched(1))
        assert (await kept).session_id == 1


@by_hand
async def test_whoever_asks_for_the_versions_first_may_be_cancelled() -> None:
    async with peer() as it:
        cancelled = await it.find_coordinator()
        kept = await it.find_coordinator()
        cancelled.cancel()
        await it.settle()
        it.wire.answer(0, versions(find_coordinator=(0, 6)))
        await it.settle()
        assert it.wire.asked == ["ApiVersions 5", "FindCoordinator 6"]
        assert not kept.done()


# Closing


@by_hand
async def test_closing_ends_requests_that_wait_for_an_answer_and_later_ones(caplog: pytest.LogCaptureFixture) -> None:
    async with peer() as it:
        waiting = await it.fetch()
        unversioned = await it.find_coordinator()
        it.peer.close()
        it.peer.close()
        later = await it.fetch()
        for asked in (waiting, unversioned, later):
            with pytest.raises(PeerUnreachable, match="node 3 at kafka-3:9092 is asked no more"):
                await asked
        assert it.wire.is_closed
        assert caplog.text == "", "this is no failure of the node"


@by_hand
async def test_closing_ends_requests_that_wait_for_a_connection() -> None:
    async with peer() as it:
        it.holds = True
        waiting = await it.fetch()
        it.peer.close()
        with pytest.raises(PeerUnreachable, match="is asked no more"):
            await waiting
        assert it.wires == []


@by_hand
async def test_closing_ends_requests_that_wait_for_the_end_of_the_back_off() -> None:
    async with peer() as it:
        it.refusal = ConnectionRefusedError(111, "Connection refused")
        with pytest.raises(PeerUnreachable):
            await (await it.fetch())
        waiting = await it.fetch()
        it.peer.close()
        with pytest.raises(PeerUnreachable, match="is asked no more"):
            await waiting
        await it.advance(60_000)
        assert len(it.attempts_ms) == 1


# Counters


@by_hand
async def test_everything_is_counted() -> None:
    async with peer() as it:
        it.refusal = ConnectionRefusedError(111, "Connection refused")
        with pytest.raises(PeerUnreachable):
            await (await it.fetch())
        it.refusal = None
        asked = await it.fetch()
        await it.advance(50)
        it.wire.answer(0, fetched(1))
        await asked
        await it.fetch(timeout_ms=10)
        await it.fetch()
        assert it.stats.requests_in_flight == 2
        await it.advance(10)
        stats = it.stats
        assert (stats.connections_made, stats.connections_failed, stats.connections_closed) == (1, 1, 1)
        assert (stats.requests_sent, stats.requests_answered, stats.requests_timed_out) == (3, 1, 1)
        assert stats.requests_in_flight == 0
        assert stats.bytes_in == len(it.wire.answer_bytes(0, fetched(1)))
        assert stats.bytes_out == it.wire.received_bytes > 0
