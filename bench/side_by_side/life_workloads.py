"""Workloads of a short-lived broker, as in tests and on laptops: its start, its first seconds, its memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench import librdkafka, raw_cases
from bench.conversation import Conversation, produce_frame
from bench.limits import MEGABYTE, SocketOptions
from bench.load import LoadFailed
from bench.processes import StartedBroker, memory_mb
from bench.rival import Rival
from bench.side_by_side.verified import VerifiedBench
from bench.side_by_side.workload import MB_S, PERCENTILES, REQUESTS_S, Birth, Figures, Row, Workload

FIRST_S: Final = 10.0
TURN_MB: Final = 1_000
"""MB that are written to one topic before it is removed: ten seconds of this load would fill a small machine."""
IDLE_S: Final = 2.0

FIRST_ANSWER: Final = Row("first_answer_s", "s to the first answer", False)
START_CPU: Final = Row("start_cpu_s", "broker CPU-s to the first answer", False)
FIRST_RECORD: Final = Row("first_record_s", "s to the first acknowledged record", False)
IDLE_MB: Final = Row("idle_mb", "MB resident, idle", False)
LOADED_MB: Final = Row("loaded_mb", "MB resident, loaded", False)


def bench_of(broker: StartedBroker, birth: Birth) -> VerifiedBench:
    """A bench for the cases, on a broker that has just been started."""
    return VerifiedBench(
        broker=broker,
        rival=Rival(birth.directory / "rival"),  # it is not asked, and does not start
        options=SocketOptions(),
        directory=birth.directory,
        scale=1.0,
        data_directory=broker.data_directory,
    )


def _start(birth: Birth) -> Figures:
    """Seconds from the creation of the process to the first answer, formatting included where that is a step of its
    own."""
    with contextlib.closing(birth.start()) as broker:
        first_answer_s, start_cpu_s = time.perf_counter() - broker.created_s, broker.cpu_seconds()
        bench = bench_of(broker, birth)
        with bench.topic(1) as topic, Conversation(broker.bootstrap) as conversation:
            answer = conversation.exchange(produce_frame(topic, 0, records=1, value_bytes=100))
            first_record_s = time.perf_counter() - broker.created_s
            raw_cases.check_produced(len(answer).to_bytes(4, "big") + answer)
        time.sleep(IDLE_S * min(1.0, birth.scale))
        return {
            "first_answer_s": first_answer_s,
            "start_cpu_s": start_cpu_s,
            "first_record_s": first_record_s,
            "idle_mb": memory_mb(broker.pid)[0],
        }


@contextmanager
def _newborn(birth: Birth) -> Iterator[tuple[VerifiedBench, float]]:
    """A bench of a new broker, and how many seconds of its first ten are left for the measurement."""
    with contextlib.closing(birth.start()) as broker:
        yield bench_of(broker, birth), max(0.3, FIRST_S * min(1.0, birth.scale))


def _one_record(birth: Birth) -> Figures:
    with _newborn(birth) as (bench, seconds):
        return raw_cases.produce(
            bench, records=1, value_bytes=100, connections=8, in_flight=8, requests=100_000_000, most_seconds=seconds
        )


def _rdkafka(birth: Birth) -> Figures:
    """librdkafka produces in turns, each to a topic of its own; the time between turns is not counted."""
    size = 1_000
    payloads = librdkafka.values(size)
    with _newborn(birth) as (bench, seconds):
        produced, spent_s = 0, 0.0
        while spent_s < seconds:
            with bench.topic(1) as topic:
                count, turn_s = librdkafka.produce(
                    bench.broker.bootstrap,
                    topic,
                    payloads,
                    TURN_MB * 1_000,
                    {"acks": "all"},
                    most_seconds=seconds - spent_s,
                )
                if (stored := bench.end_offsets(topic, 1)) != count:
                    raise LoadFailed(f"{count} records were acknowledged, the log holds {stored}")
            produced += count
            spent_s += turn_s
        return {"mb_s": produced * size / spent_s / MEGABYTE}


def _latency(birth: Birth) -> Figures:
    with _newborn(birth) as (bench, seconds):
        return raw_cases.latency(bench, requests=int(seconds * 1_000))


def _memory(bench: VerifiedBench) -> Figures:
    """Memory of a broker that has been under the loads before this workload."""
    assert bench.broker.pid is not None
    now, most = memory_mb(bench.broker.pid)
    return {"loaded_mb": now, "most_mb": most}


def workloads() -> list[Workload]:
    """The workloads of a short-lived broker, in the order of the page."""
    return [
        Workload(
            name="start",
            words="start",
            rows=(FIRST_ANSWER, START_CPU, FIRST_RECORD, IDLE_MB),
            seconds=IDLE_S,
            around_s=2.5,
            live=_start,
        ),
        Workload(
            name="memory",
            words="after this round's load",
            rows=(LOADED_MB,),
            seconds=0.0,
            around_s=0.0,
            measure=_memory,
        ),
        Workload(
            name="first-seconds-one-record",
            words="first 10 s: one record, 8 x 8",
            rows=(REQUESTS_S,),
            seconds=FIRST_S + 1.0,
            around_s=2.5,
            live=_one_record,
        ),
        Workload(
            name="first-seconds-librdkafka",
            words="first 10 s: librdkafka, 1,000 B",
            rows=(MB_S,),
            seconds=FIRST_S + 15.0,
            around_s=2.5,
            live=_rdkafka,
        ),
        Workload(
            name="first-seconds-latency",
            words="first 10 s: 1,000 records/s",
            rows=PERCENTILES[:2],
            seconds=FIRST_S,
            around_s=2.5,
            live=_latency,
            is_of_moments=True,
        ),
    ]
