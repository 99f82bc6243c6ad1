"""A queue of jobs is worked off by ten share consumers of librdkafka, three of which are killed: every job is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess, broker_for_tests
from dev.waiting import until
from tests.support.clients import connect
from tests.support.clients.share_worker import ShareWorker
from tests.support.sharing import from_the_beginning, have_share_groups

JOBS = 1_000
WORKERS = 10
KILLED = 3

confluent_kafka = pytest.importorskip("confluent_kafka")
if not hasattr(confluent_kafka, "ShareConsumer"):
    pytest.skip("this librdkafka has no share consumer", allow_module_level=True)


@pytest.fixture
def sharing_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose cluster has share groups."""
    with broker_for_tests(tmp_path) as process:
        have_share_groups(process.bootstrap)
        yield process


def test_every_job_is_done_although_workers_are_killed(sharing_broker: BrokerProcess) -> None:
    client = connect("confluent-kafka", sharing_broker.bootstrap)
    client.create_topic("jobs", partitions=3)
    from_the_beginning(sharing_broker.bootstrap, "workers")
    jobs = [f"job {number}".encode() for number in range(JOBS)]
    producer = confluent_kafka.Producer({"bootstrap.servers": sharing_broker.bootstrap})

    def produce(some: list[bytes]) -> None:
        for job in some:
            producer.produce("jobs", job)
        producer.flush()

    produce(jobs[: JOBS // 2])
    workers = [ShareWorker(sharing_broker.bootstrap, "jobs", "workers") for _ in range(WORKERS)]
    until(lambda: sum(len(worker.done) for worker in workers) == JOBS // 2, "half of the jobs are done")
    killed = workers[:KILLED]
    for worker in killed:
        worker.begin_hanging()
    for job in jobs[JOBS // 2 :]:
        produce([job])
    until(lambda: any(worker.hangs for worker in killed), "a worker holds a job")
    for worker in killed:
        worker.kill()
    # A job that a worker had begun when it was killed may have been its last to be confirmed.
    maybe_done = {one.job for worker in killed for one in worker.begun if not worker.hangs}
    until(lambda: {one.job for worker in workers for one in worker.done} | maybe_done >= {*jobs}, "all jobs are done")
    for worker in workers[KILLED:]:
        worker.close()

    done = [one.job for worker in workers for one in worker.done]
    assert len(done) == len(set(done)), "no job is confirmed twice"
    counts: dict[bytes, list[int]] = {}
    for worker in workers:
        for one in worker.begun:
            counts.setdefault(one.job, []).append(one.delivery_count)
    assert counts.keys() == {*jobs}
    assert {*jobs} - {*done} <= maybe_done
    assert all(len(set(of_job)) == len(of_job) for of_job in counts.values()), "each delivery has its own count"
    assert any(max(of_job) > 1 for of_job in counts.values()), "what a killed worker held was delivered again"
