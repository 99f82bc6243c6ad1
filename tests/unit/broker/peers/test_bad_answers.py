"""What a node sends that is no answer: the connection is closed, and one sentence says what came and what was due."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.peers.errors import PeerAnswerInvalid, PeerError, PeerUnreachable
from protocol.messages.fetch import FetchResponse
from tests.unit.broker.peers.harness import PeerHarness, by_hand, fetch, fetched, peer, versions


async def invalid(it: PeerHarness, data: bytes, **words: int) -> str:
    """The node answers a fetch with ``data``; return what the asker is told."""
    asked = await it.fetch(**words)
    behind = await it.fetch()
    it.wire.send(data)
    await it.settle()
    assert it.wire.is_closed
    assert isinstance(behind.exception(), PeerUnreachable), "only the oldest request is answered wrongly"
    with pytest.raises(PeerAnswerInvalid) as problem:
        await asked
    return str(problem.value)


@by_hand
async def test_a_negative_size() -> None:
    async with peer() as it:
        assert await invalid(it, b"\xff\xff\xff\xff") == (
            "node 3 at kafka-3:9092 sent what is no answer to Fetch version 18: "
            "an answer of -1 bytes was announced, it may have 4 to 104857600"
        )


@by_hand
async def test_a_size_that_has_no_room_for_a_correlation_id() -> None:
    async with peer() as it:
        assert "an answer of 3 bytes was announced" in await invalid(it, b"\0\0\0\3abc")


@by_hand
async def test_a_size_above_the_largest() -> None:
    async with peer(largest_answer_bytes=1_000) as it:
        assert "an answer of 1001 bytes was announced, it may have 4 to 1000" in await invalid(
            it, (1001).to_bytes(4, "big")
        )


@by_hand
async def test_an_asker_may_allow_a_larger_answer_for_its_own_request_only() -> None:
    async with peer(largest_answer_bytes=1_000) as it:
        large = await it.fetch(largest_answer_bytes=10_000)
        it.wire.answer(0, fetched(1, bytes(5_000)))
        assert (await large).session_id == 1
        small = await it.fetch()
        it.wire.answer(1, fetched(1, bytes(5_000)))
        with pytest.raises(PeerAnswerInvalid, match="it may have 4 to 1000"):
            await small


@by_hand
async def test_http() -> None:
    async with peer() as it:
        assert "an answer of 1213486160 bytes" in await invalid(it, b"HTTP/1.1 400 Bad Request\r\n\r\n")


@by_hand
async def test_another_correlation_id() -> None:
    async with peer() as it:
        asked = await it.fetch()
        it.wire.answer(0, fetched(), correlation_id=7)
        with pytest.raises(PeerAnswerInvalid) as problem:
            await asked
        assert str(problem.value) == (
            "node 3 at kafka-3:9092 sent what is no answer to Fetch version 18: its correlation id is 7, 0 was expected"
        )


@by_hand
async def test_answers_in_another_order() -> None:
    async with peer() as it:
        first, second = await it.fetch(), await it.fetch()
        it.wire.answer(1, fetched(2))
        await it.settle()
        assert isinstance(first.exception(), PeerAnswerInvalid)
        assert isinstance(second.exception(), PeerUnreachable)


@by_hand
async def test_an_answer_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with peer() as it:
        asked = await it.fetch()
        answer = it.wire.answer_bytes(0, fetched(1))
        it.wire.send(answer * 2)
        assert (await asked).session_id == 1, "the first is one"
        assert it.wire.is_closed
        assert f"sent {len(answer)} bytes although no request is unanswered; it counts as unreachable" in caplog.text


@by_hand
async def test_a_greeting_that_nobody_has_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    async with peer() as it:
        it.on_connect = lambda wire: wire.send(b"220 mail.example ESMTP")
        asked = await it.fetch()
        with pytest.raises(PeerUnreachable, match=r"was not asked: .* sent 22 bytes although no request is unanswered"):
            await asked
        assert it.wire.is_closed
        assert it.stats.connections_closed == 1
        assert "sent 22 bytes" in caplog.text


@by_hand
async def test_an_answer_that_nobody_waits_for_any_more_is_not_looked_into() -> None:
    async with peer() as it:
        cancelled, kept = await it.fetch(), await it.fetch()
        cancelled.cancel()
        await it.settle()
        it.wire.send(b"\0\0\0\5" + bytes(4) + b"\1")
        it.wire.answer(1, fetched(2))
        assert (await kept).session_id == 2


@by_hand
async def test_an_answer_that_ends_too_early() -> None:
    async with peer() as it:
        asked = await it.fetch()
        answer = it.wire.answer_bytes(0, fetched(1, bytes(50)))[4:-20]
        it.wire.send(len(answer).to_bytes(4, "big") + answer)
        with pytest.raises(PeerAnswerInvalid, match="sent what is no answer to Fetch version 18"):
            await asked
        assert it.stats.requests_answered == 0


@by_hand
async def test_a_node_that_closes_in_the_middle_of_an_answer() -> None:
    async with peer() as it:
        asked = await it.fetch()
        it.wire.send(it.wire.answer_bytes(0, fetched(1, bytes(100_000)))[:-1])
        it.wire.lose()
        with pytest.raises(PeerUnreachable, match="closed the connection"):
            await asked


@by_hand
async def test_versions_that_cannot_be_read() -> None:
    async with peer() as it:
        asked = await it.find_coordinator()
        it.wire.send(b"\0\0\0\x05" + bytes(4) + b"\1")
        with pytest.raises(PeerAnswerInvalid, match="sent what is no answer to ApiVersions version 5"):
            await asked


@by_hand
async def test_the_node_is_asked_again_on_a_new_connection() -> None:
    async with peer() as it:
        await invalid(it, b"\xff" * 100)
        asked = await it.fetch()
        await it.advance(50)
        it.wire.answer(0, fetched(1))
        assert (await asked).session_id == 1
        assert len(it.wires) == 2


@given(st.binary(max_size=200), st.booleans(), st.integers(1, 64))
def test_any_bytes_end_in_an_answer_or_an_error_of_ours(data: bytes, is_framed: bool, piece: int) -> None:
    @by_hand
    async def try_them() -> None:
        async with peer() as it:
            asked = [await it.fetch(), await it.find_coordinator()]
            it.wire.send(len(data).to_bytes(4, "big") + bytes(4) + data if is_framed else data, piece=piece)
            await it.settle()
            it.wire.lose()
            await it.settle()
            for one in asked:
                problem = one.exception()
                assert problem is None or isinstance(problem, PeerError)

    try_them()


@pytest.mark.parametrize("seed", range(20))
def test_an_answer_with_some_bytes_changed_ends_in_an_answer_or_an_error_of_ours(seed: int) -> None:
    chance = random.Random(seed)

    @by_hand
    async def try_it() -> None:
        async with peer() as it:
            for _ in range(20):
                asked = await it.begin(it.peer.ask(fetch(), FetchResponse))
                await it.advance(1_000)
                answers = bytearray(it.wire.answer_bytes(0, versions(fetch=(4, 18))))
                answers[chance.randrange(4, len(answers))] = chance.randrange(256)
                it.wire.send(bytes(answers))
                await it.settle()
                if len(it.wire.requests) > 1:
                    answers = bytearray(it.wire.answer_bytes(-1, fetched(1, bytes(30))))
                    for _ in range(3):
                        answers[chance.randrange(len(answers))] = chance.randrange(256)
                    it.wire.send(bytes(answers))
                    await it.settle()
                it.wire.lose()
                await it.settle()
                assert asked.exception() is None or isinstance(asked.exception(), PeerError)

    try_it()
