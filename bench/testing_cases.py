"""Case: a broker for tests: how long it takes to start, to begin anew and to be copied, and a suite of small tests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from multiprocessing import Process
from pathlib import Path
from statistics import median
from typing import Final

from bench.conversation import Conversation, fetch_frame, produce_frame
from bench.processes import cpu_seconds, wait_until_answering
from dev.apache_kafka import ApacheKafka
from dev.busy import spin
from dev.kafka_jars import NoKafka, libraries
from ottla.testing import Broker

TESTS: Final = 100
BUSY: Final = 4
STARTS: Final = 10
RESETS: Final = 30
FORKS: Final = 5
FILLED_BYTES: Final = 1_000_000_000
RECORDS: Final = 10
TOPIC: Final = "orders"

KAFKA_SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}


def testing(directory: Path, scale: float) -> dict[str, float]:
    """Milliseconds and CPU milliseconds of a start (up to the first answer), a reset and forks, and seconds of `TESTS`
    small tests; the same beside `BUSY` processes that do nothing but work (`busy_`). Apache Kafka starts and deletes
    the topics between its tests."""
    figures = {}
    for prefix, others in (("", 0), ("busy_", BUSY)):
        with _busy(others):
            ours = _of_ours(scale)
            figures |= {f"{prefix}{name}": value for name, value in ours.items()}
            with contextlib.suppress(NoKafka):
                kafkas = _of_kafka(directory / f"{prefix}kafka", scale)
                figures |= {f"{prefix}kafka_{name}": value for name, value in kafkas.items()}
                figures[f"{prefix}suite_ratio"] = kafkas["suite_s"] / ours["suite_s"]
    return figures


def _of_ours(scale: float) -> dict[str, float]:
    times = max(int(STARTS * scale), 1)
    began = time.perf_counter()
    with Broker() as first:  # it also starts the process that forks the others
        wait_until_answering(first.bootstrap_servers)
        first_start_s = time.perf_counter() - began
        starts, start_cpus = zip(*(_start() for _ in range(times)), strict=True)
        fork_ms = median(_fork(first) for _ in range(max(int(FORKS * scale), 1)))
        cpu_s = cpu_seconds(first.process_id)
        resets = [_milliseconds(first.reset) for _ in range(max(int(RESETS * scale), 1))]
        reset_cpu_ms = (cpu_seconds(first.process_id) - cpu_s) * 1000 / len(resets)
        suite_s = _seconds(lambda: _suite_of_ours(first, scale))
        first.reset()
        _fill(first, int(FILLED_BYTES * scale))
        filled_fork_ms = median(_fork(first) for _ in range(max(int(FORKS * scale), 1)))
    return {
        "first_start_ms": first_start_s * 1000,
        "start_ms": median(starts),
        "start_cpu_ms": median(start_cpus),
        "reset_ms": median(resets),
        "reset_cpu_ms": reset_cpu_ms,
        "fork_ms": fork_ms,
        "filled_fork_ms": filled_fork_ms,
        "suite_s": suite_s / scale,
    }


def _of_kafka(directory: Path, scale: float) -> dict[str, float]:
    kafka = ApacheKafka(directory, settings=KAFKA_SETTINGS, port=0, libraries=str(libraries()))
    began = time.perf_counter()
    kafka.start()
    try:
        wait_until_answering(kafka.bootstrap)
        start_s = time.perf_counter() - began
        start_cpu_s = cpu_seconds(kafka.process.pid)
        return {
            "start_ms": start_s * 1000,
            "start_cpu_ms": start_cpu_s * 1000,
            "suite_s": _seconds(lambda: _suite_of_kafka(kafka.bootstrap, scale)) / scale,
        }
    finally:
        kafka.kill()


def _start() -> tuple[float, float]:
    """Milliseconds of a start up to the first answer, and the CPU milliseconds of the process by then."""
    began = time.perf_counter()
    with Broker() as broker:
        wait_until_answering(broker.bootstrap_servers)
        return (time.perf_counter() - began) * 1000, cpu_seconds(broker.process_id) * 1000


def _fork(broker: Broker) -> float:
    """Milliseconds until a fork answers."""
    began = time.perf_counter()
    with broker.fork() as fork:
        wait_until_answering(fork.bootstrap_servers)
        return (time.perf_counter() - began) * 1000


def _suite_of_ours(broker: Broker, scale: float) -> None:
    for _ in range(max(int(TESTS * scale), 1)):
        broker.reset()
        with Conversation(broker.bootstrap_servers) as client:
            _small_test(client, TOPIC)


def _suite_of_kafka(bootstrap: str, scale: float) -> None:
    for number in range(max(int(TESTS * scale), 1)):
        with Conversation(bootstrap) as client:
            # A deleted topic's name is not free at once.
            _small_test(client, f"{TOPIC}-{number}")
            client.delete_topic(f"{TOPIC}-{number}")


def _small_test(client: Conversation, topic: str) -> None:
    """A topic of three partitions, a few records in each, and all of them read."""
    client.create_topic(topic, partitions=3)
    for partition in range(3):
        client.exchange(produce_frame(topic, partition, records=RECORDS, value_bytes=100))
    client.exchange(fetch_frame(topic, [0, 1, 2], partition_bytes=1 << 20))
    assert client.end_offsets(topic, 3) == 3 * RECORDS


def _fill(broker: Broker, size: int) -> None:
    frame = produce_frame(TOPIC, 0, records=990, value_bytes=1_000)
    with Conversation(broker.bootstrap_servers) as client:
        client.create_topic(TOPIC, partitions=1)
        for _ in range(max(size // len(frame), 1)):
            client.exchange(frame)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _milliseconds(work: Callable[[], object]) -> float:
    return _seconds(work) * 1000


@contextlib.contextmanager
def _busy(processes: int) -> Iterator[None]:
    """Beside so many processes that keep processors busy."""
    spinning = [Process(target=spin, daemon=True) for _ in range(processes)]
    for process in spinning:
        process.start()
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.join()
