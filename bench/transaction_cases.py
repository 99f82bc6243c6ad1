"""Cases of transactions: how many are committed in a second, how long one takes, and what read_committed costs readers
of topics without transactions."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Final

from bench import librdkafka
from bench.conversation import READ_COMMITTED, READ_UNCOMMITTED, fetch_frame
from bench.librdkafka import TransactionalProducer
from bench.load import LoadFailed
from bench.raw_cases import Bench, fetched_again, filled_topic, percentiles

Figures = dict[str, float]

RECORD_BYTES: Final = 100
PRODUCERS: Final = 8
TRANSACTIONS: Final[dict[int, int]] = {10: 3_000, 1_000: 1_500}
"""Transactions of a sample, by records in each."""
COMMITS: Final = 1_500
"""Transactions of a latency sample."""
MOST_SECONDS: Final = 3.0
"""A sample ends after so many seconds, however many transactions it has committed."""
MARKERS_SOON_S: Final = 30.0

PAIRS: Final = 15
"""Samples of each isolation level. The difference is smaller than what single samples scatter."""
FETCHES: Final = {1: 2_000, 16: 250}
"""Requests of 64 KB a partition in a sample, by their partitions."""
PARTITION_BYTES: Final = 64 * 1024


def transactions(bench: Bench) -> Figures:
    """Transactions a second, with 10 and with 1,000 records in each: of one producer, and of eight at once, each with a
    partition of its own; and the latency of a transaction of one record."""
    figures: Figures = {}
    for records in TRANSACTIONS:
        for producers, together in ((1, ""), (PRODUCERS, "together_")):
            found = committed(bench, producers=producers, records=records)
            figures |= {f"of_{records}_{together}{name}": figure for name, figure in found.items()}
    return {**figures, **commit_latency(bench)}


def committed(bench: Bench, *, producers: int, records: int) -> Figures:
    """Transactions and records a second, and the broker's CPU microseconds for a transaction. Checks that every record
    and every marker is in the log."""
    payloads = librdkafka.values(RECORD_BYTES)[:records]
    with bench.topic(producers) as topic, ThreadPoolExecutor(producers) as threads, ExitStack() as stack:
        members = [stack.enter_context(_producer(bench, topic, number, payloads)) for number in range(producers)]
        list(threads.map(_start, members))
        each = max(1, bench.count(TRANSACTIONS[records]) // producers)
        cpu, started = bench.broker.cpu_seconds(), time.perf_counter()
        count = sum(map(len, threads.map(partial(_commit, most=each), members)))
        seconds = time.perf_counter() - started
        cpu = bench.broker.cpu_seconds() - cpu
        _check_end(bench, topic, producers, (count + producers) * (records + 1))
    return {
        "transactions_s": count / seconds,
        "records_s": count * records / seconds,
        "cpu_us": cpu / count * 1e6,
        "cores": cpu / seconds,
    }


def commit_latency(bench: Bench) -> Figures:
    """The latency of a transaction of one record, from its beginning until its commit is acknowledged, in microseconds;
    one after the other."""
    payloads = librdkafka.values(RECORD_BYTES)[:1]
    with bench.topic(1) as topic, _producer(bench, topic, 0, payloads) as producer:
        _start(producer)
        latencies = _commit(producer, most=bench.count(COMMITS))
        _check_end(bench, topic, 1, 2 * (len(latencies) + 1))
    found = percentiles(latencies)
    return {name: found[name] for name in ("p50_us", "p99_us")}


def _producer(bench: Bench, topic: str, number: int, payloads: list[bytes]) -> TransactionalProducer:
    return TransactionalProducer(bench.broker.bootstrap, topic, f"{topic}-{number}", payloads, partition=number)


def _start(producer: TransactionalProducer) -> None:
    """Start a producer and commit its first transaction: what is done once only is not measured."""
    producer.start()
    producer.commit()


def _commit(producer: TransactionalProducer, *, most: int) -> list[float]:
    """Commit one transaction after the other. Returns how many seconds each has taken."""
    clock = time.perf_counter
    latencies: list[float] = []
    stop_at = clock() + MOST_SECONDS
    while len(latencies) < most and (began := clock()) < stop_at:
        producer.commit()
        latencies.append(clock() - began)
    return latencies


def _check_end(bench: Bench, topic: str, partitions: int, records: int) -> None:
    """Wait until the last markers are written: a commit is acknowledged before that. Raises `LoadFailed` if the log
    does not end after so many records and markers."""
    deadline = time.monotonic() + MARKERS_SOON_S
    while (stored := bench.end_offsets(topic, partitions)) != records:
        if stored > records or time.monotonic() > deadline:
            raise LoadFailed(f"{records} records and markers of {topic} were committed, the log holds {stored}")
        time.sleep(0.001)


# Readers --------------------------------------------------------------------------------------------------------------


def isolation(bench: Bench) -> Figures:
    """Fetches under read_committed of a topic without transactions, and their CPU compared with fetches under
    read_uncommitted: of one partition, and of 16."""
    return {
        f"{prefix}{name}": figure
        for prefix, partitions in (("", 1), ("of_16_", 16))
        for name, figure in read_committed(bench, partitions=partitions).items()
    }


def read_committed(bench: Bench, *, partitions: int) -> Figures:
    """Throughput and CPU of the same fetches under both isolation levels, in interleaved samples on the same topic.
    `ratio` is the CPU of a gigabyte under read_committed to that under read_uncommitted, the median of all pairs."""
    with filled_topic(bench, partitions=partitions, partition_bytes=PARTITION_BYTES) as topic:
        samples: dict[int, list[Figures]] = {READ_COMMITTED: [], READ_UNCOMMITTED: []}
        for pair in range(PAIRS + 1):
            for level in samples if pair % 2 else reversed(samples):
                frame = fetch_frame(
                    topic, list(range(partitions)), partition_bytes=PARTITION_BYTES, isolation_level=level
                )
                figures, _ = fetched_again(
                    bench,
                    frame,
                    at_least=partitions * PARTITION_BYTES // 2,
                    in_flight=2,
                    requests=FETCHES[partitions],
                )
                samples[level].append(figures)
    mine, others = (of_level[1:] for of_level in samples.values())  # the first ones have warmed
    return {
        **_medians(mine),
        **{f"uncommitted_{name}": figure for name, figure in _medians(others).items()},
        "ratio": statistics.median(
            one["cpu_s_gb"] / other["cpu_s_gb"] for one, other in zip(mine, others, strict=True)
        ),
    }


def _medians(samples: list[Figures]) -> Figures:
    return {name: statistics.median(sample[name] for sample in samples) for name in ("mb_s", "cpu_s_gb")}
