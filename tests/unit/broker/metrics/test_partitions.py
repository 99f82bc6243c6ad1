"""Metrics of each partition."""

import errno
from pathlib import Path

import pytest

from broker.replication.partition import LeaderAndIsr
from protocol.messages.configs import IncrementalAlterConfigsRequest
from tests.support.batches import produced
from tests.support.broker import InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem
from tests.support.metrics import now, scrape, shown, up
from tests.support.requests import produce_request

ORDERS = '{topic="orders",partition="0"}'


def test_a_log_is_told_of(broker: InProcessBroker) -> None:
    broker.create_topic("orders", retention_bytes=1_000)
    batch = produced(3, is_transactional=False)
    with shown(
        broker,
        {
            f"kafka_log_log_size{ORDERS}": now(len(batch)),
            f"kafka_log_log_logendoffset{ORDERS}": now(3),
            f"kafka_log_log_retentionsizeinpercent{ORDERS}": now(100 * len(batch) // 1_000),
            f"kafka_topic_partition_current_offset{ORDERS}": now(3),
        },
    ):
        broker.ask(produce_request("orders", batch), 12)
    page = scrape(broker)
    assert page[f"kafka_log_log_numlogsegments{ORDERS}"] == 1
    assert page[f"kafka_log_log_logstartoffset{ORDERS}"] == 0
    assert page[f"kafka_topic_partition_oldest_offset{ORDERS}"] == 0
    assert page[f"kafka_cluster_partition_laststableoffsetlag{ORDERS}"] == 0


def test_what_waits_for_an_open_transaction_is_told(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    with shown(broker, {f"kafka_cluster_partition_laststableoffsetlag{ORDERS}": now(2)}):
        log = broker.log("orders")
        batch = produced(2, is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        log.stage_trusted(batch, leader_epoch=0)
        log.append_all(0)
        broker.server.components.replicas.partition("orders", 0).advance_high_watermark()


def test_replicas_are_told_of(broker: InProcessBroker) -> None:
    broker.create_topic("orders", min_insync_replicas=2)
    page = scrape(broker)
    assert page[f"kafka_cluster_partition_replicascount{ORDERS}"] == 1
    assert page[f"kafka_cluster_partition_insyncreplicascount{ORDERS}"] == 1
    assert page[f"kafka_cluster_partition_atminisr{ORDERS}"] == 1, "there are no more replicas than one"
    partition = broker.server.components.replicas.partition("orders", 0)
    replicas = broker.server.components.replicas
    alone = LeaderAndIsr(1, 0, (1, 2), frozenset({1}))
    with shown(
        broker,
        {
            f"kafka_cluster_partition_replicascount{ORDERS}": now(2),
            f"kafka_cluster_partition_underreplicated{ORDERS}": now(1),
            f"kafka_cluster_partition_underminisr{ORDERS}": now(1),
            f"kafka_cluster_partition_atminisr{ORDERS}": now(0),
            "kafka_server_replicamanager_underreplicatedpartitions": now(1),
            "kafka_server_replicamanager_underminisrpartitioncount": now(1),
            "kafka_server_replicamanager_atminisrpartitioncount": now(0),
        },
    ):
        replicas.apply(partition, alone)
    with shown(
        broker,
        {
            f"kafka_cluster_partition_insyncreplicascount{ORDERS}": now(2),
            f"kafka_cluster_partition_underreplicated{ORDERS}": now(0),
            f"kafka_cluster_partition_underminisr{ORDERS}": now(0),
            f"kafka_cluster_partition_atminisr{ORDERS}": now(1),
        },
    ):
        replicas.apply(partition, alone._replace(in_sync_replicas=frozenset({1, 2})))


def test_a_partition_that_goes_offline_is_told_of_as_the_metadata_has_it(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    directories = ",".join(str(tmp_path / name) for name in ("a", "b"))
    lost = '{topic="orders",partition="1"}'
    with running_broker(tmp_path, files=files, log_dirs=directories) as broker:
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", b"one", partition=1)
        page = scrape(broker)
        assert page[f"kafka_topic_partition_leader{lost}"] == 1
        assert page[f"kafka_topic_partition_leader_is_preferred{lost}"] == 1
        assert page[f"kafka_topic_partition_replicas{lost}"] == 1
        assert page[f"kafka_topic_partition_in_sync_replica{lost}"] == 1
        assert page[f"kafka_topic_partition_under_replicated_partition{lost}"] == 0
        with shown(
            broker,
            {
                f"kafka_topic_partition_leader{lost}": now(-1),
                f"kafka_topic_partition_leader_is_preferred{lost}": now(0),
                "kafka_controller_kafkacontroller_offlinepartitionscount": now(1),
                "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": now(1),
                "kafka_server_replicamanager_offlinereplicacount": now(1),
                "kafka_server_replicamanager_leadercount": now(1),
                "kafka_server_replicamanager_partitioncount": now(1),
                "kafka_log_logmanager_offlinelogdirectorycount": now(1),
                f'kafka_log_logmanager_logdirectoryoffline{{logDirectory="{tmp_path / "b"}"}}': now(1),
            },
        ):
            files.fail("write", errno.EIO, suffix="b/orders-1/00000000000000000000.log")
            broker.ask(produce_request("orders", produced(), partition=1), 12)
            broker.wait_until(lambda: scrape(broker)["kafka_controller_kafkacontroller_offlinepartitionscount"] == 1)
        page = scrape(broker)
        assert page.get(f"kafka_log_log_size{lost}") is None
        assert page.get(f'ottla_log_directory_free_bytes{{logDirectory="{tmp_path / "b"}"}}') is None
        assert page[f'kafka_log_logmanager_logdirectoryoffline{{logDirectory="{tmp_path / "a"}"}}'] == 0
        assert page["kafka_server_brokertopicmetrics_messagesin_total"] == 1, "what it has had stays in the sum"


def test_the_metadata_log_is_a_log_too(broker: InProcessBroker) -> None:
    metadata = '{topic="__cluster_metadata",partition="0"}'
    with shown(broker, {f"kafka_log_log_size{metadata}": up(), f"kafka_log_log_logendoffset{metadata}": up()}):
        broker.create_topic("orders")
    assert scrape(broker).get(f"kafka_cluster_partition_replicascount{metadata}") is None


def test_a_change_of_min_isr_shows(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    partition = broker.server.components.replicas.partition("orders", 0)
    broker.server.components.replicas.apply(partition, LeaderAndIsr(1, 0, (1, 2, 3), frozenset({1, 2})))
    with shown(broker, {f"kafka_cluster_partition_atminisr{ORDERS}": now(1)}):
        resource = IncrementalAlterConfigsRequest.Resource
        config = resource.Config(name="min.insync.replicas", config_operation=0, value="2")
        broker.ask(
            IncrementalAlterConfigsRequest(
                resources=[resource(resource_type=2, resource_name="orders", configs=[config])], validate_only=False
            ),
            1,
        )
        broker.settle()


@pytest.mark.parametrize("name", ["odd-name", "with.dots", "with_underscores"])
def test_any_name_of_a_topic_is_a_label(broker: InProcessBroker, name: str) -> None:
    broker.create_topic(name)
    assert scrape(broker)[f'kafka_log_log_size{{topic="{name}",partition="0"}}'] == 0
