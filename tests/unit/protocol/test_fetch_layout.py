"""The fast path of Fetch reads what the codec writes, and writes what the codec would."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.codec import Chunk, decode, encode
from protocol.fetch_layout import MOST_ENTRIES, Entry, FetchAnswer, fetch_layout
from protocol.headers import frame_response
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.schema import NO_UUID

VERSIONS = range(4, 19)
Topic, Partition = FetchRequest.Topic, FetchRequest.Topic.Partition

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

partitions = st.builds(
    Partition,
    partition=INT32,
    current_leader_epoch=INT32,
    fetch_offset=INT64,
    last_fetched_epoch=INT32,
    log_start_offset=INT64,
    partition_max_bytes=INT32,
)
topics = st.builds(
    Topic,
    topic=st.text(max_size=200),
    topic_id=st.binary(min_size=16, max_size=16),
    partitions=st.lists(partitions, min_size=1, max_size=200, unique_by=lambda one: one.partition),
)
requests = st.builds(
    FetchRequest,
    max_wait_ms=INT32,
    min_bytes=INT32,
    max_bytes=INT32,
    isolation_level=st.integers(-128, 127),
    topics=st.lists(topics, min_size=1, max_size=3, unique_by=(lambda one: one.topic, lambda one: one.topic_id)),
    rack_id=st.text(max_size=50),
)


def entry(asked: Partition, version: int) -> Entry:
    """What a version says of a partition."""
    return (
        asked.partition,
        asked.current_leader_epoch if version >= 9 else -1,
        asked.fetch_offset,
        asked.last_fetched_epoch if version >= 12 else -1,
        asked.partition_max_bytes,
        0,
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40, deadline=None)
@given(request=requests)
def test_a_request_without_a_session_is_read(version: int, request: FetchRequest) -> None:
    body = encode(request, version)
    frame = memoryview(b"header" + body + b"more")
    layout = fetch_layout(version)

    read = layout.read(frame, len(b"header"))

    assert read is not None
    assert read[:4] == (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    assert [(one.name, one.topic_id) for one in read.topics] == [
        (None, topic.topic_id) if version >= 13 else (topic.topic, None) for topic in request.topics
    ]
    entries = [[entry(asked, version) for asked in topic.partitions] for topic in request.topics]
    assert layout.entries(frame, read) == list(zip(read.topics, entries, strict=True))
    assert [[layout.entry(piece) for piece in layout.pieces(frame, topic)] for topic in read.topics] == entries
    assert read.partitions == sum(map(len, entries))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_off_is_left_to_the_codec(version: int) -> None:
    asked = Partition(partition=1, fetch_offset=2, partition_max_bytes=3)
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[Topic(topic="orders", partitions=[asked])])
    body = encode(request, version)
    layout = fetch_layout(version)
    assert layout.read(memoryview(body), 0) is not None
    for size in range(len(body)):
        assert layout.read(memoryview(body)[:size], 0) is None, f"{size} of {len(body)} bytes"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_replicas_add_is_left_to_the_codec(version: int) -> None:
    def request(of_partition: dict[str, Any], **of_request: Any) -> FetchRequest:
        partition = Partition(partition=1, fetch_offset=2, partition_max_bytes=3, **of_partition)
        return FetchRequest(max_wait_ms=1, min_bytes=1, topics=[Topic(partitions=[partition])], **of_request)

    replica = FetchRequest.ReplicaState(replica_id=2, replica_epoch=7)
    added = [request({}, replica_state=replica) if version >= 15 else request({}, replica_id=2)]
    if version >= 12:
        added.append(request({}, cluster_id="c"))
    if version >= 17:
        added.append(request({"replica_directory_id": bytes(range(16))}))
    if version >= 18:
        added.append(request({"high_watermark": 5}))

    assert fetch_layout(version).read(memoryview(encode(request({}), version)), 0) is not None
    for one in added:
        body = encode(one, version)
        assert fetch_layout(version).read(memoryview(body), 0) is None
        assert decode(FetchRequest, version, body) == one


@pytest.mark.parametrize("version", VERSIONS)
def test_more_than_so_many_are_left_to_the_codec(version: int) -> None:
    asked = [Partition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(MOST_ENTRIES + 1)]
    for count in (MOST_ENTRIES, MOST_ENTRIES + 1):
        request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[Topic(topic="t", partitions=asked[:count])])
        read = fetch_layout(version).read(memoryview(encode(request, version)), 0)
        assert (read is not None) == (count == MOST_ENTRIES)


given_partitions = st.lists(
    st.tuples(INT32, INT64, INT64, INT64, st.sampled_from([0, 1, 126, 127, 128, 16_382, 16_383, 2_097_151])),
    min_size=1,
    max_size=150,
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_committed", [False, True])
@settings(max_examples=40, deadline=None)
@given(of_topics=st.lists(given_partitions, min_size=1, max_size=3), throttle_time_ms=st.integers(0, 2**31 - 1))
def test_an_answer_is_written_as_by_the_codec(
    version: int, is_committed: bool, of_topics: list[list[tuple[int, int, int, int, int]]], throttle_time_ms: int
) -> None:
    asked = [
        Topic(
            topic=f"orders {number}",
            topic_id=bytes([number]) * 16 if version >= 13 else NO_UUID,
            partitions=[
                Partition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(len(of_topic))
            ],
        )
        for number, of_topic in enumerate(of_topics)
    ]
    request = fetch_layout(version).read(
        memoryview(encode(FetchRequest(max_wait_ms=1, min_bytes=1, topics=asked), version)), 0
    )
    assert request is not None
    expected = FetchResponse(throttle_time_ms=throttle_time_ms, responses=[])
    answer = FetchAnswer(version, len(of_topics), is_committed=is_committed, throttle_time_ms=throttle_time_ms)
    for topic, named, of_topic in zip(request.topics, asked, of_topics, strict=True):
        answer.begin_topic(topic)
        of_answer = FetchResponse.Response(topic=named.topic, topic_id=named.topic_id, partitions=[])
        expected.responses.append(of_answer)
        for index, high_watermark, last_stable_offset, log_start_offset, size in of_topic:
            records = Region(size)
            offsets = high_watermark, last_stable_offset, log_start_offset
            if size or index % 2:
                answer.add(index, *offsets, records if size else None)
            else:
                answer.add_encoded([answer.encode_nothing(index, *offsets)])
            of_answer.partitions.append(
                FetchResponse.Response.Partition(
                    partition_index=index,
                    high_watermark=high_watermark,
                    last_stable_offset=last_stable_offset,
                    log_start_offset=log_start_offset,
                    aborted_transactions=[] if is_committed else None,
                    records=records,
                )
            )
        answer.end_topic()

    assert joined(answer.finish(7)) == joined(frame_response(7, expected, version))


class Region:
    """So many bytes of a file."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


def joined(chunks: Sequence[Chunk]) -> bytes:
    """What goes out, with a word for each region."""
    return b"".join(b"<region %d>" % len(chunk) if isinstance(chunk, Region) else chunk for chunk in chunks)
