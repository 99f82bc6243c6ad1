"""Metrics of the process: state, disk reads and writes, memory; and of the node, under kafka_exporter's names."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from broker.metrics.series import Family, Reading, Samples, gauge, one, read
from broker.metrics.sources import MetricSources


def _of_server(name: str, help: str) -> Family:
    metric = name.lower().replace("-", "_")
    return gauge(f"kafka_server_kafkaserver_{metric}", help, bean=f"kafka.server:type=KafkaServer,name={name}")


def _io_counts() -> dict[str, int]:
    """What the system has counted of this process's reads and writes, by its names; empty where it counts nothing."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return {}
    return {name: int(number) for name, _, number in (line.partition(":") for line in lines)}


_READINGS: Final = (
    Reading(
        _of_server("BrokerState", "1 starting, 2 opening and recovering logs, 3 running, 6 stopping"),
        lambda sources: sources.state(),
    ),
    Reading(
        gauge(
            "kafka_server_app_info_start_time_ms",
            "When the process started, in milliseconds since 1970",
            bean="kafka.server:type=app-info,id=*",
        ),
        lambda sources: sources.clock.now_ms() - (sources.clock.monotonic_ms() - sources.started_ms),
    ),
    Reading(
        gauge("jvm_threads_current", "Threads of the process, where boards look for Java's"),
        lambda _: threading.active_count(),
    ),
)
_IO: Final = {
    "read_bytes": _of_server("linux-disk-read-bytes", "Bytes read from disks"),
    "write_bytes": _of_server("linux-disk-write-bytes", "Bytes written to disks"),
    "cancelled_write_bytes": _of_server(
        "linux-disk-cancelled-write-bytes", "Bytes that were not written because their file was cut or removed before"
    ),
    "rchar": _of_server("linux-disk-rchar", "Bytes read by system calls, from the page cache, sockets and pipes too"),
    "wchar": _of_server("linux-disk-wchar", "Bytes written by system calls, to the page cache, sockets and pipes too"),
    "syscr": _of_server("linux-disk-syscr", "System calls that read"),
    "syscw": _of_server("linux-disk-syscw", "System calls that write"),
}
"""By the names of `/proc/self/io`."""
_FAMILIES: Final = _of_server("yammer-metrics-count", "Families of metrics that the broker knows")
_BROKERS: Final = gauge("kafka_brokers", "Brokers that are registered")
_BROKER: Final = gauge("kafka_broker_info", "1 for each broker", "id", "address")
_MEMORY_USED: Final = tuple(
    gauge(name, "Resident memory of the process, where boards look for Java's heap", "area")
    for name in ("jvm_memory_used_bytes", "jvm_memory_bytes_used")
)
_MEMORY_MOST: Final = tuple(
    gauge(name, "Memory of this machine, where boards look for the most that Java's heap may have", "area")
    for name in ("jvm_memory_max_bytes", "jvm_memory_bytes_max")
)
_HEAP: Final = "heap"
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Server:
    """Reads the process and the node."""

    families: tuple[Family, ...] = (
        *[reading.family for reading in _READINGS], *_IO.values(), _FAMILIES, _BROKERS, _BROKER,
        *_MEMORY_USED, *_MEMORY_MOST,
    )  # fmt: skip

    def __init__(self, sources: MetricSources, *, known: int) -> None:
        """``known``: how many families there are."""
        self._sources = sources
        self._known = known

    def collect(self) -> Iterator[Samples]:
        yield from read(_READINGS, self._sources)
        counts = _io_counts()
        for name, family in _IO.items():
            yield one(family, counts.get(name, 0))
        yield one(_FAMILIES, self._known)
        yield from self._memory()
        brokers = self._sources.metadata.image.cluster.brokers
        if brokers:
            yield one(_BROKERS, len(brokers))
            yield Samples(
                _BROKER,
                [
                    ((str(broker.broker_id), f"{endpoint.host}:{endpoint.port}"), 1)
                    for broker in brokers.values()
                    for endpoint in broker.end_points[:1]
                ],
            )

    def _memory(self) -> Iterator[Samples]:
        try:
            used = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
        except OSError:
            return
        for family in _MEMORY_USED:
            yield Samples(family, [((_HEAP,), used)])
        for family in _MEMORY_MOST:
            yield Samples(family, [((_HEAP,), os.sysconf("SC_PHYS_PAGES") * _PAGE)])
