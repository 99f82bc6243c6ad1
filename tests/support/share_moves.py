"""Share consumers that work jobs off while the leaders of their topic and of their states move between two nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from dev.broker_process import BrokerProcess
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.elections import ElectLeadersRequest
from protocol.messages.reassignments import AlterPartitionReassignmentsRequest
from tests.support.clients.share_worker import Delivery, ShareWorker
from tests.support.clusters import Admin, Cluster, Load
from tests.support.raw_client import RawClient
from tests.support.sharing import QUICK, from_the_beginning

FIRST: Final = 1
SECOND: Final = 2
BOTH: Final = {FIRST, SECOND}
TOPIC, GROUP, STATES = "jobs", "workers", "__share_group_state"
TO_SECOND: Final = [(TOPIC, SECOND), (STATES, SECOND)]
TO_FIRST: Final = [(TOPIC, FIRST), (STATES, FIRST)]
SETTINGS: Final = {
    **QUICK,
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Of both nodes."""


def work_while_leaders_move(cluster: Cluster, moves: Sequence[tuple[str, int]]) -> None:
    """Let three workers do jobs while topics get new leaders one after the other; then the second node is killed.

    Fails where a job is lost, or is done when it must not be.
    """
    admin, bootstrap = Admin(cluster.bootstrap), cluster.bootstrap
    admin.create(TOPIC, [[FIRST, SECOND]])
    from_the_beginning(cluster.nodes[FIRST].bootstrap, GROUP)
    load = Load(bootstrap, TOPIC, rate_s=200)
    workers = [ShareWorker(bootstrap, TOPIC, GROUP, gives_back=b"7") for _ in range(3)]
    moved = 0

    def go_on(what: str) -> None:
        done = sum(len(worker.done) for worker in workers)
        until(lambda: sum(len(worker.done) for worker in workers) >= done + 100, f"jobs are done {what}")

    def lead(topic: str, node: int) -> None:
        nonlocal moved
        moved += 1
        reassign(cluster.nodes[FIRST], topic, [node, *BOTH - {node}])
        admin.until(lambda: admin.leaders(topic) == [node], f"{topic} is led by {node}")

    go_on("at the first node")
    for topic, node in moves:
        admin.until(lambda topic=topic: admin.isrs(topic) == [BOTH], f"{topic} is in sync")  # type: ignore[misc]
        lead(topic, node)
        go_on(f"since {topic} is led by {node}")
    moved += 1
    cluster.nodes[SECOND].kill()
    admin.until(lambda: admin.leaders(TOPIC) == admin.leaders(STATES) == [FIRST], "the first node leads")
    go_on("since the second node was killed")
    load.end()

    jobs = {b"%d" % number for number in load.acknowledged}
    until(lambda: {one.job for worker in workers for one in (*worker.done, *worker.in_doubt)} >= jobs, "all are done")
    for worker in workers:
        worker.close()
    assert load.errors == []
    assert any(worker.given_back for worker in workers)
    check_histories(workers, moved)


def check_histories(workers: list[ShareWorker], moves: int) -> None:
    """Fail where a job was delivered after it was done, to two workers at once, or with a count that has gone back.

    A leader that has moved does not know what was in flight: that is delivered again at once, as in Apache Kafka.
    """
    confirmed: dict[bytes, Delivery] = {}
    for worker in workers:
        for one in worker.done:
            assert one.job not in confirmed, f"{one} is confirmed twice: {confirmed[one.job]}"
            confirmed[one.job] = one
    given_back = {one.job: one for worker in workers for one in worker.given_back}
    deliveries: defaultdict[bytes, list[Delivery]] = defaultdict(list)
    for worker in workers:
        for one in worker.begun:
            deliveries[one.job].append(one)
    for job, of_job in deliveries.items():
        of_job.sort(key=lambda one: one.at_s)
        counts = [one.delivery_count for one in of_job]
        assert counts == sorted(counts), f"the count of {job!r} goes back: {of_job}"
        extra = len(of_job) - 1 - (job in given_back)
        assert extra <= moves, f"{job!r} was delivered {extra} times more than it had to be: {of_job}"
        if job in given_back:
            assert counts[-1] > given_back[job].delivery_count, f"{job!r} was given back, and is lost: {of_job}"
        if job in confirmed:
            assert of_job[-1].at_s < confirmed[job].at_s, f"{job!r} was done, and delivered again: {of_job}"
    # What was polled together was acknowledged together.
    doubts = sum(len({one.at_s for one in worker.in_doubt}) for worker in workers)
    assert doubts <= moves * len(workers), f"{doubts} times {len(workers)} workers were refused, in {moves} moves"


def reassign(node: BrokerProcess, topic: str, replicas: list[int]) -> None:
    """Let the first of the replicas be the preferred leader of a topic's only partition, and lead."""
    of_request = AlterPartitionReassignmentsRequest.Topic
    partition = of_request.Partition(partition_index=0, replicas=replicas)
    with RawClient(node.bootstrap) as raw:
        wanted = [of_request(name=topic, partitions=[partition])]
        answer = raw.ask(AlterPartitionReassignmentsRequest(topics=wanted), 0)
        assert answer.error_code == ErrorCode.NONE, answer
        assert [one.error_code for one in answer.responses[0].partitions] == [ErrorCode.NONE], answer
        answer = raw.ask(ElectLeadersRequest(topic_partitions=None), 2)
        assert answer.error_code == ErrorCode.NONE, answer
