"""Metrics of the metadata: the cluster, the metadata log and its quorum."""

from pathlib import Path

import pytest

from protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from protocol.records.cluster_metadata import NO_LEADER, BrokerRegistrationChangeRecord, PartitionChangeRecord
from tests.support.broker import InProcessBroker, running_broker
from tests.support.metadata import pretend
from tests.support.metrics import now, scrape, shown, up

CONTROLLER = "kafka_controller_kafkacontroller"
BOTH_RAFT = ("kafka_server_raft_metrics", "kafka_server_raftmetrics")
BOTH_BROKER = ("kafka_server_broker_metadata_metrics", "kafka_server_brokermetadatametrics")

ALWAYS = {
    "kafka_controller_kafkacontroller_activecontrollercount": 1,
    "kafka_controller_kafkacontroller_newactivecontrollerscount": 1,
    "kafka_controller_kafkacontroller_lastappliedrecordlagms": 0,
    "kafka_controller_kafkacontroller_eventqueueoperationstimedoutcount": 0,
    "kafka_controller_kafkacontroller_metadataerrorcount": 0,
    "kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount": 0,
    "kafka_controller_controllerstats_uncleanleaderelections_total": 0,
    "kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total": 0,
    "kafka_server_metadataloader_currentcontrollerid": 1,
    "kafka_server_metadataloader_currentmetadataversion": 33,
    'kafka_server_metadataloader_finalizedlevel{featureName="metadataVersion"}': 33,
    'kafka_server_metadataloader_finalizedlevel{featureName="kraftVersion"}': 1,
    'kafka_server_node_metrics_maximum_supported_level{feature_name="metadata-version"}': 33,
    'kafka_server_node_metrics_minimum_supported_level{feature_name="metadata-version"}': 7,
    'kafka_server_node_metrics_maximum_supported_level{feature_name="kraft-version"}': 1,
    'kafka_server_node_metrics_minimum_supported_level{feature_name="kraft-version"}': 0,
    'kafka_server_raft_metrics_current_state_info{state="leader"}': 1,
    'kafka_server_raft_metrics_current_state{state="leader"}': 1,
    'kafka_server_raftmetrics_current_state{current_state="leader"}': 1,
    "kafka_server_raft_metrics_current_leader": 1,
    "kafka_server_raftmetrics_current_leader": 1,
    "kafka_server_raft_metrics_current_vote": 1,
    "kafka_server_raftmetrics_current_vote": 1,
    "kafka_server_raft_metrics_number_of_voters": 1,
    "kafka_server_raftmetrics_number_of_voters": 1,
    "kafka_server_raft_metrics_number_of_observers": 0,
    "kafka_server_raftmetrics_number_of_observers": 0,
    "kafka_server_raft_metrics_number_unknown_voter_connections": 0,
    "kafka_server_raftmetrics_number_unknown_voter_connections": 0,
    "kafka_server_raft_metrics_uncommitted_voter_change": 0,
    "kafka_server_raftmetrics_uncommitted_voter_change": 0,
    "kafka_server_raft_metrics_fetch_records_rate": 0,
    "kafka_server_raftmetrics_fetch_records_rate": 0,
    "kafka_server_broker_metadata_metrics_last_applied_record_lag_ms": 0,
    "kafka_server_brokermetadatametrics_last_applied_record_lag_ms": 0,
    "kafka_server_broker_metadata_metrics_metadata_load_error_count": 0,
    "kafka_server_brokermetadatametrics_metadata_load_error_count": 0,
    "kafka_server_broker_metadata_metrics_metadata_apply_error_count": 0,
    "kafka_server_brokermetadatametrics_metadata_apply_error_count": 0,
}
"""What no client can change."""


def test_topics_and_partitions_are_counted(broker: InProcessBroker) -> None:
    with shown(broker, {f"{CONTROLLER}_globaltopiccount": now(1), f"{CONTROLLER}_globalpartitioncount": now(3)}):
        broker.create_topic("orders", partitions=3)
    with shown(broker, {f"{CONTROLLER}_globalpartitioncount": now(5)}):
        more = CreatePartitionsRequest.Topic(name="orders", count=5, assignments=None)
        broker.ask(CreatePartitionsRequest(topics=[more], timeout_ms=1, validate_only=False), 3)
    with shown(broker, {f"{CONTROLLER}_globaltopiccount": now(0), f"{CONTROLLER}_globalpartitioncount": now(0)}):
        gone = DeleteTopicsRequest.Topic(name="orders", topic_id=bytes(16))
        broker.ask(DeleteTopicsRequest(topics=[gone], timeout_ms=1), 6)
    page = scrape(broker)
    assert page[f"{CONTROLLER}_offlinepartitionscount"] == 0
    assert page[f"{CONTROLLER}_preferredreplicaimbalancecount"] == 0


def test_brokers_are_counted(broker: InProcessBroker) -> None:
    image = broker.server.components.metadata.image
    epoch = image.cluster.brokers[1].broker_epoch
    assert scrape(broker)[f"{CONTROLLER}_activebrokercount"] == 1
    with shown(
        broker,
        {
            f"{CONTROLLER}_activebrokercount": now(0),
            f"{CONTROLLER}_fencedbrokercount": now(1),
            f"{CONTROLLER}_controlledshutdownbrokercount": now(1),
        },
    ):
        pretend(
            broker.server.metadata,
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1, in_controlled_shutdown=1),
        )


def test_unclean_elections_are_told_by_their_leader_and_kafkas_metric_counts_them_all(broker: InProcessBroker) -> None:
    controller = broker.server.components.controller
    assert controller is not None
    topic_id = broker.create_topic("orders")

    async def lead_again(last_known_elr: list[int]) -> None:
        for leader, isr, last_known in ((NO_LEADER, [], last_known_elr), (1, [1], [])):
            change = PartitionChangeRecord(
                topic_id=topic_id, partition_id=0, leader=leader, isr=isr, last_known_elr=last_known
            )
            controller.append([change])

    unclean = "ottla_controller_unclean_elections_total"
    every = "kafka_controller_controllerstats_uncleanleaderelections_total"
    with shown(broker, {f'{unclean}{{leader="last_in_sync"}}': up(1), every: up(1)}):
        broker.run(lead_again([1]))
    with shown(broker, {f'{unclean}{{leader="out_of_sync"}}': up(1), every: up(1)}):
        broker.run(lead_again([]))


def test_records_of_the_metadata_log_are_told_of(broker: InProcessBroker) -> None:
    broker.advance(120_000)  # what came with the start is forgotten
    written = {
        f"{CONTROLLER}_lastappliedrecordoffset": up(4),  # the topic and three partitions
        f"{CONTROLLER}_lastcommittedrecordoffset": up(4),
        f"{CONTROLLER}_lastappliedrecordtimestamp": up(),
        f"{CONTROLLER}_eventqueueoperationsstartedcount": up(1),
        "kafka_server_brokermetadatalistener_metadatabatchsizes_count": up(1),
        "kafka_server_brokermetadatalistener_metadatabatchprocessingtimeus_count": up(1),
    }
    for name in BOTH_RAFT:
        written |= {
            f"{name}_high_watermark": up(4),
            f"{name}_log_end_offset": up(4),
            f"{name}_append_records_rate": up(),
        }
    for name in BOTH_BROKER:
        written |= {f"{name}_last_applied_record_offset": up(4), f"{name}_last_applied_record_timestamp": up()}
    with shown(broker, written):
        broker.create_topic("orders", partitions=3)
    page = scrape(broker)
    assert page['kafka_server_brokermetadatalistener_metadatabatchsizes{quantile="0.999"}'] == 4
    assert page['kafka_server_brokermetadatalistener_metadatabatchprocessingtimeus{quantile="0.999"}'] > 0
    assert page["kafka_server_raft_metrics_log_end_epoch"] == page["kafka_server_raft_metrics_current_epoch"] == 1


def test_how_long_a_commit_takes_is_told(broker: InProcessBroker) -> None:
    log = broker.server.metric_sources.metadata_log
    assert log is not None
    broker.advance(120_000)  # what came with the start is forgotten
    assert scrape(broker)["kafka_server_raft_metrics_commit_latency_max"] == 0
    log.stats.commits.record(1_000)
    log.stats.commits.record(7_000)
    page = scrape(broker)
    for name in BOTH_RAFT:
        assert page[f"{name}_commit_latency_max"] == pytest.approx(7, rel=0.13)
        assert page[f"{name}_commit_latency_avg"] == pytest.approx(4, rel=0.13)


def test_commits_are_timed(broker: InProcessBroker) -> None:
    log = broker.server.metric_sources.metadata_log
    assert log is not None
    before = sum(log.stats.commits.recent())
    broker.create_topic("orders")
    assert sum(log.stats.commits.recent()) == before + 1


def test_every_start_is_an_epoch_and_loads_the_snapshot(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        first = scrape(broker)
        assert first["kafka_server_metadataloader_handleloadsnapshotcount"] == 1, "formatting has left one"
        broker.restart()
        again = scrape(broker)
    for name in BOTH_RAFT:
        assert again[f"{name}_current_epoch"] == first[f"{name}_current_epoch"] + 1
        assert again[f"{name}_log_end_epoch"] == again[f"{name}_current_epoch"]


def test_a_snapshot_has_a_size_and_an_age(broker: InProcessBroker) -> None:
    size = "kafka_server_snapshotemitter_latestsnapshotgeneratedbytes"
    age = "kafka_server_snapshotemitter_latestsnapshotgeneratedagems"
    broker.advance(5_000)
    page = scrape(broker)
    assert (page[size], page[age]) == (0, 5_000)
    log = broker.server.metric_sources.metadata_log
    assert log is not None

    async def write() -> None:
        assert log is not None
        log.write_snapshot()

    with shown(broker, {size: up(), age: now(70)}):
        broker.run(write())
        broker.wait_until(lambda: log.stats.snapshot_bytes > 0)
        broker.advance(70)


def test_what_no_client_can_change_is_what_it_is(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    page = scrape(broker)
    assert {name: page.get(name) for name in ALWAYS} == ALWAYS
