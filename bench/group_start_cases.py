"""Case: the start of a broker with a million commits in `__consumer_offsets`, for the broker and for Apache Kafka."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench.conversation import CLIENT_ID, Conversation
from bench.group_cases import OFFSETS_PARTITIONS, OFFSETS_TOPIC
from bench.group_members import NOT_READY
from bench.load import LoadFailed
from bench.partition_cases import Bystander
from bench.processes import OwnBroker, cpu_seconds, memory_mb, wait_until_answering
from broker.coordinators.partitioning import partition_of
from dev.apache_kafka import ApacheKafka
from dev.kafka_jars import NoKafka, libraries
from protocol.headers import decode_response, encode_request
from protocol.messages.committed_offsets import OffsetFetchRequest, OffsetFetchResponse
from protocol.records.group_metadata import GroupRecord, OffsetCommitKey, OffsetCommitValue, encode_group_record
from storage.batch.pairs import encode_pairs
from storage.batch.record_batch import stamp

COMMITS: Final = 1_000_000
REPEATED: Final = (100, 10)
"""Groups, and partitions of each group, among which the million commits are spread in the repeated case."""
DISTINCT: Final = (10_000, 100)
TOPIC: Final = "orders"
OTHER_TOPIC: Final = "payments"
CLEANED: Final = re.compile(r"cleaned (\S+) from offset 0 to")
TOPIC_ID: Final = bytes(range(16))
FETCH_VERSION: Final = 9
"""The newest version that names topics, since the topic of the commits does not exist."""
LOADED_SOON_S: Final = 300.0
POLL_S: Final = 0.01


class Commit(NamedTuple):
    """A committed offset of a group for one partition of `TOPIC`."""

    group: str
    partition: int
    offset: int


def group_start(directory: Path, scale: float) -> dict[str, float]:
    """Seconds until a broker answers, and until it knows the offsets of every group; its CPU and memory at that time,
    and the longest wait of another client in between: with a million commits for the same thousand partitions
    (`repeated`), with what our cleaner leaves of them (`compacted`), and with a million commits for different
    partitions (`distinct`)."""
    count = max(math.prod(REPEATED), int(COMMITS * scale))
    figures: dict[str, float] = {}
    for name, spread, is_cleaned in (
        ("repeated", REPEATED, False),
        ("compacted", REPEATED, True),
        ("distinct", DISTINCT, False),
    ):
        stopped = directory / name
        _make_stopped(stopped, _commits(range(count), *spread))
        last = {commit.group: commit for commit in _commits(range(count), *spread)}
        asked = {partition_of(group, OFFSETS_PARTITIONS): commit for group, commit in last.items()}
        if is_cleaned:
            _clean(stopped, asked)
        ours = _on_a_copy(stopped, directory / "ours", lambda home, asked=asked: _start_of_ours(home, asked))
        figures |= {f"{name}_{figure}": value for figure, value in ours.items()}
        with contextlib.suppress(NoKafka):
            kafkas = _on_a_copy(stopped, directory / "kafka", lambda home, asked=asked: _start_of_kafka(home, asked))
            figures |= {f"kafka_{name}_{figure}": value for figure, value in kafkas.items()}
            figures[f"{name}_loaded_ratio"] = kafkas["loaded_s"] / ours["loaded_s"]
        shutil.rmtree(stopped)
    return figures


def _commits(numbers: range, groups: int, partitions: int) -> Iterator[Commit]:
    """A commit for each number, for the partitions of all groups in turn: the first partition of each group, then the
    second, and so on."""
    for number in numbers:
        yield Commit(f"group-{number % groups}", number // groups % partitions, number)


def _make_stopped(directory: Path, commits: Iterator[Commit]) -> None:
    """Make a data directory as a broker leaves it after a clean stop, with these commits, each a batch as from a
    consumer with one partition.

    Writing the files is quicker than committing. Then a broker is started, which checks and indexes them.
    """
    broker = OwnBroker(directory)
    with Conversation(broker.bootstrap) as client:
        client.create_topic(OFFSETS_TOPIC, partitions=OFFSETS_PARTITIONS, configs={"cleanup.policy": "compact"})
    broker.close(signal.SIGKILL)
    now_ms = int(time.time() * 1000)
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(
                (directory / "data" / f"{OFFSETS_TOPIC}-{number}" / f"{0:020d}.log").open("r+b", 1 << 20)
            )
            for number in range(OFFSETS_PARTITIONS)
        ]
        ends = [0] * OFFSETS_PARTITIONS
        partitions: dict[str, int] = {}
        for group, partition, offset in commits:
            if group not in partitions:
                partitions[group] = partition_of(group, OFFSETS_PARTITIONS)
            number = partitions[group]
            record = GroupRecord(
                OffsetCommitKey(group=group, topic=TOPIC, partition=partition),
                OffsetCommitValue(offset=offset, metadata="", commit_timestamp=now_ms, topic_id=TOPIC_ID),
                4,
            )
            batch = encode_pairs([encode_group_record(record)], timestamp=now_ms, base_sequence=0)
            stamp(batch, ends[number], 0)
            ends[number] += 1
            files[number].write(batch)
    OwnBroker(directory).close()


def _clean(directory: Path, asked: dict[int, Commit]) -> None:
    """Have the broker clean these partitions: their segments are rolled by a commit behind all others."""
    broker = OwnBroker(directory, settings={"log.cleaner.backoff.ms": "100"})
    with Conversation(broker.bootstrap) as client:
        client.create_topic(OTHER_TOPIC, partitions=1)
        client.alter_topic(OFFSETS_TOPIC, {"segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"})
        _wait_until_loaded(client, asked)
        for commit in asked.values():
            client.commit(commit.group, OTHER_TOPIC, 1)
    cleaned = {f"{OFFSETS_TOPIC}-{number}" for number in asked}
    deadline = time.monotonic() + LOADED_SOON_S
    while not cleaned <= set(CLEANED.findall(broker.log_text())):
        assert time.monotonic() < deadline, f"not all partitions were cleaned in {LOADED_SOON_S} s"
        time.sleep(POLL_S)
    broker.close()


def _on_a_copy(stopped: Path, home: Path, measure: Callable[[Path], dict[str, float]]) -> dict[str, float]:
    shutil.copytree(stopped, home)
    try:
        return measure(home)
    finally:
        shutil.rmtree(home)


def _start_of_ours(home: Path, asked: dict[int, Commit]) -> dict[str, float]:
    started = time.perf_counter()
    broker = OwnBroker(home)
    try:
        return _figures_of(broker.bootstrap, broker.pid, started, asked)
    finally:
        broker.close(signal.SIGKILL)


def _start_of_kafka(home: Path, asked: dict[int, Commit]) -> dict[str, float]:
    kafka = ApacheKafka(home, settings={}, port=0, libraries=str(libraries()))
    started = time.perf_counter()
    kafka.start()
    try:
        return _figures_of(kafka.bootstrap, kafka.process.pid, started, asked)
    finally:
        kafka.kill()


def _figures_of(bootstrap: str, pid: int, started: float, asked: dict[int, Commit]) -> dict[str, float]:
    """Measure a broker that has been started. ``asked``: for each partition with commits, a group and its committed
    offset."""
    wait_until_answering(bootstrap)
    answering_s = time.perf_counter() - started
    with Conversation(bootstrap) as client, Bystander(bootstrap) as bystander:
        _wait_until_loaded(client, asked)
        loaded_s = time.perf_counter() - started
        longest_wait_ms = bystander.longest_wait_ms()
    return {
        "answering_s": answering_s,
        "loaded_s": loaded_s,
        "longest_wait_ms": longest_wait_ms,
        "cpu_s": cpu_seconds(pid),
        "memory_mb": memory_mb(pid)[0],
    }


def _wait_until_loaded(client: Conversation, asked: dict[int, Commit]) -> None:
    of_group = OffsetFetchRequest.Group
    request = OffsetFetchRequest(
        groups=[
            of_group(
                group_id=commit.group,
                topics=[of_group.Topic(name=TOPIC, partition_indexes=[commit.partition])],
            )
            for commit in asked.values()
        ]
    )
    frame = encode_request(0, CLIENT_ID, request, FETCH_VERSION)
    wanted = {commit.group: [commit.offset] for commit in asked.values()}
    found: dict[str, list[int]] = {}
    deadline = time.monotonic() + LOADED_SOON_S
    while time.monotonic() < deadline:
        _, answer = decode_response(OffsetFetchResponse, FETCH_VERSION, client.exchange(frame))
        codes = {group.error_code for group in answer.groups}
        if not codes <= {0, *NOT_READY}:
            raise LoadFailed(f"OffsetFetch failed with errors {sorted(codes)}")
        # Apache Kafka has moments in which a group that is loaded has no offsets yet, without an error.
        found = {
            group.group_id: [one.partitions[0].committed_offset for one in group.topics] for group in answer.groups
        }
        if found == wanted:
            return
        time.sleep(POLL_S)
    raise LoadFailed(f"after {LOADED_SOON_S} s, {wanted} were expected, and {found} found")
