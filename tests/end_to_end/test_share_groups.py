"""A queue of jobs is worked off by ten share consumers of librdkafka, three of which are killed, as is the broker once:
every job is done."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until
from tests.support.clients import connect
from tests.support.clients.share_worker import JOB_S, Delivery, ShareWorker
from tests.support.sharing import QUICK, from_the_beginning

JOBS = int(os.environ.get("OTTLA_TEST_SHARE_JOBS", "1000"))
WORKERS = 10
KILLED = 3
TAKEN = 10 if JOBS <= 10_000 else 500
"""How many jobs a worker takes at a time."""

confluent_kafka = pytest.importorskip("confluent_kafka")
if not hasattr(confluent_kafka, "ShareConsumer"):
    pytest.skip("this librdkafka has no share consumer", allow_module_level=True)


@pytest.fixture
def sharing_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose share groups notice changes soon."""
    with broker_for_tests(tmp_path, settings=QUICK) as process:
        yield process


@pytest.mark.timeout(600)
def test_every_job_is_done_although_workers_and_the_broker_are_killed(sharing_broker: BrokerProcess) -> None:
    client = connect("confluent-kafka", sharing_broker.bootstrap)
    client.create_topic("jobs", partitions=3)
    from_the_beginning(sharing_broker.bootstrap, "workers")
    jobs = [f"job {number}".encode() for number in range(JOBS)]
    producer = confluent_kafka.Producer({"bootstrap.servers": sharing_broker.bootstrap, "log_level": 0})

    def produce(some: list[bytes]) -> None:
        for job in some:
            producer.produce("jobs", job)
        producer.flush()

    def add_up(kind: str) -> int:
        return sum(len(getattr(worker, kind)) for worker in workers)

    produce(jobs[: JOBS // 2])
    began_s = time.monotonic()
    job_s = JOB_S if JOBS <= 10_000 else 0
    workers = [
        ShareWorker(sharing_broker.bootstrap, "jobs", "workers", job_s=job_s, most=TAKEN) for _ in range(WORKERS)
    ]
    until(lambda: add_up("done") == JOBS // 2, "half of the jobs are done")
    killed, left = workers[:KILLED], workers[KILLED:]
    for worker in killed:
        worker.begin_hanging()
    for place in range(JOBS // 2, JOBS, JOBS // 500):
        produce(jobs[place : place + JOBS // 500])
    until(lambda: any(worker.hangs for worker in killed), "a worker holds a job")
    for worker in killed:
        worker.kill()
    sharing_broker.kill()
    sharing_broker.start()
    # A job that a worker had begun when it was killed may have been its last to be confirmed.
    maybe_done = {one.job for worker in killed for one in worker.begun if not worker.hangs}

    def are_all_done() -> bool:
        if add_up("done") + add_up("in_doubt") + len(maybe_done) < JOBS:
            return False
        return {one.job for worker in workers for one in (*worker.done, *worker.in_doubt)} | maybe_done >= {*jobs}

    until(are_all_done, "all jobs are done")
    took_s = time.monotonic() - began_s
    for worker in left:
        worker.close()

    done = [one.job for worker in workers for one in worker.done]
    assert len(done) == len(set(done)), "no job is confirmed twice"
    deliveries: defaultdict[bytes, list[Delivery]] = defaultdict(list)
    for worker in workers:
        for one in worker.begun:
            deliveries[one.job].append(one)
    assert deliveries.keys() == {*jobs}
    in_doubt = {one.job for worker in workers for one in worker.in_doubt}
    assert {*jobs} - {*done} <= maybe_done | in_doubt
    for of_job in deliveries.values():
        counts = [one.delivery_count for one in sorted(of_job, key=lambda one: one.at_s)]
        assert counts == sorted(counts), f"a count goes back: {of_job}"
        # What the broker had delivered when it was killed is not counted.
        assert len(counts) - len(set(counts)) <= 1, f"deliveries are not counted: {of_job}"
    again = [of_job for of_job in deliveries.values() if len(of_job) > 1]
    assert again, "what a killed worker held was delivered again"
    print(f"{JOBS} jobs in {took_s:.1f} s, {len(again)} delivered again, {len(in_doubt)} in doubt")  # noqa: T201
