"""Share groups and streams groups in a cluster of Kafka and this broker, whose coordinators and leaders move between
both."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from dev.kafka_jars import KAFKA_VERSION
from tests.interop import programs
from tests.interop.clusters import Cluster
from tests.interop.conftest import installed
from tests.interop.test_kafka_streams import APPLICATION, COUNTS, LINES, PLACES, Lines, Watcher
from tests.interop.test_streams_groups import Application, counted
from tests.support.clusters import Admin, await_in_sync
from tests.support.share_moves import (
    BOTH,
    FIRST,
    SECOND,
    SETTINGS,
    TO_FIRST,
    TO_SECOND,
    work_while_leaders_move,
)

KAFKA: Final = FIRST
OTTLA: Final = SECOND
QUICK: Final = {
    **SETTINGS,
    "group.streams.min.session.timeout.ms": "2000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.initial.rebalance.delay.ms": "0",
    "default.replication.factor": "2",
}
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
OF_THE_APPLICATION: Final = ("word-counts-counts-changelog", "word-counts-counts-repartition")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A controller and a broker of Kafka, and this broker."""
    with closing(Cluster(tmp_path, str(installed(lambda: programs.kafka_libraries(KAFKA_VERSION))))) as cluster:
        cluster.add_controller(settings=QUICK)
        cluster.add_kafka(KAFKA, QUICK)
        cluster.add_member(OTTLA, QUICK)
        yield cluster


@pytest.mark.timeout(290)
def test_share_consumers_do_jobs_whoever_leads_and_whoever_keeps_the_states(cluster: Cluster) -> None:
    work_while_leaders_move(cluster, [*TO_SECOND, *TO_FIRST, *TO_SECOND])


@pytest.mark.timeout(290)
def test_words_are_counted_exactly_once_whoever_coordinates_and_whoever_dies(cluster: Cluster, tmp_path: Path) -> None:
    command = installed(lambda: programs.java_source(APPLICATION, programs.kafka_streams_libraries()))
    admin, bootstrap = Admin(cluster.bootstrap), cluster.bootstrap
    brokers = {number: cluster.nodes[number] for number in BOTH}
    turns = [[KAFKA, OTTLA], [OTTLA, KAFKA], [KAFKA, OTTLA]]
    topics = {LINES: turns, COUNTS: turns, **dict.fromkeys(INTERNAL, turns)}
    for topic, replicas in topics.items():
        admin.create(topic, replicas, **({"cleanup_policy": "compact"} if topic in INTERNAL else {}))
    assert len(PLACES) == len(turns)
    with (
        closing(Watcher(bootstrap)) as watcher,
        Lines(bootstrap, random.Random(1071)) as lines,
        Application(command, bootstrap, tmp_path / "states").instance("only") as instance,
    ):
        watcher.await_counts(100, instance)
        for victim, is_killed in ((OTTLA, True), (KAFKA, False), (OTTLA, False), (KAFKA, True)):
            node = brokers[victim]
            if is_killed:
                node.kill()
            else:
                node.stop()
            watcher.await_counts(watcher.seen + 100, instance)
            node.start()
            await_in_sync(brokers, *topics, *OF_THE_APPLICATION)
        lines.stop()
        watcher.await_counts(lines.words.total(), instance)
    assert lines.failures == []
    assert counted(bootstrap) == {word: list(range(1, count + 1)) for word, count in lines.words.items()}
