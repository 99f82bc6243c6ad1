"""Case: ten thousand partitions; the times to create them, to list their offsets, to write to them and to read them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.conversation import Conversation
from bench.processes import OwnBroker, memory_mb
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from storage.batch.records import Record, encode_batch

PARTITIONS = 10_000
LEAST_PARTITIONS = 100
TOPIC = "many"
PING_INTERVAL_S = 0.005


def partitions(directory: Path, scale: float) -> dict[str, float]:
    """Create, write and read a topic of 10,000 partitions (times `scale`), with a record in each; and the
    longest wait of another client meanwhile."""
    count = max(LEAST_PARTITIONS, int(PARTITIONS * scale))
    with (
        contextlib.closing(OwnBroker(directory)) as broker,
        Conversation(broker.bootstrap) as client,
        Bystander(broker.bootstrap) as bystander,
    ):
        assert broker.pid is not None
        before_mb = memory_mb(broker.pid)[0]
        figures = {"create_s": timed(lambda: client.create_topic(TOPIC, partitions=count))}
        figures["create_longest_wait_ms"] = bystander.longest_wait_ms()
        topic_id = client.ask(MetadataRequest(topics=None), MetadataResponse).topics[0].topic_id
        figures["metadata_ms"] = 1000 * timed(lambda: client.ask(MetadataRequest(topics=None), MetadataResponse))
        figures["produce_all_s"] = timed(lambda: produce_to_all(client, TOPIC, topic_id, count))
        figures["fetch_all_s"] = timed(lambda: fetch_from_all(client, topic_id, count))
        figures["longest_wait_ms"] = bystander.longest_wait_ms()
        figures["kb_each"] = (memory_mb(broker.pid)[0] - before_mb) * 1024 / count
        figures["open_files"] = len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))
    return figures


def timed(job: Callable[[], object]) -> float:
    """The seconds that ``job`` takes."""
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def produce_to_all(client: Conversation, topic: str, topic_id: bytes, partitions: int) -> None:
    """Produce a record to each partition, in one request."""
    batch = encode_batch([Record(timestamp=int(time.time() * 1000), value=bytes(100))])
    data = ProduceRequest.TopicData
    request = ProduceRequest(
        acks=-1,
        timeout_ms=60_000,
        topic_data=[
            data(
                name=topic,
                topic_id=topic_id,
                partition_data=[data.PartitionData(index=n, records=memoryview(batch)) for n in range(partitions)],
            )
        ],
    )
    (of_topic,) = client.ask(request, ProduceResponse).responses
    assert {answer.error_code for answer in of_topic.partition_responses} == {0}


def fetch_from_all(client: Conversation, topic_id: bytes, partitions: int) -> None:
    """Fetch the record of each partition, in one answer."""
    asked = FetchRequest.Topic.Partition
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[
            FetchRequest.Topic(
                topic=TOPIC,
                topic_id=topic_id,
                partitions=[asked(partition=n, fetch_offset=0, partition_max_bytes=1_000) for n in range(partitions)],
            )
        ],
    )
    (of_topic,) = client.ask(request, FetchResponse).responses
    assert sum(1 for answer in of_topic.partitions if answer.records) == partitions


class Bystander:
    """Another client, which sends a small request every few milliseconds and records its latency."""

    def __init__(self, bootstrap: str) -> None:
        self._client = Conversation(bootstrap)
        self._longest_s = 0.0
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._ask_on)

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()
        self._client.close()

    def longest_wait_ms(self) -> float:
        """The longest wait for an answer since the last call, in milliseconds."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s * 1000

    def _ask_on(self) -> None:
        request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
        while not self._has_ended.wait(PING_INTERVAL_S):
            waited_s = timed(lambda: self._client.ask(request, ApiVersionsResponse))
            self._longest_s = max(self._longest_s, waited_s)
