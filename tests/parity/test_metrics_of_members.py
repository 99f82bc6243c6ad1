"""A broker of Apache Kafka and this broker are members of one cluster, do the same, and export the same.

The cluster's controller is a node of ours (1), so that one JVM is enough. Kafka's broker is 2, and ours 3. What one of
them leads the other follows, and partition 2n of one is partition 2n + 1 of the other. Broker 4 stops.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from dev.broker_process import port_below_client_ports
from dev.kafka_jars import NoKafka
from dev.waiting import until
from tests.interop.clusters import CLUSTER, Cluster, KafkaNode
from tests.parity.metrics_differences import MISSING, MISSING_ON_A_MEMBER
from tests.parity.test_metrics import kafkas_own, written
from tests.support.clusters import Admin
from tests.support.jmx_exporter import RULES, agent
from tests.support.metrics import Page, http_get

KAFKAS: Final = 2
OURS: Final = 3
TOPIC: Final = "orders"
REPLICAS: Final = ((2, 3), (3, 2), (1, 2), (1, 3), (2, 1), (3, 1), (2, 4), (3, 4))
RECORDS: Final = 5

COMPARED: Final = re.compile(
    r"kafka_cluster_partition_.*|kafka_server_replicamanager_(?!failedisr|isrexpands).*"
    r"|kafka_server_replicafetchermanager_(?!minfetchrate).*|kafka_server_fetcherlagmetrics_.*"
    r"|kafka_server_fetcherstats_bytes_.*|kafka_server_brokertopicmetrics_(?!total).*"
    r'|kafka_log_log_(?:size|logendoffset|logstartoffset)\{.*topic="orders".*'
    r"|kafka_server_raft_metrics_(?:current|high|log_end|number).*|kafka_server_metadataloader_(?:current|final).*"
    r"|kafka_server_broker_metadata_metrics_(?!\w+lag).*|kafka_server_kafkaserver_brokerstate"
    r"|kafka_server_replica_fetcher_metrics_connection_c(?:ount|reation).*"
)
"""Series whose values follow from what was done.

Requests are sent again while leaders change. Kafka does not count an addition to an ISR of which the metadata tells
before the controller's answer does.
"""


class WatchedMember(KafkaNode):
    """A broker of Kafka under the JMX exporter."""

    @property
    def metrics_port(self) -> int:
        return self.port + 1

    def command(self) -> list[str]:
        java, *words = super().command()
        return [java, f"-javaagent:{agent()}=127.0.0.1:{self.metrics_port}:{RULES}", *words]


class Pages:
    """The pages of both brokers, Kafka's first."""

    def __init__(self, kafkas: int, ours: int) -> None:
        self.theirs = Page(http_get(kafkas, "/metrics").text)
        self.ours = Page(http_get(ours, "/metrics").text)

    def mirrored(self) -> tuple[dict[str, float], dict[str, float]]:
        """The values of both pages; broker ids, ports and partitions of ours as those of Kafka's that do the same."""
        mine = {as_kafkas(written(one)): value for one, value in self.ours.values.items()}
        return {without_ports(written(one)): self.theirs.values[one] for one in kafkas_own(self.theirs)}, mine


def without_ports(series: str) -> str:
    return re.sub(r'broker="127\.0\.0\.1:\d+"', 'broker="ADDRESS"', series)


def as_kafkas(series: str) -> str:
    """A series of our broker, with the names that it has at the other one."""
    if f'topic="{TOPIC}"' in series:
        series = re.sub(r'partition="(\d+)"', lambda found: f'partition="{int(found[1]) ^ 1}"', series)
    other = {str(KAFKAS): str(OURS), str(OURS): str(KAFKAS)}
    series = re.sub(
        r'(BrokerId="|broker_id="|ReplicaFetcherThread-0-)(\d+)',
        lambda found: found[1] + other.get(found[2], found[2]),
        series,
    )
    return without_ports(series)


def produce(bootstrap: str) -> None:
    """Append records of equal sizes to all partitions, one batch each."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0, "enable.idempotence": False}
    )
    for number in range(RECORDS):
        for partition in range(len(REPLICAS)):
            producer.produce(TOPIC, b"%d" % number, partition=partition)
        assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    libraries = os.environ.get("OTTLA_TEST_KAFKA_LIBS")
    if not libraries:
        pytest.skip("OTTLA_TEST_KAFKA_LIBS does not name a directory with Kafka's jars")
    try:
        agent()
    except NoKafka as reason:
        pytest.skip(str(reason))
    port = port_below_client_ports()
    with Cluster(tmp_path_factory.mktemp("cluster"), libraries) as cluster:
        cluster.add_primary(1, {"ottla.cluster.id": CLUSTER})
        kafka = start_kafka(cluster, tmp_path_factory.mktemp("kafka"), libraries)
        cluster.add_member(OURS, {"ottla.prometheus.listener": f"127.0.0.1:{port}"})
        fourth = cluster.add_member(4)
        admin = Admin(cluster.bootstrap)
        admin.create(TOPIC, REPLICAS)
        produce(cluster.bootstrap)
        fourth.stop()  # which takes it out of the ISRs
        admin.until(lambda: admin.isrs(TOPIC)[6:] == [{2}, {3}], "broker 4 is out of sync")
        yield settled(kafka.metrics_port, port)


def start_kafka(cluster: Cluster, directory: Path, libraries: str) -> WatchedMember:
    kafka = WatchedMember(
        directory, role="broker", node_id=KAFKAS, controllers=cluster.controllers, libraries=libraries
    )
    cluster.nodes[KAFKAS] = kafka
    kafka.start()
    return kafka


def settled(kafkas: int, ours: int) -> Pages:
    """The pages once both have heard of everything, and all followers have everything."""
    found: list[Pages] = []

    def have_settled() -> bool:
        page = Pages(kafkas, ours)
        found[:] = [page]
        offset = "kafka_server_broker_metadata_metrics_last_applied_record_offset"
        expected = "kafka_server_brokertopicmetrics_replicationbytesin_total"
        under = "kafka_server_replicamanager_underreplicatedpartitions"
        return all(page.theirs[name] == page.ours[name] for name in (offset, expected, under))

    until(have_settled, "that both are at the same place")
    return found[0]


def test_every_series_of_kafkas_member_is_ours_too_or_has_a_reason(pages: Pages) -> None:
    theirs, ours = pages.mirrored()
    missing = sorted(theirs.keys() - ours.keys())
    unexplained = [
        one
        for one in missing
        if not any(re.fullmatch(known.pattern, one) for known in (*MISSING, *MISSING_ON_A_MEMBER))
    ]
    assert not unexplained, f"{len(unexplained)} series are missing:\n" + "\n".join(unexplained)


def test_each_reason_of_a_member_is_needed(pages: Pages) -> None:
    theirs, ours = pages.mirrored()
    missing = theirs.keys() - ours.keys()
    idle = [
        known.pattern for known in MISSING_ON_A_MEMBER if not any(re.fullmatch(known.pattern, one) for one in missing)
    ]
    assert not idle, f"no series is missing for which there is a reason: {idle}"


def test_what_both_members_have_done_has_the_same_values(pages: Pages) -> None:
    theirs, ours = pages.mirrored()
    compared = {one: (theirs[one], ours[one]) for one in theirs.keys() & ours.keys() if COMPARED.fullmatch(one)}
    differing = {one: values for one, values in compared.items() if values[0] != values[1]}
    assert not differing, "Kafka's value and ours:\n" + "\n".join(
        f"{one}: {values}" for one, values in differing.items()
    )
    of_scenario = {
        "kafka_server_replicamanager_leadercount": 3,
        "kafka_server_replicamanager_partitioncount": 5,
        "kafka_server_replicamanager_underreplicatedpartitions": 1,
        "kafka_server_replicamanager_isrshrinks_total": 0,  # the controller has done that
        'kafka_cluster_partition_underreplicated{partition="6",topic="orders"}': 1,
        'kafka_cluster_partition_replicascount{partition="1",topic="orders"}': 0,
        'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}': 3 * RECORDS,
        "kafka_server_raft_metrics_current_vote": -1,
    }
    assert {one: compared[one][0] for one in of_scenario} == of_scenario
    assert len(compared) > 80
