"""Metrics of all partitions together, of waiting requests, and of fetch sessions."""

import pytest

from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.fetch import FetchRequest
from protocol.records.cluster_metadata import PartitionChangeRecord
from tests.support.batches import produced
from tests.support.broker import InProcessBroker
from tests.support.metadata import pretend
from tests.support.metrics import now, scrape, shown, up
from tests.support.requests import fetch_request, produce_request

ALWAYS_0 = (
    "kafka_server_replicamanager_failedisrupdates_total",
    'kafka_server_replicafetchermanager_maxlag{clientId="Replica"}',
    'kafka_server_replicafetchermanager_minfetchrate{clientId="Replica"}',
    'kafka_server_replicafetchermanager_failedpartitionscount{clientId="Replica"}',
    'kafka_server_replicafetchermanager_deadthreadcount{clientId="Replica"}',
    'kafka_server_replicaalterlogdirsmanager_maxlag{clientId="ReplicaAlterLogDirs"}',
    'kafka_server_replicaalterlogdirsmanager_minfetchrate{clientId="ReplicaAlterLogDirs"}',
    'kafka_server_replicaalterlogdirsmanager_failedpartitionscount{clientId="ReplicaAlterLogDirs"}',
    'kafka_server_replicaalterlogdirsmanager_deadthreadcount{clientId="ReplicaAlterLogDirs"}',
    'kafka_server_delayedfetchmetrics_expires_total{fetcherType="follower"}',
)


def waiting(kind: str) -> str:
    return f'kafka_server_delayedoperationpurgatory_numdelayedoperations{{delayedOperation="{kind}"}}'


def entries(kind: str) -> str:
    return f'kafka_server_delayedoperationpurgatory_purgatorysize{{delayedOperation="{kind}"}}'


def test_partitions_are_counted_when_a_topic_is_made(broker: InProcessBroker) -> None:
    with shown(
        broker,
        {
            "kafka_server_replicamanager_leadercount": now(3),
            "kafka_server_replicamanager_partitioncount": now(3),
            "kafka_server_replicamanager_atminisrpartitioncount": now(3),
        },
    ):
        broker.create_topic("orders", partitions=3)
    page = scrape(broker)
    assert page["kafka_server_replicamanager_offlinereplicacount"] == 0
    assert page["kafka_server_replicamanager_underreplicatedpartitions"] == 0
    assert page["kafka_server_replicamanager_underminisrpartitioncount"] == 0


def test_partitions_that_are_being_moved_are_counted(broker: InProcessBroker) -> None:
    topic_id = broker.create_topic("orders")
    with shown(broker, {"kafka_server_replicamanager_reassigningpartitions": now(1)}):
        pretend(broker.server.metadata, PartitionChangeRecord(partition_id=0, topic_id=topic_id, adding_replicas=[2]))


def test_a_fetch_that_waits_is_told_of_until_its_time_is_over(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    client = broker.connect()
    with shown(broker, {waiting("Fetch"): now(1), entries("Fetch"): now(1)}):
        client.send(fetch_request("orders", max_wait_ms=500), 12)
        broker.settle()
    with shown(
        broker,
        {
            waiting("Fetch"): now(0),
            'kafka_server_delayedfetchmetrics_expires_total{fetcherType="consumer"}': up(1),
        },
    ):
        broker.advance(500)
        client.receive()


def test_a_produce_that_waits_for_the_disk_is_told_of_until_its_time_is_over(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("orders", flush_messages=1)
    partition = broker.server.components.replicas.partition("orders", 0)
    monkeypatch.setattr(type(partition), "complete_flush", lambda self, target: None)
    client = broker.connect()
    with shown(broker, {waiting("Produce"): now(1), entries("Produce"): now(1)}):
        client.send(produce_request("orders", produced()), 12)
        broker.wait_until(lambda: broker.server.components.replicas.produce_purgatory.stats.pending == 1)
    with shown(broker, {waiting("Produce"): now(0), "kafka_server_delayedproducemetrics_expires_total": up(1)}):
        broker.advance(30_000)
        client.receive()


def test_a_deletion_that_waits_is_told_of(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"one", b"two")
    partition = broker.server.components.replicas.partition("orders", 0)
    monkeypatch.setattr(type(partition), "low_watermark", property(lambda self: 0))
    topic = DeleteRecordsRequest.Topic
    request = DeleteRecordsRequest(
        topics=[topic(name="orders", partitions=[topic.Partition(partition_index=0, offset=1)])], timeout_ms=500
    )
    client = broker.connect()
    with shown(broker, {waiting("DeleteRecords"): now(1), entries("DeleteRecords"): now(1)}):
        client.send(request, 2)
        broker.wait_until(lambda: broker.server.components.replicas.delete_records_purgatory.stats.pending == 1)
    broker.advance(500)
    client.receive()


@pytest.mark.settings(max_incremental_fetch_session_cache_slots=1)
def test_fetch_sessions_are_told_of(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.create_topic("payments")

    def begin(*topics: str) -> None:
        broker.ask(fetch_request(*topics, session_id=0, session_epoch=0), 12)

    with shown(
        broker,
        {
            "kafka_server_fetchsessioncache_numincrementalfetchsessions": now(1),
            "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached": now(1),
        },
    ):
        begin("orders")
    broker.clock.advance(200_000)
    with shown(
        broker,
        {
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total": up(1),
            "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached": now(2),
        },
    ):
        begin("orders", "payments")


def test_what_a_single_node_never_does_is_0(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"one")
    broker.ask(FetchRequest(max_wait_ms=0, min_bytes=1, replica_id=2, topics=[]), 12)
    page = scrape(broker)
    assert {name: page[name] for name in ALWAYS_0} == dict.fromkeys(ALWAYS_0, 0)
