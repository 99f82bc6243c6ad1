"""Workloads of prepared requests from the bench's own load generator: produce, fetch, latency."""

from __future__ import annotations

import itertools
import socket
import time
from functools import partial
from typing import Final

from bench import raw_cases
from bench.conversation import Conversation, address_of, fetch_frame, produce_frame
from bench.disturbers import forget
from bench.librdkafka import Consumer
from bench.limits import MEGABYTE, echo_latencies
from bench.load import RECEIVE_BYTES, STALLED_S, LoadFailed, run_paced
from bench.raw_cases import values_in
from bench.side_by_side.verified import VerifiedBench, check_batches
from bench.side_by_side.workload import (
    CPU_S_GB,
    CPU_US,
    CPU_US_RECORD,
    ECHO_PERCENTILES,
    MB_S,
    PERCENTILES,
    REQUESTS_S,
    Figures,
    Workload,
)
from protocol.headers import decode_response
from protocol.messages.fetch import FetchResponse
from storage.batch.record_batch import FRAME, LOG_OVERHEAD, read_header

KB: Final = 1024
RATE: Final = 1_000
"""Records a second of the open-loop load."""
MANY_PARTITIONS: Final = 1_000


PRODUCED: Final = (
    # name, batches of so many bytes, connections, in flight on each, requests in each cycle
    ("raw-16kb", 16 * KB, 4, 4, 15_000),
    ("raw-16kb-1x1", 16 * KB, 1, 1, 4_000),
    ("raw-128kb", 128 * KB, 4, 2, 2_500),
    ("raw-128kb-1x1", 128 * KB, 1, 1, 1_250),
    ("raw-1mb", MEGABYTE, 2, 2, 350),
    ("raw-1mb-1x1", MEGABYTE, 1, 1, 200),
)
CYCLES: Final = 4
"""Topics that are filled and removed one after the other: the memory of a removed topic is still warm for the next."""


def _produce(name: str, batch_bytes: int, connections: int, in_flight: int, requests: int) -> Workload:
    size = "1 MB" if batch_bytes == MEGABYTE else f"{batch_bytes // KB} KB"
    return Workload(
        name=name,
        words=f"{size}, {connections} x {in_flight}",
        rows=(MB_S, CPU_S_GB),
        seconds=6.0,
        written_mb=requests * batch_bytes / MEGABYTE,
        measure=partial(
            raw_cases.produce,
            records=values_in(batch_bytes),
            value_bytes=raw_cases.VALUE_BYTES,
            connections=connections,
            in_flight=in_flight,
            requests=requests,
            cycles=CYCLES,
            lead_in=1,
        ),
        is_of_sockets=in_flight > 1,
        warms=in_flight > 1,
    )


def _fetch(
    name: str, words: str, *, partitions: int, partition_bytes: int, requests: int, in_flight: int = 2
) -> Workload:
    def measure(bench: VerifiedBench) -> Figures:
        figures, _, _ = raw_cases.fetched(
            bench, partitions=partitions, partition_bytes=partition_bytes, in_flight=in_flight, requests=requests
        )
        return figures

    return Workload(
        name=name, words=words, rows=(MB_S, CPU_S_GB), seconds=6.0, measure=measure, is_of_sockets=True, warms=True
    )


def _cold(name: str, words: str, *, partitions: int, partition_bytes: int, log_mb: int) -> Workload:
    return Workload(
        name=name,
        words=words,
        rows=(MB_S, CPU_S_GB),
        seconds=13.0,
        written_mb=log_mb,
        measure=partial(_read_cold, partitions=partitions, partition_bytes=partition_bytes, log_mb=log_mb),
    )


def _read_cold(bench: VerifiedBench, *, partitions: int, partition_bytes: int, log_mb: int) -> Figures:
    """One consumer reads logs that are not in the page cache from their beginnings; the CRC of every batch is
    checked."""
    with bench.topic(partitions) as topic:
        for number in range(partitions):
            log_bytes = int(log_mb * MEGABYTE * min(1.0, bench.scale)) // partitions
            raw_cases.fill(bench, topic, number, log_bytes=log_bytes, batch_bytes=16 * KB)
        for number in range(partitions):
            for path in (bench.data_directory / f"{topic}-{number}").glob("*.log"):
                forget(str(path))
        records = bench.end_offsets(topic, partitions)
        cpu, started = bench.broker.cpu_seconds(), time.perf_counter()
        received = 0
        with Conversation(bench.broker.bootstrap) as conversation:
            end = records // partitions
            offset = 0
            while offset < end:
                frame = fetch_frame(
                    topic, list(range(partitions)), partition_bytes=partition_bytes, fetch_offset=offset
                )
                answer = conversation.exchange(frame)
                received += len(answer)
                offset = _next_offset(answer, topic, partitions)
        seconds = time.perf_counter() - started
        cpu = bench.broker.cpu_seconds() - cpu
    return {"mb_s": received / seconds / MEGABYTE, "cpu_s_gb": cpu / (received / 1e9), "cores": cpu / seconds}


def _next_offset(answer: bytes, topic: str, partitions: int) -> int:
    """The next fetch offset of all partitions, which are alike."""
    _, response = decode_response(FetchResponse, 12, memoryview(answer))
    nexts = set()
    for of_topic in response.responses:
        for partition in of_topic.partitions:
            if partition.error_code:
                raise LoadFailed(f"Fetch failed with error {partition.error_code}")
            whole = whole_batches(memoryview(partition.records or b""))
            check_batches(whole, f"the answer for {topic}-{partition.partition_index}")
            nexts.add(_end_of(whole, f"{topic}-{partition.partition_index}"))
    if len(nexts) != 1:
        raise LoadFailed(f"{partitions} equal partitions were answered up to the offsets {sorted(nexts)}")
    return nexts.pop()


def whole_batches(records: memoryview) -> memoryview:
    """The whole batches at the beginning of an answer's records, which the limit may have cut inside a batch."""
    position = 0
    while position + LOG_OVERHEAD <= len(records):
        size = FRAME.unpack_from(records, position)[1] + LOG_OVERHEAD
        if position + size > len(records):
            break
        position += size
    return records[:position]


def _end_of(whole: memoryview, partition: str) -> int:
    """The offset behind the last of these batches. Raises `LoadFailed` without a batch."""
    if not whole:
        raise LoadFailed(f"Fetch brought no whole batch of {partition}")
    position = 0
    while (following := position + FRAME.unpack_from(whole, position)[1] + LOG_OVERHEAD) < len(whole):
        position = following
    return read_header(whole, position).next_offset


# Latency --------------------------------------------------------------------------------------------------------------


def _end_to_end(bench: VerifiedBench) -> Figures:
    """Latency from the moment at which a record is due to be sent until a consumer, which always has a Fetch waiting,
    receives it."""
    with bench.topic(1) as topic:
        count = bench.count(5 * RATE)
        frame = produce_frame(topic, 0, records=1, value_bytes=100)
        latencies = _EndToEnd(bench.broker.bootstrap, topic, frame).run(count)
    return raw_cases.percentiles(latencies)


class _EndToEnd:
    """A producer and a consumer in one busy loop, each with a connection of its own."""

    def __init__(self, bootstrap: str, topic: str, frame: bytes) -> None:
        self._topic = topic
        self._frame = frame
        self._producer, self._consumer = (socket.create_connection(address_of(bootstrap)) for _ in range(2))
        for connection in (self._producer, self._consumer):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._answer = bytearray()

    def run(self, count: int) -> list[float]:
        """Send ``count`` records. Returns latencies in seconds."""
        try:
            return self._run(count)
        finally:
            self._producer.close()
            self._consumer.close()

    def _run(self, count: int) -> list[float]:
        clock = time.perf_counter
        latencies: list[float] = []
        self._ask(0)
        started = last_progress = clock()
        asked = 0
        while len(latencies) < count:
            now = clock()
            if asked < count and now >= started + asked / RATE:
                self._producer.send(self._frame)
                asked += 1
            self._receive(self._producer)
            if size := self._receive(self._consumer):
                self._answer += self._buffer[:size]
                if (end := self._end_of_answer()) is not None:
                    last_progress = clock()
                    while len(latencies) < end:
                        latencies.append(last_progress - (started + len(latencies) / RATE))
                    self._ask(end)
            elif now - last_progress > STALLED_S:
                raise LoadFailed(f"no record came for {STALLED_S} s")
        return latencies

    def _receive(self, connection: socket.socket) -> int:
        try:
            size = connection.recv_into(self._buffer)
        except BlockingIOError:
            return 0
        if not size:
            raise LoadFailed("the broker closed the connection")
        return size

    def _ask(self, offset: int) -> None:
        self._consumer.send(fetch_frame(self._topic, [0], partition_bytes=1 << 20, fetch_offset=offset))

    def _end_of_answer(self) -> int | None:
        """The offset behind the last record of a complete answer; None while the answer is not complete."""
        answer = self._answer
        if len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            return None
        whole, self._answer = bytes(answer[4:]), bytearray()
        return _next_offset(whole, self._topic, 1)


def _many_partitions(bench: VerifiedBench) -> Figures:
    """A record a second to each of 1,000 partitions, and a consumer that reads all of them."""
    count = bench.count(5 * RATE)
    with bench.topic(MANY_PARTITIONS) as topic:
        bootstrap = bench.broker.bootstrap
        frames = [produce_frame(topic, number, records=1, value_bytes=100) for number in range(MANY_PARTITIONS)]
        with Consumer(bootstrap, topic, {}, partitions=MANY_PARTITIONS) as consumer:
            run_paced(bootstrap, frames, rate=RATE, requests=1)
            consumer.take(2)  # it has asked for everything once
            cpu = bench.broker.cpu_seconds()
            latencies = run_paced(bootstrap, frames, rate=RATE, requests=count)
            cpu = bench.broker.cpu_seconds() - cpu
            consumer.take(count + 1)
        if (stored := bench.end_offsets(topic, MANY_PARTITIONS)) != count + 3:
            raise LoadFailed(f"{count + 3} records were acknowledged, the logs hold {stored}")
    return {**raw_cases.percentiles(latencies), "cpu_us_record": cpu / count * 1e6}


def _latency_beside_echo(bench: VerifiedBench) -> Figures:
    """The latency of the broker, then of an echo server under the same load: the part of the latency that the machine
    causes."""
    figures = raw_cases.latency(bench)
    frame = produce_frame("echo", 0, records=1, value_bytes=100)
    echo = raw_cases.percentiles(
        echo_latencies(bench.options, frame=frame, rate=RATE, count=bench.count(raw_cases.LATENCIES))
    )
    return {**figures, "echo_p50_us": echo["p50_us"], "echo_p99_us": echo["p99_us"]}


def _one_record(name: str, words: str, *, connections: int, in_flight: int, requests: int) -> Workload:
    return Workload(
        name=name,
        words=f"{words}, {connections} x {in_flight}",
        rows=(REQUESTS_S, CPU_US),
        seconds=5.0,
        written_mb=requests * 200 / MEGABYTE,
        measure=partial(
            raw_cases.produce,
            records=1,
            value_bytes=100,
            connections=connections,
            in_flight=in_flight,
            requests=requests,
        ),
        warms=in_flight > 1,
    )


def workloads() -> list[Workload]:
    """The workloads of prepared requests, in the order of the page."""
    return [
        _one_record("raw-one-record-8x8", "one record", connections=8, in_flight=8, requests=120_000),
        _one_record("raw-one-record-1x1", "one record", connections=1, in_flight=1, requests=20_000),
        *itertools.starmap(_produce, PRODUCED),
        _fetch("fetch-64kb", "64 KB, 2 in flight", partitions=1, partition_bytes=64 * KB, requests=40_000),
        _fetch(
            "fetch-64kb-in-flight",
            "64 KB, 16 in flight",
            partitions=1,
            partition_bytes=64 * KB,
            requests=60_000,
            in_flight=16,
        ),
        _fetch("fetch-1mb", "1 MB, 2 in flight", partitions=1, partition_bytes=1024 * KB, requests=8_000),
        _fetch("fetch-16x64kb", "16 x 64 KB, 2 in flight", partitions=16, partition_bytes=64 * KB, requests=6_000),
        _cold("fetch-cold-64kb", "64 KB, cold", partitions=1, partition_bytes=64 * KB, log_mb=256),
        _cold("fetch-cold-1mb", "1 MB, cold", partitions=1, partition_bytes=1024 * KB, log_mb=512),
        _cold("fetch-cold-16x64kb", "16 x 64 KB, cold", partitions=16, partition_bytes=64 * KB, log_mb=512),
        Workload(
            name="latency",
            words="1,000 records/s: acknowledged",
            rows=(*PERCENTILES, *ECHO_PERCENTILES),
            seconds=10.0,
            measure=_latency_beside_echo,
            is_of_moments=True,
        ),
        Workload(
            name="latency-end-to-end",
            words="1,000 records/s: end to end",
            rows=PERCENTILES,
            seconds=5.0,
            measure=_end_to_end,
            is_of_moments=True,
        ),
        Workload(
            name="many-partitions",
            words="1,000 partitions, a record a second each: acknowledged",
            rows=(*PERCENTILES[:2], CPU_US_RECORD),
            seconds=5.0,
            around_s=6.0,
            measure=_many_partitions,
            is_of_moments=True,
        ),
    ]  # fmt: skip
