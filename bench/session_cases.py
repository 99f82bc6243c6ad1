"""Case: the cost of a fetch of many partitions of which few have records, in a session (KIP-227) and outside."""

from __future__ import annotations

from collections.abc import Callable

from bench.conversation import Conversation, fetch_frame, produce_frame
from bench.load import LoadFailed
from bench.raw_cases import Bench
from protocol.headers import decode_response
from protocol.messages.fetch import FetchResponse

WATCHED = 1_000
MOVING = 10
PARTITION_BYTES = 1 << 20


def fetch_session(bench: Bench) -> dict[str, float]:
    """Bytes each way and broker CPU of a fetch, one at a time; each answer has the same records.

    Every request of a session names the partitions that had records, as a client does after it has consumed them.
    """
    every, moving = list(range(WATCHED)), list(range(0, WATCHED, WATCHED // MOVING))
    with bench.topic(WATCHED) as topic, Conversation(bench.broker.bootstrap) as conversation:
        for number in moving:
            conversation.exchange(produce_frame(topic, number, records=1, value_bytes=100))

        def full(_: int) -> bytes:
            return fetch_frame(topic, every, partition_bytes=PARTITION_BYTES)

        incremental = _in_session(conversation, topic, every, moving)
        of_session = _measure(bench, conversation, incremental, requests=10_000, partition_count=MOVING)
        alone = _in_session(conversation, topic, moving, moving)
        of_few = _measure(bench, conversation, alone, requests=10_000, partition_count=MOVING)
        of_full = _measure(bench, conversation, full, requests=200, partition_count=WATCHED)
    return {
        **of_session,
        **{f"alone_{name}": figure for name, figure in of_few.items()},
        **{f"full_{name}": figure for name, figure in of_full.items()},
        "ratio": of_session["cpu_us"] / of_few["cpu_us"],
        "ratio_full": of_session["cpu_us"] / of_full["cpu_us"],
    }


def _in_session(
    conversation: Conversation, topic: str, watched: list[int], moving: list[int]
) -> Callable[[int], bytes]:
    """Begin a session. Returns a function that makes the request with a number, from 0."""
    begin = fetch_frame(topic, watched, partition_bytes=PARTITION_BYTES, session_epoch=0)
    session_id = _read(conversation.exchange(begin), partition_count=len(watched)).session_id
    if not session_id:
        raise LoadFailed("the broker granted no fetch session")

    def request(number: int) -> bytes:
        return fetch_frame(
            topic, moving, partition_bytes=PARTITION_BYTES, session_id=session_id, session_epoch=1 + number
        )

    return request


def _measure(
    bench: Bench, conversation: Conversation, request: Callable[[int], bytes], *, requests: int, partition_count: int
) -> dict[str, float]:
    count = bench.count(requests)
    sent = received = 0
    first = b""
    before = bench.broker.cpu_seconds()
    for number in range(count):
        frame = request(number)
        answer = conversation.exchange(frame)
        first = first or answer
        if len(answer) != len(first):
            raise LoadFailed(f"fetch {number} brought {len(answer)} bytes, the first one {len(first)}")
        sent += len(frame)
        received += 4 + len(answer)
    cpu = bench.broker.cpu_seconds() - before
    _read(first, partition_count=partition_count)
    return {"request_bytes": sent / count, "answer_bytes": received / count, "cpu_us": cpu / count * 1e6}


def _read(answer: bytes, *, partition_count: int) -> FetchResponse:
    """Decode an answer, which must have so many partitions and no errors."""
    _, response = decode_response(FetchResponse, 12, answer)
    partitions = [partition for topic in response.responses for partition in topic.partitions]
    codes = {response.error_code, *(partition.error_code for partition in partitions)}
    if codes != {0}:
        raise LoadFailed(f"Fetch failed with errors {sorted(codes)}")
    if len(partitions) != partition_count:
        raise LoadFailed(f"Fetch answered with {len(partitions)} partitions, expected {partition_count}")
    return response
