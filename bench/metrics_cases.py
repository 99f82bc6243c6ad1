"""Cases of metrics: the CPU of counters at every request, the time of a large scrape, and its effect on requests."""

from __future__ import annotations

import contextlib
import http.client
import socket
import statistics
import sys
import time
from pathlib import Path

from bench import request_cpu
from bench.checkout import checkout_of, resolved
from bench.conversation import (
    CLIENT_ID,
    TOPIC_EXISTS_SOON_S,
    BrokerRefused,
    Conversation,
    address_of,
    produce_frame,
)
from bench.group_cases import COMMIT_VERSION
from bench.partition_cases import produce_to_all
from bench.processes import REPOSITORY, Disturber, OwnBroker, cpu_seconds, memory_mb
from protocol.headers import decode_response, encode_request
from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse

BEFORE_METRICS = "52f89ce11c0dd058492a07449aa8682f5c65d6e8"
"""The last commit without counters of requests."""

PARTITIONS = 5_000
GROUPS = 500
PARTITIONS_OF_GROUP = 100
SCRAPES = 9
PACED_RATE = 500
PACED_S = 8.0
PACED_LEAST_S = 2.0
"""Two scrapes, at whatever scale."""


def counters(directory: Path, scale: float) -> dict[str, float]:
    """CPU of a one-record request with and without the counters of metrics, in interleaved pairs: for the broker of
    this checkout, and for that of the last commit without them, from this checkout's history; neither is compiled. Not
    a number without history.
    """
    if resolved(BEFORE_METRICS) is None:
        sys.stderr.write(f"counters: left out, since commit {BEFORE_METRICS} is not in the history of this checkout\n")
        return {"ratio": float("nan")}
    with checkout_of(BEFORE_METRICS, directory / "before") as before:
        checkouts = {"with": REPOSITORY, "without": before}
        return request_cpu.in_pairs(lambda name, data: _sample(checkouts[name], data), directory, scale)


def _sample(checkout: Path, directory: Path) -> request_cpu.Sample:
    with contextlib.closing(OwnBroker(directory, packages=checkout)) as broker:
        return request_cpu.sample(broker, directory)


def scrape(directory: Path, scale: float) -> dict[str, float]:
    """The time of a metrics page of 5,000 partitions; and the latency of one-record requests of another client while
    the page is scraped once a second, and without scrapes."""
    metrics = f"127.0.0.1:{_free_port()}"
    with (
        contextlib.closing(OwnBroker(directory, settings={"ottla.prometheus.listener": metrics})) as broker,
        Conversation(broker.bootstrap) as client,
    ):
        client.create_topic("many", partitions=PARTITIONS)
        client.create_topic("paced", partitions=1)
        topics = client.ask(MetadataRequest(topics=None), MetadataResponse).topics
        (topic_id,) = (topic.topic_id for topic in topics if topic.name == "many")
        produce_to_all(client, "many", topic_id, PARTITIONS)
        return _page_figures(broker, metrics, seconds=max(PACED_LEAST_S, PACED_S * scale))


def scrape_lag(directory: Path, scale: float) -> dict[str, float]:
    """The same figures as `scrape`, for 500 groups with committed offsets of 100 partitions each."""
    metrics = f"127.0.0.1:{_free_port()}"
    with (
        contextlib.closing(OwnBroker(directory, settings={"ottla.prometheus.listener": metrics})) as broker,
        Conversation(broker.bootstrap) as client,
    ):
        client.create_topic("read", partitions=PARTITIONS_OF_GROUP)
        client.create_topic("paced", partitions=1)
        for number in range(GROUPS):
            _commit(client, f"bench-scrape-{number}", "read", PARTITIONS_OF_GROUP)
        return _page_figures(broker, metrics, seconds=max(PACED_LEAST_S, PACED_S * scale))


def _commit(client: Conversation, group_id: str, topic: str, partitions: int) -> None:
    """Commit an offset for each partition; the first commit waits until there is a coordinator."""
    place = OffsetCommitRequest.Topic
    offsets = [place.Partition(partition_index=index, committed_offset=index) for index in range(partitions)]
    commit = OffsetCommitRequest(group_id=group_id, topics=[place(name=topic, partitions=offsets)])
    deadline = time.monotonic() + TOPIC_EXISTS_SOON_S
    while time.monotonic() < deadline:
        client.ask(FindCoordinatorRequest(coordinator_keys=[group_id]), FindCoordinatorResponse)
        answer = client.exchange(encode_request(0, CLIENT_ID, commit, COMMIT_VERSION))
        (answered,) = decode_response(OffsetCommitResponse, COMMIT_VERSION, answer)[1].topics
        if not any(partition.error_code for partition in answered.partitions):
            return
        time.sleep(0.01)
    raise BrokerRefused(f"{group_id} cannot commit after {TOPIC_EXISTS_SOON_S} s")


def _page_figures(broker: OwnBroker, metrics: str, *, seconds: float) -> dict[str, float]:
    """The time and CPU of a metrics page; and the latencies of requests of another client while it is scraped, and
    without scrapes."""
    before_mb = memory_mb(broker.pid)[0]
    _page(metrics)
    before = cpu_seconds(broker.pid)
    took, sizes = zip(*[_timed_page(metrics) for _ in range(SCRAPES)], strict=True)
    cpu_s = (cpu_seconds(broker.pid) - before) / SCRAPES
    alone = _paced(broker, seconds)
    with Disturber("scrape", "--bootstrap", metrics):
        beside = _paced(broker, seconds)
    return {
        "scrape_s": statistics.median(took),
        "slowest_s": max(took),
        "cpu_s": cpu_s,
        "page_mb": sizes[0] / 1e6,
        "memory_mb": memory_mb(broker.pid)[1] - before_mb,
        "p99_us": beside[int(0.99 * len(beside))] * 1e6,
        "alone_p99_us": alone[int(0.99 * len(alone))] * 1e6,
        "longest_ms": beside[-1] * 1e3,
        "alone_longest_ms": alone[-1] * 1e3,
    }


def _page(metrics: str) -> bytes:
    with contextlib.closing(http.client.HTTPConnection(metrics, timeout=30)) as connection:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        content = answer.read()
    assert answer.status == 200, content
    return content


def _timed_page(metrics: str) -> tuple[float, int]:
    started = time.perf_counter()
    content = _page(metrics)
    return time.perf_counter() - started, len(content)


def _paced(broker: OwnBroker, seconds: float) -> list[float]:
    """Latencies in seconds of 500 requests a second for so many seconds, as their client sees them; sorted."""
    frame = produce_frame("paced", 0, records=1, value_bytes=100)
    latencies: list[float] = []
    with socket.create_connection(address_of(broker.bootstrap)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            time.sleep(max(len(latencies) / PACED_RATE - elapsed, 0))
            asked = time.perf_counter()
            connection.sendall(frame)
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            connection.recv(size, socket.MSG_WAITALL)
            latencies.append(time.perf_counter() - asked)
    return sorted(latencies)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
