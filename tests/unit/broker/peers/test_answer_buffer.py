"""The memory that answers are received into."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.peers.answer_buffer import HEAD_BYTES, AnswerBuffer
from protocol.primitives import Malformed

LARGEST = 100 << 20


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def receive(buffer: AnswerBuffer, data: bytes, piece: int = 1 << 30) -> list[memoryview]:
    """Receive bytes as a transport does; return the answers that are whole."""
    answers = []
    while data:
        space = buffer.space()
        count = min(len(space), len(data), piece)
        assert count > 0
        space[:count] = data[:count]
        data = data[count:]
        buffer.received(count)
        while (answer := buffer.cut(LARGEST)) is not None:
            answers.append(answer)
    return answers


@given(
    st.lists(st.integers(4, 40) | st.integers(HEAD_BYTES - 20, 5 * HEAD_BYTES), max_size=8),
    st.integers(1, 40) | st.integers(1000, 3 * HEAD_BYTES),
)
def test_answers_come_out_as_they_were_sent(sizes: list[int], piece: int) -> None:
    if piece < 40:
        sizes = [size for size in sizes if size <= 40]
    sent = [bytes([number]) * size for number, size in enumerate(sizes)]
    buffer = AnswerBuffer()
    assert receive(buffer, b"".join(map(frame, sent)), piece) == sent
    assert buffer.unread_bytes == 0
    assert buffer.held_bytes == 0


@pytest.mark.parametrize("size", [4, 28, 1_020, HEAD_BYTES // 2 - 4, HEAD_BYTES - 4])
def test_there_is_room_behind_an_answer_that_fills_the_head_to_its_end(size: int) -> None:
    buffer = AnswerBuffer()
    for _ in range(2 * HEAD_BYTES // (4 + size)):
        answer = frame(bytes(size))
        buffer.space()[: len(answer)] = answer
        buffer.received(len(answer))
        assert buffer.cut(LARGEST) == bytes(size)  # no other answer is due: nobody asks for the next one


def test_a_buffer_that_is_cleared_has_room_again() -> None:
    buffer = AnswerBuffer()
    for data in (bytes(HEAD_BYTES), frame(bytes(2 * HEAD_BYTES))[:-1]):
        space = buffer.space()
        space[:] = data[: len(space)]
        buffer.received(len(space))
        buffer.clear()
        assert (len(buffer.space()), buffer.unread_bytes, buffer.held_bytes) == (HEAD_BYTES, 0, 0)


def test_an_announced_size_takes_no_memory_before_the_bytes_come() -> None:
    buffer = AnswerBuffer()
    receive(buffer, (50 << 20).to_bytes(4, "big"))
    buffer.space()
    assert buffer.held_bytes <= HEAD_BYTES
    arrived = 0
    while arrived < 10 << 20:
        receive(buffer, bytes(100_000))
        arrived += 100_000
        assert buffer.held_bytes <= 2 * arrived + HEAD_BYTES


def test_an_answer_as_large_as_an_earlier_one_is_received_into_one_piece_of_memory() -> None:
    buffer = AnswerBuffer()
    receive(buffer, frame(bytes(1 << 20)))
    receive(buffer, frame(bytes(1 << 20))[:100])
    assert buffer.held_bytes == 1 << 20
    assert len(buffer.space()) == (1 << 20) - 96, "the rest of it is received in place"


def test_memory_of_an_answer_is_not_received_into_again() -> None:
    buffer = AnswerBuffer()
    kept = receive(buffer, frame(b"a" * 100) + frame(b"b" * 100_000))
    receive(buffer, frame(b"c" * 100) + frame(b"d" * 100_000))
    assert kept == [b"a" * 100, b"b" * 100_000]


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 3, 1001])
def test_a_size_out_of_range_is_refused(size: int) -> None:
    buffer = AnswerBuffer()
    space = buffer.space()
    space[:4] = size.to_bytes(4, "big", signed=True)
    buffer.received(4)
    with pytest.raises(Malformed, match=f"an answer of {size} bytes was announced, it may have 4 to 1000"):
        buffer.cut(1000)
