"""Cases of consumer groups: commits a second and the time of a rebalance, for the broker and for Apache Kafka."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

from bench.conversation import CLIENT_ID
from bench.group_members import Group, expect_success
from bench.load import LoadFailed, run_load, run_paced
from bench.newer_members import NewerGroup
from bench.raw_cases import Bench
from protocol.headers import decode_response, encode_request
from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetCommitResponse

COMMIT_VERSION: Final = 9
"""The newest version that names topics, as most clients use it."""
OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 50
"""The partitions of `__consumer_offsets`."""

COMMITTERS: Final = 8
MANY: Final = 50
"""Partitions of a larger topic for which a consumer commits in one request."""
PACED_RATE: Final = 500

SIZES: Final = {2: 200, 20: 40, 200: 6}
"""By group size: how many times a group grows to that size and shrinks again."""

NEWER_SIZES: Final = {2: 100, 20: 20, 200: 4}
"""The same for groups of the newer protocol (KIP-848)."""
FORMED: Final = 5
"""How often each of these groups is formed: the first on a broker has its imports in its time."""
NEWER_PARTITIONS: Final = 200
"""Of the topic that these groups read."""

Figures = dict[str, float]


def beside_kafka(bench: Bench, name: str, measure: Callable[[Bench], Figures]) -> Figures:
    """The broker's figures. If Apache Kafka is at hand, also its figures with the prefix ``kafka_``, and for each pair
    a ratio, which is above 1 where our broker is faster."""
    figures = measure(bench)
    kafka = bench.rival.warmed_up(name, lambda broker: measure(replace(bench, broker=broker, scale=bench.scale / 10)))
    if kafka is None:
        return figures
    kafkas = measure(replace(bench, broker=kafka))
    ratios = {
        f"{figure}_ratio": kafkas[figure] / ours if figure.endswith(("_ms", "_us")) else ours / kafkas[figure]
        for figure, ours in figures.items()
    }
    return {**figures, **{f"kafka_{figure}": value for figure, value in kafkas.items()}, **ratios}


# Commits --------------------------------------------------------------------------------------------------------------


def commits(bench: Bench) -> Figures:
    """Commits a second of members that are alone in their groups, a connection each: of one partition
    on a single connection, with one and with eight requests in flight on every connection, and of 50 partitions at
    once; and the latency of a commit at 500 a second."""
    return beside_kafka(bench, "commits", _commits)


def _commits(bench: Bench) -> Figures:
    with _committers(bench, MANY) as (topic, groups):
        of_one = [commit_frame(group, topic, [number]) for number, group in enumerate(groups)]
        of_many = [commit_frame(group, topic, list(range(MANY))) for group in groups[: COMMITTERS // 2]]
        alone, _ = _committed(bench, of_one[:1], in_flight=1, requests=8_000, partitions=1)
        together, _ = _committed(bench, of_one, in_flight=1, requests=50_000, partitions=1)
        pipelined, pipelined_cpu_us = _committed(bench, of_one, in_flight=8, requests=100_000, partitions=1)
        large, large_cpu_us = _committed(bench, of_many, in_flight=2, requests=8_000, partitions=MANY)
        latencies = sorted(
            run_paced(bench.broker.bootstrap, of_one[:1], rate=PACED_RATE, requests=bench.count(4 * PACED_RATE))
        )
    return {
        "alone_s": alone,
        "together_s": together,
        "pipelined_s": pipelined,
        "pipelined_cpu_us": pipelined_cpu_us,
        "of_50_s": large,
        "of_50_cpu_us": large_cpu_us,
        "p50_us": latencies[len(latencies) // 2] * 1e6,
        "p99_us": latencies[int(len(latencies) * 0.99)] * 1e6,
    }


def pipelined(bench: Bench, *, requests: int) -> Figures:
    """Commits of one partition a second, and the broker's CPU microseconds for a commit: members that are alone in
    their groups, a connection each with eight requests in flight."""
    with _committers(bench, COMMITTERS) as (topic, groups):
        frames = [commit_frame(group, topic, [number]) for number, group in enumerate(groups)]
        rate, cpu_us = _committed(bench, frames, in_flight=8, requests=requests, partitions=1)
    return {"commits_s": rate, "cpu_us": cpu_us}


@contextmanager
def _committers(bench: Bench, partitions: int) -> Iterator[tuple[str, list[Group]]]:
    """A new topic, and members that are alone in their groups."""
    with bench.topic(partitions) as topic, ExitStack() as stack:
        groups = [
            stack.enter_context(Group(bench.broker.bootstrap, f"bench-commits-{number}", topic))
            for number in range(COMMITTERS)
        ]
        for group in groups:
            group.form(1)
        yield topic, groups


def _committed(
    bench: Bench, frames: list[bytes], *, in_flight: int, requests: int, partitions: int
) -> tuple[float, float]:
    """Requests a second, and the broker's CPU microseconds for a request. Checks that each request has written a record
    for each of its partitions."""
    before = bench.end_offsets(OFFSETS_TOPIC, OFFSETS_PARTITIONS)
    cpu = bench.broker.cpu_seconds()
    count = bench.count(requests)
    sample = run_load(bench.broker.bootstrap, frames, in_flight=in_flight, requests=count, check=check_committed)
    cpu = bench.broker.cpu_seconds() - cpu
    stored = bench.end_offsets(OFFSETS_TOPIC, OFFSETS_PARTITIONS) - before
    expected = (sample.requests + len(frames)) * partitions
    if stored != expected:
        raise LoadFailed(f"{expected} offsets were acknowledged, {OFFSETS_TOPIC} holds {stored} more than before")
    return sample.rate, cpu / sample.requests * 1e6


def commit_frame(group: Group, topic: str, partitions: list[int]) -> bytes:
    """The bytes of an OffsetCommit request of a group's first member, size included."""
    member = group.members[0]
    asked = OffsetCommitRequest.Topic
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=[
            asked(
                name=topic,
                partitions=[
                    asked.Partition(partition_index=number, committed_offset=1_000_000 + number)
                    for number in partitions
                ],
            )
        ],
    )
    return encode_request(0, CLIENT_ID, request, COMMIT_VERSION)


def check_committed(answer: bytes) -> None:
    _, response = decode_response(OffsetCommitResponse, COMMIT_VERSION, memoryview(answer)[4:])
    for topic in response.topics:
        for partition in topic.partitions:
            expect_success(partition.error_code, "OffsetCommit")


# Rebalances -----------------------------------------------------------------------------------------------------------


def rebalances(bench: Bench) -> Figures:
    """Milliseconds until every member of a group has its assignment: of 2, 20 and 200 members that join an empty group
    at once (`form`), after one more member joins (`join`) and after it leaves (`leave`). Medians."""
    return beside_kafka(bench, "rebalances", _rebalances)


def _rebalances(bench: Bench) -> Figures:
    figures: Figures = {}
    for size, times in SIZES.items():
        with Group(bench.broker.bootstrap, f"bench-rebalances-{size}", "bench") as group:
            figures[f"form_{size}_ms"] = group.form(size) * 1000
            left, joined = [], []
            for _ in range(max(2, int(times * bench.scale))):
                left.append(group.remove_member())
                joined.append(group.add_member())
        figures[f"join_{size}_ms"] = statistics.median(joined) * 1000
        figures[f"leave_{size}_ms"] = statistics.median(left) * 1000
    return figures


def newer_rebalances(bench: Bench) -> Figures:
    """The same for groups of the newer protocol (KIP-848): until the members are in one epoch and have all 200
    partitions of a topic between them; and the broker's CPU for a heartbeat while members join and leave (`cpu`)."""
    return beside_kafka(bench, "newer-rebalances", _newer_rebalances)


def _newer_rebalances(bench: Bench) -> Figures:
    figures: Figures = {}
    with bench.topic(NEWER_PARTITIONS) as topic:
        for size, times in NEWER_SIZES.items():
            name = f"bench-newer-{size}"
            formed, left, joined = [], [], []
            heartbeats, cpu_s = 0, 0.0
            for _ in range(FORMED):
                with NewerGroup(bench.broker.bootstrap, name, topic, NEWER_PARTITIONS) as group:
                    formed.append(group.form(size))
                    heartbeats -= group.heartbeats
                    cpu_s -= bench.broker.cpu_seconds()
                    for _ in range(max(2, int(times * bench.scale / FORMED))):
                        left.append(group.remove_member())
                        joined.append(group.add_member())
                    heartbeats += group.heartbeats
                    cpu_s += bench.broker.cpu_seconds()
            figures[f"cpu_{size}_us"] = cpu_s / heartbeats * 1e6
            figures[f"form_{size}_ms"] = statistics.median(formed) * 1000
            figures[f"join_{size}_ms"] = statistics.median(joined) * 1000
            figures[f"leave_{size}_ms"] = statistics.median(left) * 1000
    return figures
