"""Workloads of consumer groups: twenty consumers that commit what they have read, and commits alone."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from bench import group_cases, librdkafka
from bench.conversation import CLIENT_ID, Conversation
from bench.group_members import expect_success
from bench.group_start_cases import FETCH_VERSION
from bench.load import LoadFailed
from bench.side_by_side.verified import VerifiedBench
from bench.side_by_side.workload import CPU_US, CPU_US_RECORD, RECORDS_S, Figures, Row, Workload
from protocol.headers import decode_response, encode_request
from protocol.messages.committed_offsets import OffsetFetchRequest, OffsetFetchResponse

MEMBERS: Final = 20
RECORDS: Final = 200_000
VALUE_BYTES: Final = 100
AT_ONCE: Final = 500
"""Records after which a member commits and waits for the answer."""
FORMS_SOON_S: Final = 60.0
COMMITS_S: Final = Row("commits_s", "commits/s", True)


def _consume_in_group(bench: VerifiedBench) -> Figures:
    """Throughput from a producer's first record until the last member has committed the last record."""
    from confluent_kafka import Consumer

    with bench.topic(MEMBERS) as topic:
        settings: dict[str, Any] = {
            "bootstrap.servers": bench.broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
        }
        members = [Consumer(settings) for _ in range(MEMBERS)]
        try:
            for member in members:
                member.subscribe([topic])
            _wait_until_assigned(members)
            count = bench.count(RECORDS)
            producing = threading.Thread(target=_produce, args=(bench, topic, count))
            cpu, started = bench.broker.cpu_seconds(), time.perf_counter()
            producing.start()
            commits = _read_and_commit(members, count)
            seconds = time.perf_counter() - started
            cpu = bench.broker.cpu_seconds() - cpu
            producing.join()
            committed = _committed(bench.broker.bootstrap, topic)
        finally:
            # All at once: each that leaves alone would have the others share out anew.
            with ThreadPoolExecutor(MEMBERS) as closing:
                list(closing.map(Consumer.close, members))
        if committed != count or bench.end_offsets(topic, MEMBERS) != count:
            raise LoadFailed(f"{count} records were read and committed, the group's offsets say {committed}")
    return {"records_s": count / seconds, "commits_s": commits / seconds, "cpu_us_record": cpu / count * 1e6}


def _produce(bench: VerifiedBench, topic: str, count: int) -> None:
    librdkafka.produce(
        bench.broker.bootstrap, topic, librdkafka.values(VALUE_BYTES), count, {}, partition=librdkafka.ANY_PARTITION
    )


def _wait_until_assigned(members: list[Any]) -> None:
    """Wait until each member has its one partition: at first, the first members have several."""
    deadline = time.monotonic() + FORMS_SOON_S
    while {len(member.assignment()) for member in members} != {1}:
        for member in members:
            member.poll(0.01)
        if time.monotonic() > deadline:
            raise LoadFailed(f"{MEMBERS} members had no assignment after {FORMS_SOON_S:.0f} s")


def _read_and_commit(members: list[Any], count: int) -> int:
    """Consume and commit. Returns the number of commits."""
    commits = 0
    left = count
    progress_s = time.monotonic()
    while left:
        for member in members:
            if messages := member.consume(AT_ONCE, 0.001):
                if error := messages[-1].error():
                    raise LoadFailed(f"a member of the group was handed {error}")
                member.commit(asynchronous=False)
                commits += 1
                left -= len(messages)
                progress_s = time.monotonic()
        if time.monotonic() - progress_s > FORMS_SOON_S:
            raise LoadFailed(f"{left} of {count} records did not come to the group")
    return commits


def _committed(bootstrap: str, topic: str) -> int:
    """The sum of the offsets that the group has committed; the group has the name of its topic."""
    of_group = OffsetFetchRequest.Group
    asked = of_group.Topic(name=topic, partition_indexes=list(range(MEMBERS)))
    request = OffsetFetchRequest(groups=[of_group(group_id=topic, topics=[asked])])
    with Conversation(bootstrap) as conversation:
        answer = conversation.exchange(encode_request(0, CLIENT_ID, request, FETCH_VERSION))
    _, response = decode_response(OffsetFetchResponse, FETCH_VERSION, answer)
    (group,) = response.groups
    expect_success(group.error_code, "OffsetFetch")
    return sum(max(place.committed_offset, 0) for of_topic in group.topics for place in of_topic.partitions)


def workloads() -> list[Workload]:
    """The workloads of consumer groups, in the order of the page."""
    return [
        Workload(
            name="group-of-20",
            words="20 consumers in a group, commits",
            rows=(RECORDS_S, COMMITS_S, CPU_US_RECORD),
            seconds=3.0,
            around_s=8.0,
            written_mb=RECORDS * VALUE_BYTES / 1e6,
            measure=_consume_in_group,
        ),
        Workload(
            name="group-commits-8x8",
            words="commits of one partition, 8 x 8",
            rows=(COMMITS_S, CPU_US),
            seconds=3.0,
            measure=partial(group_cases.pipelined, requests=40_000),
        ),
    ]
