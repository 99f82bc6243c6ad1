"""The cases of the raw load generator: produce, fetch, small requests, latency; each beside the machine's limit."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.conversation import Conversation, fetch_frame, produce_frame
from bench.limits import MEGABYTE, SocketOptions, bare_append, echo_cpu_us, fsync_rate, plain_sendfile, sequential_write
from bench.load import LoadFailed, Sample, run_load, run_paced
from bench.processes import BenchedBroker
from bench.rival import Rival
from protocol.headers import decode_response
from protocol.messages.fetch import FetchResponse
from protocol.messages.produce import ProduceResponse

VALUE_BYTES = 1_000
LATENCIES = 5_000
"""Requests of a latency sample."""
RECORD_OVERHEAD = 10
"""The most bytes that a record of 1,000 bytes takes more in its batch; with it, "1 MB" stays below
max.message.bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The context of every case: broker, Apache Kafka, socket options, directory and scale."""

    broker: BenchedBroker
    rival: Rival
    options: SocketOptions
    directory: Path
    scale: float

    def count(self, requests: int) -> int:
        return max(64, int(requests * self.scale))

    @contextmanager
    def topic(self, partitions: int, configs: Mapping[str, str] | None = None) -> Iterator[str]:
        """A context with a new topic, which is removed with its files at the end."""
        name = f"bench-{uuid.uuid4().hex[:12]}"
        with Conversation(self.broker.bootstrap) as conversation:
            conversation.create_topic(
                name, partitions=partitions, configs={"file.delete.delay.ms": "0", **(configs or {})}
            )
            try:
                yield name
            finally:
                conversation.delete_topic(name)
                self.broker.wait_until_removed()

    def end_offsets(self, topic: str, partitions: int) -> int:
        with Conversation(self.broker.bootstrap) as conversation:
            return conversation.end_offsets(topic, partitions)


def values_in(batch_bytes: int) -> int:
    """How many records of VALUE_BYTES fill a batch of about `batch_bytes`."""
    return batch_bytes // (VALUE_BYTES + RECORD_OVERHEAD)


def check_produced(answer: bytes) -> None:
    _, response = decode_response(ProduceResponse, 9, memoryview(answer)[4:])
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise LoadFailed(f"Produce failed with error {partition.error_code} ({partition.error_message})")


def check_fetched(answer: bytes, at_least: int) -> None:
    _, response = decode_response(FetchResponse, 12, memoryview(answer)[4:])
    size = 0
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.error_code:
                raise LoadFailed(f"Fetch failed with error {partition.error_code}")
            size += len(partition.records or b"")
    if size < at_least:
        raise LoadFailed(f"Fetch brought {size} bytes of records, expected at least {at_least}")


def produce(
    bench: Bench,
    *,
    records: int,
    value_bytes: int,
    connections: int,
    in_flight: int,
    requests: int,
    cycles: int = 1,
    lead_in: int = 0,
    configs: Mapping[str, str] | None = None,
    most_seconds: float = 20.0,
) -> dict[str, float]:
    """Throughput of one kind of Produce request, with a partition for each connection. The end offsets are checked
    afterwards.

    Each cycle has a topic of its own. The first `lead_in` cycles are not counted: their topics' memory is still warm
    when the other cycles use it.
    """
    samples: list[Sample] = []
    cpu = 0.0
    for cycle in range(-lead_in, cycles):
        sample, cpu_seconds = _produce_once(
            bench, records, value_bytes, connections, in_flight, requests, configs, most_seconds
        )
        if cycle >= 0:
            samples.append(sample)
            cpu += cpu_seconds
    total = Sample.sum(samples)
    return _figures(total, total.sent_bytes, cpu)


def _produce_once(
    bench: Bench,
    records: int,
    value_bytes: int,
    connections: int,
    in_flight: int,
    requests: int,
    configs: Mapping[str, str] | None,
    most_seconds: float,
) -> tuple[Sample, float]:
    with bench.topic(connections, configs) as topic:
        frames = [
            produce_frame(topic, number, records=records, value_bytes=value_bytes) for number in range(connections)
        ]
        before = bench.broker.cpu_seconds()
        sample = run_load(
            bench.broker.bootstrap,
            frames,
            in_flight=in_flight,
            requests=bench.count(requests),
            check=check_produced,
            most_seconds=most_seconds,
        )
        cpu = bench.broker.cpu_seconds() - before
        stored = bench.end_offsets(topic, connections)
    expected = (sample.requests + connections) * records
    if stored != expected:
        raise LoadFailed(f"{expected} records were acknowledged, the log ends hold {stored}")
    return sample, cpu


def produce_1mb(bench: Bench) -> dict[str, float]:
    figures = produce(
        bench,
        records=values_in(MEGABYTE),
        value_bytes=VALUE_BYTES,
        connections=2,
        in_flight=2,
        requests=300,
        cycles=4,
        lead_in=2,
    )
    limit = sequential_write(bench.directory, size=MEGABYTE, count=bench.count(300), cycles=4, lead_in=2)
    frame = produce_frame("bench-0123456789ab", 0, records=values_in(MEGABYTE), value_bytes=VALUE_BYTES)
    bare = bare_append(
        bench.directory, bench.options, frame=frame, in_flight=4, count=bench.count(300), cycles=4, lead_in=2
    )
    return {
        **figures,
        "limit_mb_s": limit,
        "ratio": figures["mb_s"] / limit,
        "bare_mb_s": bare,
        "ratio_bare": figures["mb_s"] / bare,
    }


def produce_128kb(bench: Bench) -> dict[str, float]:
    records = values_in(128 * 1024)
    large = {"requests": 2_000, "cycles": 4, "lead_in": 2}
    return produce(bench, records=records, value_bytes=VALUE_BYTES, connections=4, in_flight=2, **large)


def produce_16kb(bench: Bench) -> dict[str, float]:
    records = values_in(16 * 1024)
    large = {"requests": 12_000, "cycles": 3, "lead_in": 1}
    return produce(bench, records=records, value_bytes=VALUE_BYTES, connections=4, in_flight=4, **large)


def produce_flushed(bench: Bench) -> dict[str, float]:
    """Small requests to topics with `flush.messages=1`, whose acknowledgements wait for the disk: one at a time, and 16
    at a time on one partition, which share a flush. Beside them the limit of the disk: writes that are each followed by
    `fdatasync`."""
    flushed = {"records": 1, "value_bytes": 100, "connections": 1, "configs": {"flush.messages": "1"}}
    alone = produce(bench, in_flight=1, requests=2_000, **flushed)
    together = produce(bench, in_flight=16, requests=16_000, **flushed)
    frame = produce_frame("bench-0123456789ab", 0, records=1, value_bytes=100)
    limit = fsync_rate(bench.directory, size=len(frame), count=bench.count(2_000))
    return {
        "requests_s": alone["requests_s"],
        "limit_s": limit,
        "ratio": alone["requests_s"] / limit,
        "together_s": together["requests_s"],
        "together_ratio": together["requests_s"] / limit,
    }


def produce_one_record(bench: Bench) -> dict[str, float]:
    """Small requests under load, beside an echo server that answers the same bytes one request at a time."""
    figures = produce(bench, records=1, value_bytes=100, connections=8, in_flight=8, requests=120_000)
    frame = produce_frame("bench-0123456789ab", 0, records=1, value_bytes=100)
    count = bench.count(120_000)
    single = echo_cpu_us(bench.options, frame=frame, connections=8, in_flight=1, count=count, each_frame=True)
    pipelined = echo_cpu_us(bench.options, frame=frame, connections=8, in_flight=8, count=count, each_frame=True)
    return {
        **figures,
        "limit_cpu_us": single,
        "ratio": figures["cpu_us"] / single,
        "limit_pipelined_cpu_us": pipelined,
        "ratio_pipelined": figures["cpu_us"] / pipelined,
    }


def produce_ping_pong(bench: Bench) -> dict[str, float]:
    return produce(bench, records=1, value_bytes=100, connections=1, in_flight=1, requests=10_000)


def fill(bench: Bench, topic: str, partition: int, *, log_bytes: int, batch_bytes: int) -> None:
    """Write about so many bytes of records to a partition."""
    records = values_in(batch_bytes)
    frame = produce_frame(topic, partition, records=records, value_bytes=VALUE_BYTES)
    batches = 2 + log_bytes // (records * VALUE_BYTES)
    run_load(bench.broker.bootstrap, [frame], in_flight=1, requests=batches, check=check_produced)


def fetched(
    bench: Bench, *, partitions: int, partition_bytes: int, in_flight: int, requests: int
) -> tuple[dict[str, float], bytes, int]:
    """Fetch the same records from the page cache again and again. Returns the figures, the request, and the size of an
    answer."""
    with filled_topic(bench, partitions=partitions, partition_bytes=partition_bytes) as topic:
        frame = fetch_frame(topic, list(range(partitions)), partition_bytes=partition_bytes)
        figures, answer_bytes = fetched_again(
            bench, frame, at_least=partitions * partition_bytes // 2, in_flight=in_flight, requests=requests
        )
    return figures, frame, answer_bytes


@contextmanager
def filled_topic(bench: Bench, *, partitions: int, partition_bytes: int) -> Iterator[str]:
    """A context with a topic that has more than ``partition_bytes`` of records in each partition."""
    with bench.topic(partitions) as topic:
        for number in range(partitions):
            fill(bench, topic, number, log_bytes=partition_bytes, batch_bytes=min(partition_bytes, 128 * 1024))
        yield topic


def fetched_again(
    bench: Bench, frame: bytes, *, at_least: int, in_flight: int, requests: int
) -> tuple[dict[str, float], int]:
    """Send the same Fetch request again and again. Returns the figures and the size of an answer; fails below
    ``at_least`` bytes of records."""
    sizes: list[int] = []

    def check(answer: bytes) -> None:
        check_fetched(answer, at_least)
        sizes.append(len(answer))

    before = bench.broker.cpu_seconds()
    count = bench.count(requests)
    sample = run_load(bench.broker.bootstrap, [frame], in_flight=in_flight, requests=count, check=check)
    cpu = bench.broker.cpu_seconds() - before
    return _figures(sample, sample.received_bytes, cpu), sizes[0]


def fetch(bench: Bench, *, partitions: int, partition_bytes: int, in_flight: int, requests: int) -> dict[str, float]:
    """Throughput of fetches from the page cache, beside `sendfile` of as many bytes an answer."""
    figures, frame, answer_bytes = fetched(
        bench, partitions=partitions, partition_bytes=partition_bytes, in_flight=in_flight, requests=requests
    )
    limit = plain_sendfile(
        bench.directory,
        bench.options,
        size=answer_bytes - 100,
        header=96,
        request=frame,
        in_flight=in_flight,
        count=bench.count(requests),
    )
    limit_mb_s = limit.received_bytes / limit.seconds / MEGABYTE
    return {**figures, "limit_mb_s": limit_mb_s, "ratio": figures["mb_s"] / limit_mb_s}


def fetch_64kb(bench: Bench) -> dict[str, float]:
    return fetch(bench, partitions=1, partition_bytes=64 * 1024, in_flight=2, requests=30_000)


def fetch_1mb(bench: Bench) -> dict[str, float]:
    return fetch(bench, partitions=1, partition_bytes=1024 * 1024, in_flight=2, requests=6_000)


def fetch_16_partitions(bench: Bench) -> dict[str, float]:
    return fetch(bench, partitions=16, partition_bytes=64 * 1024, in_flight=2, requests=5_000)


def latency(bench: Bench, *, requests: int = LATENCIES) -> dict[str, float]:
    """The latency of 1,000 one-record requests a second with acks=all, in microseconds from the moment at which each
    was due."""
    with bench.topic(1) as topic:
        frame = produce_frame(topic, 0, records=1, value_bytes=100)
        count = bench.count(requests)
        latencies = run_paced(bench.broker.bootstrap, [frame], rate=1_000, requests=count)
        stored = bench.end_offsets(topic, 1)
    if stored != count + 1:
        raise LoadFailed(f"{count + 1} records were acknowledged, the log holds {stored}")
    return percentiles(latencies)


def percentiles(latencies_s: list[float]) -> dict[str, float]:
    """Percentiles in microseconds, of latencies in seconds."""
    in_order = sorted(latencies_s)

    def at(share: float) -> float:
        return in_order[min(len(in_order) - 1, int(len(in_order) * share))] * 1e6

    mean_us = statistics.fmean(in_order) * 1e6
    return {"p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999), "mean_us": mean_us}


def _figures(sample: Sample, payload_bytes: int, cpu_seconds: float) -> dict[str, float]:
    return {
        "requests_s": sample.rate,
        "mb_s": payload_bytes / sample.seconds / MEGABYTE,
        "cpu_us": cpu_seconds / sample.requests * 1e6,
        "cpu_s_gb": cpu_seconds / (payload_bytes / 1e9),
        "cores": cpu_seconds / sample.seconds,
        "generator_cores": sample.generator_seconds / sample.seconds,
    }
